"""Every execution provider of this build on one model: whether it runs it, how fast, and how far from the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import PipelineError
from common.runtime.agreement import OutputDistance, output_errors
from common.runtime.inputs.values import Feeds
from common.runtime.provider_table import CPU, offered_providers
from common.runtime.session import Session, SessionSettings, create_session, reason_of

if TYPE_CHECKING:
    from common.table_rows import ProviderComparisonRow

RUNS = 20
RUNS_S = 5.0  # no more runs begin after this time


@dataclass(frozen=True, slots=True)
class ProviderResult:
    """What one provider did.

    Attributes:
        provider: its name.
        problem: why it does not run the model; empty where it does.
        call_us: median time of a run, the first one left out.
        errors: how far each output is from the CPU's.
    """

    provider: str
    problem: str = ""
    call_us: float | None = None
    errors: Sequence[OutputDistance] = ()


def provider_matrix(
    model: Path, settings: SessionSettings, feeds: Feeds, providers: Sequence[str] | None = None
) -> list[ProviderResult]:
    """Run a model with each provider that this build offers, the CPU first.

    Raises:
        PipelineError: the CPU cannot run it, so there is nothing to compare with.
    """
    offered = offered_providers() if providers is None else providers
    names, expected, call_us = _results(model, settings, CPU, feeds)
    found = [ProviderResult(CPU, "", call_us, output_errors(names, expected, expected))]
    for provider in (name for name in offered if name != CPU):
        try:
            names, outputs, call_us = _results(model, settings, provider, feeds)
        except PipelineError as error:
            found.append(ProviderResult(provider, error.problem))
        else:
            found.append(ProviderResult(provider, "", call_us, output_errors(names, outputs, expected)))
    return found


def _results(model: Path, settings: SessionSettings, provider: str, feeds: Feeds) -> tuple[list[str], list[Any], float]:
    """Return names and values of the outputs, and the median time of a run in µs."""
    session = create_session(model, SessionSettings(settings.threads, provider, settings.optimization))
    outputs = _outputs(session, feeds, model)
    times_us: list[float] = []
    begin_s = time.perf_counter()
    while len(times_us) < RUNS and (not times_us or time.perf_counter() - begin_s < RUNS_S):
        times_us.append(_timed_us(lambda: _outputs(session, feeds, model)))
    return [output.name for output in session.get_outputs()], outputs, float(np.median(times_us))


def _timed_us(call: Callable[[], object]) -> float:
    begin_ns = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin_ns) / 1e3


def _outputs(session: Session, feeds: Feeds, model: Path) -> list[Any]:
    try:
        return list(session.run(None, feeds))
    except Exception as error:  # the runtime raises a dozen unrelated types
        raise PipelineError(model, f"ONNX Runtime fails to run it ({reason_of(error)})") from error


def matrix_rows(results: Sequence[ProviderResult]) -> list[ProviderComparisonRow]:
    """Return a row per provider and output, and one for a provider that does not run the model."""
    return [
        {
            "compared_provider": result.provider,
            "provider_problem": result.problem,
            "call_us": result.call_us,
            "output_name": error.output if error else "",
            "is_equal_shape": error.is_equal_shape if error else False,
            "max_abs_error": error.max_abs_error if error else None,
            "max_rel_error": error.max_rel_error if error else None,
            "cosine_error": error.cosine_error if error else None,
        }
        for result in results
        for error in (result.errors or (None,))
    ]

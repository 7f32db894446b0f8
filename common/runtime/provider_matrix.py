"""Every execution provider of this build on one model: whether it runs it, how fast, and how far from the CPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.messages.errors import PipelineError
from common.runtime.inputs.values import Array, Feeds
from common.runtime.providers.provider_table import CPU, offered_providers
from common.runtime.sessions.session import SessionSettings, create_session
from common.runtime.sessions.stoppable import StoppableRuns
from common.table_rows import ProviderComparisonRow

RUNS = 20
RUNS_S = 5.0  # no more runs begin after this time


@dataclass(frozen=True, slots=True)
class OutputDistance:
    """Errors of one output; each is None where it is not defined, as with NaN or other shapes."""

    output: str
    max_abs_error: float | None  # largest difference of two elements
    max_rel_error: float | None  # largest difference over the magnitude of the expected element, where that is not 0
    cosine_error: float | None  # one less the cosine of the angle between both, as vectors
    is_equal_shape: bool


def provider_matrix(
    model: Path, settings: SessionSettings, feeds: Feeds, providers: Sequence[str] | None = None
) -> list[ProviderComparisonRow]:
    """Run a model with each provider that this build offers; the CPU, with which all are compared, must run it.

    There is a row per provider and output, and one for a provider that does not run the model.
    """
    offered = offered_providers() if providers is None else providers
    names, expected, call_us = _results(model, settings, CPU, feeds)
    rows = [_row(CPU, call_us, distance) for distance in output_errors(names, expected, expected)]
    for provider in (name for name in offered if name != CPU):
        try:
            names, outputs, call_us = _results(model, settings, provider, feeds)
        except PipelineError as error:
            rows.append(_row(provider, problem=error.problem))
        else:
            rows += [_row(provider, call_us, distance) for distance in output_errors(names, outputs, expected)]
    return rows


def _results(model: Path, settings: SessionSettings, provider: str, feeds: Feeds) -> tuple[list[str], list[Any], float]:
    """Return names and values of the outputs, and the median time of a run in µs."""
    session = create_session(model, SessionSettings(settings.threads, provider, settings.optimization))
    runs = StoppableRuns(session, model)
    outputs, _ = runs.run(feeds)
    times_us: list[float] = []
    begin_s = time.perf_counter()
    while len(times_us) < RUNS and (not times_us or time.perf_counter() - begin_s < RUNS_S):
        _, (run_ns,) = runs.run(feeds)
        times_us.append(run_ns / 1e3)
    return [output.name for output in session.get_outputs()], [*outputs], float(np.median(times_us))


def _row(
    provider: str, call_us: float | None = None, error: OutputDistance | None = None, problem: str = ""
) -> ProviderComparisonRow:
    return {
        "compared_provider": provider,
        "provider_problem": problem,
        "call_us": call_us,  # median time of a run, the first one left out
        "output_name": error.output if error else "",
        "is_equal_shape": error.is_equal_shape if error else False,
        "max_abs_error": error.max_abs_error if error else None,
        "max_rel_error": error.max_rel_error if error else None,
        "cosine_error": error.cosine_error if error else None,
    }


# --- how far the outputs of two providers are apart ------------------------------------------------------------------


def output_errors(names: Sequence[str], outputs: Sequence[Any], expected: Sequence[Any]) -> list[OutputDistance]:
    """Compare outputs one by one; those that are no numbers have no errors unless they are equal."""
    return [_error(*parts) for parts in zip(names, outputs, expected, strict=True)]


def _error(name: str, output: Any, expected: Any) -> OutputDistance:
    actual, wanted = np.asarray(output), np.asarray(expected)
    if actual.shape != wanted.shape:
        return OutputDistance(name, None, None, None, is_equal_shape=False)
    if actual.dtype.kind not in "biufc" or wanted.dtype.kind not in "biufc":
        error = 0.0 if actual.tolist() == wanted.tolist() else None
        return OutputDistance(name, error, error, error, is_equal_shape=True)
    return _numeric(
        name, *(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) for array in (actual, wanted))
    )


def _numeric(name: str, actual: Array, wanted: Array) -> OutputDistance:
    with np.errstate(invalid="ignore", over="ignore"):  # infinite elements have no error
        difference, magnitude = np.abs(actual - wanted), np.abs(wanted)
        compared = magnitude > 0
        relative = difference[compared] / magnitude[compared]
        cosine = _cosine_error(actual.ravel(), wanted.ravel())
    absolute, largest = _finite(difference.max(initial=0.0)), _finite(relative.max(initial=0.0))
    return OutputDistance(name, absolute, largest, _finite(cosine), is_equal_shape=True)


def _cosine_error(actual: Array, wanted: Array) -> float:
    lengths = float(np.linalg.norm(actual)) * float(np.linalg.norm(wanted))
    if not lengths:
        return 0.0 if np.array_equal(actual, wanted) else float("nan")
    return max(0.0, 1 - float(np.real(np.vdot(actual, wanted))) / lengths)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

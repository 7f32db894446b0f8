"""The measurement: unprofiled and profiled runs of two sessions in turn, so that what profiling costs is measured.

Both sessions see the same machine in the same minute; only the unprofiled ones give the latency. The profiled ones are
as many, but never more than keep the trace below ``TRACE_EVENT_LIMIT`` events, spread evenly over the unprofiled ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from common.errors import PipelineError
from common.profiling.providers import require_provider
from common.profiling.session import Feeds, Operands, Session, SessionSettings, create_session, operands, run
from common.profiling.statistics import Samples
from common.profiling.trace import Bodies, Trace, read_trace

TRACE_EVENT_LIMIT = 40_000
RUNTIME_EVENT_LIMIT = 1_000_000  # beyond it the runtime drops events

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Lap:
    """One run on the clock of ``time.perf_counter``."""

    is_profiled: bool
    run_index: int
    is_warmup: bool
    start_s: float
    latency_us: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of the runs."""

    laps: tuple[Lap, ...]
    trace: Trace
    trace_file: Path
    session_creation_us: float
    first_run_us: float

    def latencies(self, *, profiled: bool) -> Samples:
        """Latencies of the measured runs of one series, in µs."""
        return np.array([lap.latency_us for lap in self.laps if lap.is_profiled == profiled and not lap.is_warmup])

    def renamed(self, bodies: Bodies) -> Measurement:
        """The same with the nodes of bodies told apart that the runtime gave one name; see :func:`read_trace`."""
        return replace(self, trace=read_trace(self.trace_file, bodies)) if bodies else self

    @property
    def profiled_warmup(self) -> int:
        """Profiled runs that are cut from the start of the trace."""
        return sum(lap.is_profiled and lap.is_warmup for lap in self.laps)


def measure(
    model: Path,
    feeds: Feeds,
    settings: SessionSettings,
    runs: int,
    warmup: int,
    folder: Path,
    progress: Progress,
    content: bytes | None = None,
) -> Measurement:
    """Measure a model.

    Args:
        model: the ONNX file.
        feeds: an array per graph input.
        settings: threads, provider, optimization level of both sessions.
        runs: unprofiled runs that count.
        warmup: runs before those, of each session.
        folder: where the trace and the executed graph (``executed.onnx``) are left.
        progress: called with the runs done and all runs.
        content: what to run in place of the file's own content.

    Raises:
        PipelineError: the runtime refuses or fails, or nodes ran on another provider than the one asked for.
    """
    start = time.perf_counter()
    plain = create_session(model, settings, content=content)
    session_creation_us = 1e6 * (time.perf_counter() - start)
    fed = operands(plain, feeds)
    first = _lap(plain, fed, profiled=False, index=0, warmup=True)
    events = _events_per_run(create_session(model, settings, content=content, trace_prefix=folder / "count"), fed)
    if not events:
        remedy = "--optimization disable runs it as it stands"
        raise PipelineError(model, "ONNX Runtime ran no node: it folded the whole graph", remedy)
    outputs = {"trace_prefix": folder / "trace", "optimized": folder / "executed.onnx"}
    traced = create_session(model, settings, content=content, **outputs)
    laps = [*interleave(plain, traced, fed, runs, warmup, events, progress)]
    trace_file = Path(traced.end_profiling())
    trace = read_trace(trace_file)
    profiled = sum(lap.is_profiled for lap in laps)
    if trace.run_count != profiled:
        raise PipelineError("the trace", f"holds {trace.run_count} of {profiled} runs", "free disk space and rerun")
    require_provider(trace, settings.provider)
    return Measurement(tuple(laps), trace, trace_file, session_creation_us, first.latency_us)


def _events_per_run(session: Session, feeds: Operands) -> int:
    """Trace events of one run: counted, because a loop writes more events than the graph has nodes; 0: none ran."""
    run(session, feeds)
    trace_file = Path(session.end_profiling())
    trace = read_trace(trace_file)
    trace_file.unlink()
    return trace.recorded_count if trace.nodes else 0


def interleave(
    plain: Session, traced: Session, feeds: Operands, runs: int, warmup: int, events_per_run: int, progress: Progress
) -> list[Lap]:
    """Run both sessions in turn, the warm-up first; profiled runs are spread evenly when they are fewer."""
    least = 2 if 2 * events_per_run < RUNTIME_EVENT_LIMIT else 1
    affordable = max(least, TRACE_EVENT_LIMIT // events_per_run)
    traced_warmup = min(warmup, affordable // 2)
    traced_runs = min(runs, affordable - traced_warmup)
    laps, traced_done = [], 0
    for step in range(warmup + runs):
        is_warmup = step < warmup
        laps.append(_lap(plain, feeds, profiled=False, index=step, warmup=is_warmup))
        due = _due(step, warmup, traced_warmup) if is_warmup else _due(step - warmup, runs, traced_runs)
        if due:
            laps.append(_lap(traced, feeds, profiled=True, index=traced_done, warmup=is_warmup))
            traced_done += 1
        progress(step + 1, warmup + runs)
    return laps


def _due(step: int, steps: int, wanted: int) -> bool:
    """Whether one of ``wanted`` events falls on this one of ``steps`` steps, spread evenly."""
    return (step + 1) * wanted // steps > step * wanted // steps


def _lap(session: Session, feeds: Operands, *, profiled: bool, index: int, warmup: bool) -> Lap:
    start = time.perf_counter_ns()
    run(session, feeds)
    end = time.perf_counter_ns()
    return Lap(profiled, index, warmup, start / 1e9, (end - start) / 1e3)


def require_same_nodes(trace: Trace, executed: Set[str]) -> None:
    """Refuse a trace of nodes that the executed graph does not have.

    Raises:
        PipelineError: naming them.
    """
    strangers = [name for name in trace.nodes if name not in executed]
    if strangers:
        raise PipelineError("the trace", f"has nodes that the executed graph lacks: {', '.join(strangers[:5])}")

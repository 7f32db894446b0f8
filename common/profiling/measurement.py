"""The measurement: unprofiled and profiled runs of two sessions in turn, so that what profiling costs is measured.

Both sessions see the same machine in the same minute; only the unprofiled ones give the latency. The profiled ones are
as many, but never more than keep the trace below ``TRACE_EVENT_LIMIT`` events, spread evenly over the unprofiled ones.
A run that fails ends the measurement; what was measured until then stays, and says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.errors import PipelineError
from common.profiling.fused_graph import complete_executed_graph
from common.profiling.nesting import Bodies
from common.profiling.providers import require_provider
from common.profiling.recorder import CAPACITY, Recorder
from common.profiling.session import Feeds, Operands, Session, SessionSettings, create_session, operands, run
from common.profiling.statistics import Samples
from common.profiling.steady_state import SteadyState, steady_state
from common.profiling.timeline import RunClock, RunTimeline, run_timelines, sound_runs
from common.profiling.trace import Trace, keep_runs, read_trace

TRACE_EVENT_LIMIT = 40_000
RUNTIME_EVENT_LIMIT = 1_000_000  # beyond it the runtime drops events
ROUNDING = 1e-9  # of a share times a whole number

Progress = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to measure: ``warmup`` runs first, then for ``duration_s``, or so many ``runs`` where it is None."""

    warmup: int
    runs: int
    duration_s: float | None = None

    @property
    def total(self) -> float:
        """Of seconds, or of runs."""
        return self.duration_s or self.runs

    def share(self, runs: int, elapsed_s: float) -> float:
        """How much of it is spent, at most 1."""
        return min((elapsed_s if self.duration_s else runs) / self.total, 1.0)


class ColdStart(NamedTuple):
    """What comes before any warm-up: creating the unprofiled session, and its first run."""

    session_creation_us: float
    first_run_us: float


@dataclass(frozen=True, slots=True)
class Series:
    """The runs of one session; the first ``warmup_count`` are in no statistic."""

    runs: Recorder
    warmup_count: int

    @property
    def counted_us(self) -> Samples:
        """Latencies of the stored runs that count."""
        return self.runs.latencies_us[self.warmup_count :]

    @property
    def clocks(self) -> list[RunClock]:
        """Start in s and latency in µs of each stored run."""
        return list(zip(self.runs.starts_s.tolist(), self.runs.latencies_us.tolist(), strict=True))

    @property
    def sample_count(self) -> int:
        """Runs that count, stored or not."""
        return self.runs.count - self.warmup_count


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of the runs.

    ``kept`` says of each run in ``recorded`` whether ``trace`` has it: a jump of the wall clock spoils a run there, not
    its latency. A trace that was lost has no nodes. ``failure`` is empty, or why the measurement ended early;
    ``lacks`` is what the trace is short of.
    """

    plain: Series
    profiled: Series
    trace: Trace
    recorded: Trace
    trace_file: Path
    kept: tuple[bool, ...]
    steady: SteadyState
    cold: ColdStart
    failure: str = ""
    lacks: tuple[str, ...] = ()
    bodies: Bodies = field(default_factory=dict)

    @property
    def start_s(self) -> float:
        """Start of the first run, on the clock of ``time.perf_counter``."""
        return float(self.plain.runs.starts_s[0])

    @property
    def run_count(self) -> int:
        """Runs of both sessions."""
        return self.plain.runs.count + self.profiled.runs.count

    @property
    def profiled_warmup(self) -> int:
        """Runs that are cut from the start of the trace."""
        return sum(self.kept[: self.profiled.warmup_count])

    def renamed(self, bodies: Bodies) -> Measurement:
        """The same with the nodes of bodies told apart that the runtime gave one name; see :func:`read_trace`."""
        if not bodies:
            return self
        trace = keep_runs(read_trace(self.trace_file, bodies, partial=True), self.kept)
        return replace(self, trace=trace, bodies=bodies)

    def timelines(self, runs: Collection[int]) -> dict[int, RunTimeline]:
        """When each node ran in some of the profiled runs; runs that the clock jumped in are left out."""
        if not runs:
            return {}
        return run_timelines(self.trace_file, self.recorded, self.profiled.clocks, runs, self.bodies)


@dataclass(frozen=True, slots=True)
class Sessions:
    """An unprofiled and a profiled session of one model, what both are fed, and what the cold start took.

    ``executed`` is where the executed graph is saved.
    """

    plain: Session
    traced: Session
    feeds: Operands
    events_per_run: int
    cold: ColdStart
    provider: str
    executed: Path


def prepare(
    model: Path, feeds: Feeds, settings: SessionSettings, folder: Path, content: bytes | None = None
) -> Sessions:
    """Create the sessions, and run the model for the first time.

    Args:
        model: the ONNX file.
        feeds: an array per graph input.
        settings: threads, provider, optimization level of both sessions.
        folder: where the trace and the executed graph (``executed.onnx``) are left.
        content: what to run in place of the file's own content.

    Raises:
        PipelineError: the runtime refuses or fails.
    """
    start = time.perf_counter()
    plain = create_session(model, settings, content=content)
    session_creation_us = 1e6 * (time.perf_counter() - start)
    fed = operands(plain, feeds)
    first = Recorder(1)
    _lap(plain, fed, first)
    events = _events_per_run(create_session(model, settings, content=content, trace_prefix=folder / "count"), fed)
    if not events:
        remedy = "--optimization disable runs it as it stands"
        raise PipelineError(model, "ONNX Runtime ran no node: it folded the whole graph", remedy)
    executed = folder / "executed.onnx"
    traced = create_session(model, settings, content=content, trace_prefix=folder / "trace", optimized=executed)
    cold = ColdStart(session_creation_us, float(first.latencies_us[0]))
    return Sessions(plain, traced, fed, events, cold, settings.provider, executed)


def measure(sessions: Sessions, budget: Budget, progress: Progress) -> Measurement:
    """Measure a model.

    Args:
        sessions: fresh ones; the profiled one ends with the measurement.
        budget: how long, unprofiled runs being those that count.
        progress: called between two runs with what is done and all there is to do, in runs or in seconds.

    Raises:
        PipelineError: a run failed before one of each session was counted, or nodes ran on another provider than the
            one asked for.
    """
    plain, profiled, failure = interleave(sessions, budget, progress)
    found = conclude(plain, profiled, budget.warmup, Path(sessions.traced.end_profiling()), sessions.cold)
    require_provider(found.trace, sessions.provider)
    if found.trace.nodes:
        complete_executed_graph(sessions.executed, sessions.traced, sessions.provider, found.trace)
    return replace(found, failure=failure or found.failure)


def _events_per_run(session: Session, feeds: Operands) -> int:
    """Trace events of one run: counted, because a loop writes more events than the graph has nodes; 0: none ran."""
    run(session, feeds)
    trace_file = Path(session.end_profiling())
    trace = read_trace(trace_file)
    trace_file.unlink()
    return trace.recorded_count if trace.nodes else 0


def interleave(sessions: Sessions, budget: Budget, progress: Progress) -> tuple[Recorder, Recorder, str]:
    """Run both sessions in turn, the warm-up first; profiled runs are spread evenly when they are fewer.

    Returns:
        The unprofiled runs, the profiled ones, and why they ended early; empty if they did not.

    Raises:
        PipelineError: a run failed before one of each session was counted.
    """
    affordable = max(
        2 if 2 * sessions.events_per_run < RUNTIME_EVENT_LIMIT else 1, TRACE_EVENT_LIMIT // sessions.events_per_run
    )
    warmup_due = min(budget.warmup, affordable // 2)
    due = affordable - warmup_due
    stored = CAPACITY
    if budget.duration_s is None:
        due, stored = min(budget.runs, due), min(budget.warmup + budget.runs, CAPACITY)
    runs, failure = (Recorder(stored), Recorder(warmup_due + due)), ""
    try:
        for step in range(1, budget.warmup + 1):
            _step(sessions, runs, step * warmup_due // budget.warmup)
        share, start_s = 0.0, time.perf_counter()
        while share < 1:
            done = runs[0].count + 1 - budget.warmup
            share = budget.share(done, time.perf_counter() - start_s)
            _step(sessions, runs, warmup_due + math.ceil(due * share - ROUNDING))
            progress(share * budget.total, budget.total)
    except PipelineError as error:
        if not (runs[0].count > budget.warmup and runs[1].count > warmup_due):
            raise
        failure = f"failed after {runs[0].count} unprofiled and {runs[1].count} profiled runs ({error})"
    return *runs, failure


def _step(sessions: Sessions, runs: tuple[Recorder, Recorder], profiled_due: int) -> None:
    """An unprofiled run, and a profiled one where fewer than are due have been."""
    _lap(sessions.plain, sessions.feeds, runs[0])
    if runs[1].count < profiled_due:
        _lap(sessions.traced, sessions.feeds, runs[1])


def _lap(session: Session, feeds: Operands, runs: Recorder) -> None:
    start_ns = time.perf_counter_ns()
    run(session, feeds)
    runs.record(start_ns, time.perf_counter_ns())


def conclude(plain: Recorder, profiled: Recorder, warmup: int, trace_file: Path, cold: ColdStart) -> Measurement:
    """Find the steady part of the runs, and which runs of the trace are sound.

    Without a steady part all runs after the warm-up count. Profiled runs count from the same moment on; where none of
    these is sound, from the warm-up on.
    """
    steady = steady_state(plain.latencies_us)
    recorded, failure = _read(trace_file)
    kept = sound_runs(recorded, Series(profiled, 0).clocks)
    cut = max(warmup, steady.start_index or 0)
    cuts = [int(np.searchsorted(profiled.starts_s, plain.starts_s[first])) for first in (cut, warmup)]
    profiled_cut = next((first for first in cuts if any(kept[first:])), cuts[-1])
    return Measurement(
        Series(plain, cut),
        Series(profiled, profiled_cut),
        keep_runs(recorded, kept),
        recorded,
        trace_file,
        kept,
        steady,
        cold,
        failure,
        _lacks(recorded, kept, profiled.count),
    )


def _read(trace_file: Path) -> tuple[Trace, str]:
    """The trace, and why there is none: the disk was full, or the runtime crashed while it wrote."""
    try:
        return read_trace(trace_file, partial=True), ""
    except PipelineError as error:
        return Trace({}, 0, 0), str(error)


def _lacks(trace: Trace, kept: Sequence[bool], profiled_count: int) -> tuple[str, ...]:
    """What the trace is short of."""
    lacks = []
    if 0 < trace.run_count < profiled_count:
        lacks.append(f"the trace holds {trace.run_count} of {profiled_count} profiled runs ({trace.cut})")
    spoiled = [str(index) for index, is_kept in enumerate(kept[:profiled_count]) if not is_kept]
    if spoiled:
        lacks.append(f"the clock jumped during profiled runs {', '.join(spoiled)}; they are left out of the nodes")
    return tuple(lacks)

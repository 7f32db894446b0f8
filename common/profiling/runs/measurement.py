"""The measurement: its runs, which of them count, and which of them the trace times reliably."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import numpy as np

from common.latency.dependence import Samples
from common.latency.recorder import Recorder
from common.latency.run import NodeSpan, RunSeries
from common.latency.slow_runs import slow_limit_us
from common.latency.steady_state import SteadyState, steady_state
from common.messages.errors import PipelineError
from common.profiling.fused_graph import complete_executed_graph
from common.profiling.runs.loop import ColdStart, EndedSession, Runs
from common.profiling.trace.nesting import Bodies
from common.profiling.trace.reader import NodeTrace, Trace, keep_runs, read_trace
from common.profiling.trace.timeline import RunClock, run_timelines, sound_runs
from common.runtime.providers.provider_check import SHAPE_DTYPES, SHAPE_ELEMENTS, SHAPE_OPERATORS, refuse
from common.runtime.providers.provider_table import CPU, find_provider
from common.runtime.sessions.session import SessionSettings


@dataclass(frozen=True, slots=True)
class Series:
    """Runs of one session; the first ``warmup_count`` are in no statistic."""

    runs: Recorder
    warmup_count: int

    @property
    def counted_us(self) -> Samples:
        """Latencies of the stored runs that count."""
        return self.runs.latencies_us[self.warmup_count :]

    def counted(self, *, is_profiled: bool) -> RunSeries:
        first, runs = self.warmup_count, self.runs
        indices = np.arange(first, runs.stored_count)
        return RunSeries(is_profiled, indices, runs.starts_s[first:], runs.latencies_us[first:])

    @property
    def clocks(self) -> list[RunClock]:
        """Start in s and latency in µs of each stored run."""
        return list(zip(self.runs.starts_s.tolist(), self.runs.latencies_us.tolist(), strict=True))

    @property
    def sample_count(self) -> int:
        return self.runs.count - self.warmup_count


@dataclass(frozen=True, slots=True)
class SessionRuns:
    """The stored unprofiled runs of a further session; the first ``warmup_count`` are in no statistic."""

    starts_s: Samples  # on the clock of ``time.perf_counter``, which all processes of a host share
    latencies_us: Samples
    warmup_count: int
    failure: str = ""  # why the runs ended early; empty if they did not

    @property
    def counted_us(self) -> Samples:
        return self.latencies_us[self.warmup_count :]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Unprofiled and profiled runs, with the trace of the profiled ones."""

    plain: Series
    profiled: Series
    trace: Trace  # the kept runs of the trace; a lost trace has no nodes
    recorded: Trace
    trace_file: Path
    # For each run in ``recorded``, whether ``trace`` has it; a jump of the wall clock spoils the run's times in the
    # trace, not its latency
    kept: tuple[bool, ...]
    steady: SteadyState
    cold: ColdStart
    settings: SessionSettings
    failure: str = ""  # why the measurement ended early; empty if it did not
    lacks: tuple[str, ...] = ()
    # The naming of the nodes of bodies; see :func:`common.profiling.trace.reader.read_trace`
    bodies: Bodies = field(default_factory=dict)
    more: tuple[SessionRuns, ...] = ()  # further sessions, each of which had a process of its own
    is_alternating: bool = True  # whether the profiled runs were made between the unprofiled ones, and not after them

    def failed(self, error: PipelineError) -> Measurement:
        """Return the measurement with a failure, unless it already has one."""
        return replace(self, failure=self.failure or str(error))

    @property
    def start_s(self) -> float:
        """Start of the first run in s, on the clock of ``time.perf_counter``."""
        return float(self.plain.runs.starts_s[0])

    @property
    def observed_count(self) -> int:
        """Runs while sensors and counters were on: those of both sessions, if they took turns."""
        return self.plain.runs.count + (self.profiled.runs.count if self.is_alternating else 0)

    @property
    def sessions_us(self) -> list[Samples]:
        """The unprofiled runs of each session that count."""
        return [self.plain.counted_us, *(session.counted_us for session in self.more)]

    @property
    def profiled_warmup(self) -> int:
        """Warm-up runs at the start of the trace."""
        return sum(self.kept[: self.profiled.warmup_count])

    def renamed(self, bodies: Bodies) -> Measurement:
        """Tell apart the nodes of bodies to which the runtime gave one name; see :func:`read_trace`."""
        if not bodies:
            return self
        trace = keep_runs(read_trace(self.trace_file, bodies, partial=True), self.kept)
        return replace(self, trace=trace, bodies=bodies)

    def timelines(self, runs: Collection[int]) -> dict[int, tuple[NodeSpan, ...]]:
        """Return when each node ran in some profiled runs; runs that the trace lacks or times wrongly are left out."""
        if not runs or not self.recorded.nodes:
            return {}
        return run_timelines(self.trace_file, self.recorded, self.profiled.clocks, runs, self.bodies)


def observed_runs(measurement: Measurement) -> tuple[RunSeries, RunSeries]:
    """Return every stored run after the warm-up, unprofiled and profiled; only slow profiled runs have node spans.

    Node spans are left out of the other runs because reading them parses all events of the run.
    """
    profiled = measurement.profiled.counted(is_profiled=True)
    slow = profiled.where(profiled.latencies_us > slow_limit_us(profiled.latencies_us))
    spans = measurement.timelines({*slow.run_indices.tolist()})
    return measurement.plain.counted(is_profiled=False), replace(profiled, node_spans=spans)


def conclude(ended: EndedSession, runs: Runs) -> Measurement:
    """Find the steady part of the runs and the sound runs of the trace.

    Without a steady part all runs after the warm-up count. Profiled runs count from the same moment on; if none of
    these is sound, they count from the end of the warm-up on. If they came after the unprofiled runs, they count from
    the end of their own warm-up on. PipelineError: nodes ran on another provider than the one asked for.
    """
    steady, provider = steady_state(runs.plain.latencies_us), ended.settings.provider
    recorded, lost = _read(ended.trace_file)
    require_provider(recorded, provider)
    if recorded.nodes:
        complete_executed_graph(ended.executed, ended.assigned, provider, recorded)
    kept = sound_runs(recorded, Series(runs.profiled, 0).clocks)
    cut = max(runs.warmup, steady.start_index or 0)
    moments = [int(np.searchsorted(runs.profiled.starts_s, runs.plain.starts_s[first])) for first in (cut, runs.warmup)]
    cuts = moments if runs.profiled_warmup is None else [runs.profiled_warmup]
    return Measurement(
        plain=Series(runs.plain, cut),
        profiled=Series(runs.profiled, next((first for first in cuts if any(kept[first:])), cuts[-1])),
        trace=keep_runs(recorded, kept),
        recorded=recorded,
        trace_file=ended.trace_file,
        kept=kept,
        steady=steady,
        cold=runs.cold,
        settings=ended.settings,
        failure=runs.failure or lost,
        lacks=tuple(_lacks(recorded, kept, runs.profiled.count)),
        is_alternating=runs.profiled_warmup is None,
    )


def _read(trace_file: Path) -> tuple[Trace, str]:
    """Read the trace, or say why there is none: the disk was full, or the runtime crashed while writing."""
    try:
        return read_trace(trace_file, partial=True), ""
    except PipelineError as error:
        return Trace({}, 0, 0), str(error)


def _lacks(trace: Trace, kept: Sequence[bool], profiled_count: int) -> Iterator[str]:
    if 0 < trace.run_count < profiled_count:
        yield f"the trace holds {trace.run_count} of {profiled_count} runs ({trace.cut}); was the disk full?"
    spoiled = [str(index) for index, is_kept in enumerate(kept[:profiled_count]) if not is_kept]
    if spoiled:
        yield f"the clock jumped during profiled runs {', '.join(spoiled)}; they are left out of the nodes"


def require_provider(trace: Trace, provider: str) -> None:
    """Refuse a trace in which other providers than the requested one ran nodes; the PipelineError names them."""
    left = {node.name for node in left_on_cpu(trace, provider)}
    others = (node for node in trace.nodes.values() if node.provider != provider and node.name not in left)
    refuse(provider, ((node.name, node.op_type, node.provider) for node in others))


def left_on_cpu(trace: Trace, provider: str) -> list[NodeTrace]:
    """List the shape arithmetic that the runtime keeps on the CPU for a provider by design."""
    row = find_provider(provider)
    if row is None or not row.leaves_shapes:
        return []
    return [node for node in trace.nodes.values() if node.provider == CPU and _is_shape_arithmetic(node)]


def _is_shape_arithmetic(node: NodeTrace) -> bool:
    few = all(prod(shape) <= SHAPE_ELEMENTS for shape in node.output_shapes)
    return few and node.op_type in SHAPE_OPERATORS and set(node.output_dtypes) <= SHAPE_DTYPES

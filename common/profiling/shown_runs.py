"""When each node of some profiled runs ran, for a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.latency.run import NodeSpan
from common.profiling.timeline import RunClock, run_timelines
from common.profiling.trace import read_trace


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A profiled run with its nodes; ``role`` says why it is shown: first, median, slowest, or nothing."""

    run_index: int
    role: str
    spans: tuple[NodeSpan, ...]


def shown_runs(trace_file: Path, clocks: Sequence[RunClock], roles: Mapping[int, str]) -> list[ShownRun]:
    """Return the nodes of some profiled runs; a run in which the clock was set is left out.

    Args:
        trace_file: the trace of the profiled session.
        clocks: clocks of all profiled runs.
        roles: the wanted runs with their roles.

    Raises:
        PipelineError: the trace cannot be read.
    """
    timelines = run_timelines(trace_file, read_trace(trace_file, partial=True), clocks, roles)
    return [ShownRun(index, roles[index], timelines[index].spans) for index in sorted(timelines)]

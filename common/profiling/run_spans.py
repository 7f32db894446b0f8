"""When each node of some profiled runs ran."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from common.latency.run import NodeSpan
from common.profiling.nesting import Bodies
from common.profiling.timeline import RunClock, run_timelines
from common.profiling.trace import read_trace


def spans_of_runs(
    trace_file: Path, clocks: Sequence[RunClock], wanted: Collection[int], bodies: Bodies
) -> dict[int, tuple[NodeSpan, ...]]:
    """Return the nodes of some profiled runs by run index; a run in which the clock was set is left out.

    Args:
        trace_file: the trace of the profiled session.
        clocks: clocks of all profiled runs.
        wanted: indices of the wanted runs.
        bodies: see :func:`common.profiling.trace.read_trace`.

    Raises:
        PipelineError: the trace cannot be read.
    """
    timelines = run_timelines(trace_file, read_trace(trace_file, bodies, partial=True), clocks, wanted, bodies)
    return {index: timelines[index].spans for index in sorted(timelines)}

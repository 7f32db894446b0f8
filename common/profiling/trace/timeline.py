"""Align the trace's clock with the caller's: which runs the trace times reliably, when and how long each node ran.

The runtime stamps its events with the wall clock, which is set now and then (by NTP, or after a suspend). The caller
takes the time before and after each run on a clock that never jumps. Both clocks have the same rate, so one offset
converts between them until the wall clock is set. A run whose ``model_run`` is in [s, e] on the trace's clock and in
[S, E] on the caller's has an offset between e - E and s - S. If two runs have no offset in common, the clock jumped
between them. A run that fits the offsets on both sides of a jump may contain the jump.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from common.latency.dependence import Samples
from common.latency.run import NodeSpan
from common.profiling.trace.events import events_by_run
from common.profiling.trace.nesting import Bodies, Span, is_node_event, nest
from common.profiling.trace.reader import Trace, keep_runs, read_trace
from common.table_rows import OpLatencyRow, RunLatencyRow

JUMP_US = 100.0  # clocks are set by more than this; less is a difference in rate
Content = TypeVar("Content")
RunClock = tuple[float, float]  # start in s on time.perf_counter, latency in µs


@dataclass(frozen=True, slots=True)
class _Window:
    """Bounds of the offset of the trace's clock from the caller's, in µs."""

    low: float
    high: float

    def cut(self, other: _Window) -> _Window:
        return _Window(max(self.low, other.low), min(self.high, other.high))

    @property
    def width_us(self) -> float:
        """Width in µs; negative if the window is empty."""
        return self.high - self.low


def sound_runs(trace: Trace, clocks: Sequence[RunClock]) -> tuple[bool, ...]:
    """Return for each run of the trace whether its times are reliable.

    Two kinds of jumps are not found: one that is smaller than the difference between the run's latency and its
    ``model_run``, and a backward jump in the last run that is shorter than the node it hits. The clocks are those of
    every profiled run that ended, in order. A last run that failed is in the trace as well, but is not sound.
    """
    offsets = _offsets(trace, clocks)
    return tuple(run in offsets for run in range(trace.run_count))


def _offsets(trace: Trace, clocks: Sequence[RunClock]) -> dict[int, _Window]:
    """Return the offset window of each sound run, narrowed by the other runs between the same two jumps."""
    windows = {run: window for run, window in enumerate(_windows(trace, clocks)) if window.width_us >= 0}
    offsets: dict[int, _Window] = {}
    members: list[int] = []  # runs since the last jump
    for run, window in windows.items():
        common = offsets[members[-1]].cut(window) if members else window
        if common.width_us < 0:
            if common.width_us < -JUMP_US:
                # the last runs before a jump that also fit the offset after it may contain it
                while members and windows[members[-1]].cut(window).width_us >= 0:
                    del offsets[members.pop()]
            _settle(offsets, members)
            members, common = [], window
        members.append(run)
        offsets[run] = common
    _settle(offsets, members)
    return offsets


def _windows(trace: Trace, clocks: Sequence[RunClock]) -> Iterator[_Window]:
    """Yield the window of each run (times are cut to whole µs); empty if the clock visibly jumped inside."""
    runs = zip(clocks, trace.run_start_us, trace.run_duration_us, trace.run_is_orderly, strict=False)
    for (start_s, latency_us), traced_us, duration_us, is_orderly in runs:
        start_us = 1e6 * start_s
        low, high = traced_us + duration_us - start_us - latency_us, traced_us + 1 - start_us
        yield _Window(low, high) if is_orderly else _Window(0.0, -1.0)


def _settle(offsets: dict[int, _Window], members: Sequence[int]) -> None:
    """Give all runs between two jumps the window of the last one, which is the narrowest."""
    for run in members:
        offsets[run] = offsets[members[-1]]


def run_timelines(
    path: Path, trace: Trace, clocks: Sequence[RunClock], runs: Collection[int], bodies: Bodies | None = None
) -> dict[int, tuple[NodeSpan, ...]]:
    """Return when each node ran, on the clock of ``time.perf_counter``; only the wanted runs are parsed.

    The spans of a run are in the order of their starts, by the position of the run in the trace. They may all be
    shifted together by half of what its offset is unknown by. Runs in which the clock jumped are left out. The clocks
    are those of every profiled run, in order; ``bodies`` are as in :func:`common.profiling.trace.reader.read_trace`.
    """
    offsets = _offsets(trace, clocks)
    wanted = {run for run in runs if run in offsets}
    return {
        run: tuple(_placed(nest(filter(is_node_event, events), bodies), offsets[run]))
        for run, events in events_by_run(path, wanted)
    }


def _placed(spans: Iterable[Span], offset: _Window) -> Iterator[NodeSpan]:
    shift_us = (offset.low + offset.high) / 2
    for span in spans:
        start_us = span.event["ts"] - shift_us
        yield NodeSpan(span.name, start_us, start_us + span.event["dur"], span.event["tid"])


def spans_of_runs(
    trace_file: Path, clocks: Sequence[RunClock], wanted: Collection[int], bodies: Bodies
) -> dict[int, tuple[NodeSpan, ...]]:
    """Return what :func:`run_timelines` does, from the file alone; errors are those of :func:`read_trace`."""
    return run_timelines(trace_file, read_trace(trace_file, bodies, partial=True), clocks, wanted, bodies)


def node_runs(
    trace_file: Path, clocks: Sequence[RunClock], warmup: int, bodies: Bodies, corrections_us: Mapping[str, float]
) -> dict[str, Samples]:
    """Return the times in µs of every node, run by run, without the warm-up and less what profiling adds to each.

    ``bodies`` are as in :func:`read_trace`, whose errors are those here.
    """
    trace = read_trace(trace_file, bodies, partial=True)
    sound = sound_runs(trace, clocks)
    kept = keep_runs(trace, [is_sound and run >= warmup for run, is_sound in enumerate(sound)])
    return {
        name: np.maximum(np.array(node.run_us) - corrections_us.get(name, 0.0), 0.0)
        for name, node in kept.nodes.items()
    }


class ProfiledFolder(Protocol):
    def has(self, name: str) -> bool: ...

    def rows_by_name(self, name: str) -> list[Any]: ...

    def foreign(self, name: str, read: Callable[[Path], Content]) -> Content: ...


def recorded_node_runs(folder: ProfiledFolder, bodies_of: Callable[[Path], Bodies]) -> dict[str, Samples]:
    """Return the times in µs of every node of a recorded profile; none where it has no trace of ONNX Runtime.

    ``bodies_of`` reads the bodies of an executed graph, as :func:`node_runs` needs them; errors are those there.
    """
    if not all(folder.has(name) for name in ("ort_trace", "executed_graph", "op_latency")):
        return {}
    runs: list[RunLatencyRow] = folder.rows_by_name("run_latency")
    nodes: list[OpLatencyRow] = folder.rows_by_name("op_latency")
    bodies = folder.foreign("executed_graph", bodies_of)
    profiled = [row for row in runs if row["is_profiled"]]
    clocks = [(1e-6 * row["start_us"], row["latency_us"]) for row in profiled]
    warmup = sum(row["is_warmup"] for row in profiled)
    corrections_us = {row["executed_node"]: row["correction_us"] or 0.0 for row in nodes}
    return folder.foreign("ort_trace", lambda trace: node_runs(trace, clocks, warmup, bodies, corrections_us))

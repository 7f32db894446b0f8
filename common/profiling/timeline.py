"""The trace's clock against the caller's: which runs it can be trusted in, and when each node ran on the caller's.

The runtime stamps its events with the wall clock, which is set now and then (by NTP, after a suspend). The caller
takes the time before and after each run on a clock that never jumps. Both go at the same rate, so that one offset
leads from one to the other until the wall clock is set: a run whose ``model_run`` lies in [s, e] on the trace's clock
and in [S, E] on the caller's says that the offset is between e - E and s - S. Runs that leave no common offset have
a jump between them; a run that fits the offsets on both sides of a jump had it inside, or may have had.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.latency.run import NodeSpan
from common.profiling.nesting import Bodies, Span, is_node_event, nest
from common.profiling.trace import Trace
from common.profiling.trace_file import events_by_run

JUMP_US = 100.0  # what sets a clock sets it by more; less is taken for a difference in rate
RunClock = tuple[float, float]  # start in s on time.perf_counter, latency in µs


@dataclass(frozen=True, slots=True)
class _Window:
    """Where the offset of the trace's clock from the caller's lies, in µs."""

    low: float
    high: float

    def cut(self, other: _Window) -> _Window:
        return _Window(max(self.low, other.low), min(self.high, other.high))

    @property
    def width_us(self) -> float:
        """Negative where nothing is in it."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """The events of one run in the order in which they started; all may be off by ``uncertainty_us`` together."""

    run_index: int
    uncertainty_us: float
    spans: tuple[NodeSpan, ...]


def sound_runs(trace: Trace, clocks: Sequence[RunClock]) -> tuple[bool, ...]:
    """Whether the trace's times can be trusted, for each of its runs.

    What is not found: a jump of less than what the run's latency has beyond its ``model_run``, and in the last run one
    back that is shorter than the node that it hits, for no later run tells of it.

    Args:
        trace: the whole trace.
        clocks: of every profiled run that ended, in order. A last one that threw is in the trace, too: it is not sound.
    """
    offsets = _offsets(trace, clocks)
    return tuple(run in offsets for run in range(trace.run_count))


def _offsets(trace: Trace, clocks: Sequence[RunClock]) -> dict[int, _Window]:
    """Of each sound run the offset's window, narrowed by the other runs between the same two jumps."""
    windows = {run: window for run, window in enumerate(_windows(trace, clocks)) if window.width_us >= 0}
    found: dict[int, _Window] = {}
    members: list[int] = []
    for run, window in windows.items():
        common = found[members[-1]].cut(window) if members else window
        if common.width_us < 0:
            if common.width_us < -JUMP_US:
                _drop_hit(found, members, windows, window)
            _settle(found, members)
            members, common = [], window
        members.append(run)
        found[run] = common
    _settle(found, members)
    return found


def _windows(trace: Trace, clocks: Sequence[RunClock]) -> list[_Window]:
    """Of each run; start and duration are cut to whole µs each. Empty where the clock jumped inside, as far as seen."""
    windows = []
    runs = zip(clocks, trace.run_start_us, trace.run_duration_us, trace.run_is_orderly, strict=False)
    for (start_s, latency_us), traced_us, duration_us, is_orderly in runs:
        start_us = 1e6 * start_s
        low, high = traced_us + duration_us - start_us - latency_us, traced_us + 1 - start_us
        windows.append(_Window(low, high) if is_orderly else _Window(0.0, -1.0))
    return windows


def _drop_hit(found: dict[int, _Window], members: list[int], windows: Mapping[int, _Window], after: _Window) -> None:
    """Drop the last runs before a jump that may have had it inside: the offset after it suits them too."""
    while members and windows[members[-1]].cut(after).width_us >= 0:
        del found[members.pop()]


def _settle(found: dict[int, _Window], members: Sequence[int]) -> None:
    """Give all runs between two jumps what the last of them knows."""
    for run in members:
        found[run] = found[members[-1]]


def run_timelines(
    path: Path, trace: Trace, clocks: Sequence[RunClock], runs: Collection[int], bodies: Bodies | None = None
) -> dict[int, RunTimeline]:
    """When each node ran, on the clock of ``time.perf_counter``; only the events of the wanted runs are parsed.

    Args:
        path: the file of the trace.
        trace: the whole trace.
        clocks: of every profiled run, in order.
        runs: positions of the wanted runs in the trace.
        bodies: see :func:`common.profiling.trace.read_trace`.

    Returns:
        By position; runs that the clock jumped in are left out.
    """
    offsets = _offsets(trace, clocks)
    found = {}
    for run, events in events_by_run(path, {run for run in runs if run in offsets}):
        spans = nest(filter(is_node_event, events), bodies)
        found[run] = RunTimeline(run, offsets[run].width_us / 2, _placed(spans, offsets[run]))
    return found


def _placed(spans: Sequence[Span], offset: _Window) -> tuple[NodeSpan, ...]:
    shift_us = (offset.low + offset.high) / 2
    starts_us = [span.event["ts"] - shift_us for span in spans]
    return tuple(
        NodeSpan(span.name, start_us, start_us + span.event["dur"])
        for span, start_us in zip(spans, starts_us, strict=True)
    )

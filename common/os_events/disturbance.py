"""Which runs were slow, and what the operating system's events say about each.

What a run lost is the union of the intervals in which some thread of ours had no processor: two threads that lost the
same millisecond cost the run one. What the other runs of the series usually lose is in their median already, so only
what goes beyond that explains an excess. A thread that hardly ever has a processor in the other runs is left out: it is
off for longer in a longer run, and is not why that is longer. The rest is an upper bound: a thread that lost its
processor while it only spun, waiting for work, delayed nothing. That nothing was recorded is an answer too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from common.latency.run import Run
from common.latency.slow_runs import slow_limit_us
from common.os_events.events import INTERVALS, OsEvent
from common.os_events.run_events import Culprit, RunEvents, events_by_run, node_hit, union_us

STARVED_SHARE = 0.9  # of the latency: a thread that is off for so long usually does no work
LEAST_EXPLAINED_SHARE = 0.1  # below it something else must have slowed the run

Cause = Literal["other_process", "own_thread", "unnamed_process", "hypervisor", "page_fault", "none_recorded"]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A slow run and what is known of it.

    Args:
        is_profiled: which series.
        run_index: which run.
        latency_us: how long it took.
        excess_us: beyond the median of its series.
        lost_us: while some thread of ours had no processor.
        usual_lost_us: the median of that over the runs of the series that are not slow.
        explained_share: of the excess, by what was lost beyond the usual; at most 1.
        disturbance_cause: see :data:`Cause`.
        other_process: who ran instead, by the most time beyond what it usually takes; None where none is known.
        other_process_id: its number.
        other_us: while it kept at least one thread of ours off.
        processor_index: where, in the longest interval.
        thread_id: which thread of ours.
        is_main_thread: whether that is the one that calls the runtime.
        hit_node: the executed node that was hit; None for an unprofiled run, or between nodes.
        hit_us: how long that node and the intervals overlap.
        stolen_us: what the hypervisor took from all processors, in the periods that touch the run.
        major_fault_count: page faults that read a disk, in those periods.
    """

    is_profiled: bool
    run_index: int
    latency_us: float
    excess_us: float
    lost_us: float
    usual_lost_us: float
    explained_share: float
    disturbance_cause: Cause
    other_process: str | None = None
    other_process_id: int | None = None
    other_us: float | None = None
    processor_index: int | None = None
    thread_id: int | None = None
    is_main_thread: bool = False
    hit_node: str | None = None
    hit_us: float | None = None
    stolen_us: float = 0.0
    major_fault_count: int = 0


@dataclass(frozen=True, slots=True)
class _Usual:
    """What the runs of a series lose that are not slow, in µs."""

    lost_us: float
    by_culprit: Mapping[Culprit, float]


def disturbances(runs: Iterable[Run], events: Iterable[OsEvent]) -> list[Disturbance]:
    """Every slow run with what is known of it, by time.

    Args:
        runs: the measured runs of both series, which do not overlap; warm-up left out.
        events: what a recorder left.
    """
    ordered, recorded = sorted(runs, key=lambda run: run.start_s), list(events)
    found = list(zip(ordered, events_by_run(ordered, recorded), strict=True))
    is_traced = any(event.event_kind in INTERVALS for event in recorded)
    rows = []
    for is_profiled in (False, True):
        rows += _of_series([(run, near) for run, near in found if run.is_profiled == is_profiled], is_traced)
    start_s = {(run.is_profiled, run.run_index): run.start_s for run in ordered}
    return sorted(rows, key=lambda row: start_s[row.is_profiled, row.run_index])


def _of_series(series: Sequence[tuple[Run, RunEvents]], is_traced: bool) -> list[Disturbance]:
    latencies = [run.latency_us for run, _ in series]
    limit_us = slow_limit_us(latencies)
    slow = [(run, near) for run, near in series if run.latency_us > limit_us]
    if not slow:
        return []
    starved = _starved([(run, near) for run, near in series if run.latency_us <= limit_us])
    usual = _usual([near.without(starved) for run, near in series if run.latency_us <= limit_us])
    median_us = statistics.median(latencies)
    return [_explain(run, near.without(starved), run.latency_us - median_us, usual, is_traced) for run, near in slow]


def _starved(others: Sequence[tuple[Run, RunEvents]]) -> frozenset[int]:
    """Threads that are off for nearly all of a run that is not slow, in the median."""
    shares: dict[int, list[float]] = {}
    for run, near in others:
        for thread_id, intervals in near.by_thread().items():
            shares.setdefault(thread_id, []).append(union_us(intervals) / run.latency_us)
    medians = {one: statistics.median(each + [0.0] * (len(others) - len(each))) for one, each in shares.items()}
    return frozenset(thread_id for thread_id, share in medians.items() if share > STARVED_SHARE)


def _usual(others: Sequence[RunEvents]) -> _Usual:
    """Medians over the runs that are not slow; a culprit that was absent from half of them usually takes nothing."""
    times: dict[Culprit, list[float]] = {}
    for near in others:
        for culprit, intervals in near.by_culprit().items():
            times.setdefault(culprit, []).append(union_us(intervals))
    by_culprit = {one: statistics.median(us + [0.0] * (len(others) - len(us))) for one, us in times.items()}
    return _Usual(statistics.median(near.lost_us for near in others), by_culprit)


def _explain(run: Run, near: RunEvents, excess_us: float, usual: _Usual, is_traced: bool) -> Disturbance:
    share = min(1.0, max(0.0, (near.lost_us - usual.lost_us) / excess_us))
    found = near.by_culprit()
    beyond_us = {one: union_us(found[one]) - usual.by_culprit.get(one, 0.0) for one in found}
    culprit = max(found, key=lambda one: beyond_us[one], default=None)
    intervals = found[culprit] if culprit else []
    longest = max(intervals, key=lambda one: one.length_us, default=None)
    node, hit_us = node_hit(run.node_spans, intervals)
    return Disturbance(
        is_profiled=run.is_profiled,
        run_index=run.run_index,
        latency_us=run.latency_us,
        excess_us=excess_us,
        lost_us=near.lost_us,
        usual_lost_us=usual.lost_us,
        explained_share=share,
        disturbance_cause=_cause(near, culprit, share, is_traced),
        other_process=culprit.name if culprit else None,
        other_process_id=culprit.thread_id if culprit else None,
        other_us=union_us(intervals) if culprit else None,
        processor_index=longest.event.processor_index if longest else None,
        thread_id=longest.event.thread_id if longest else None,
        is_main_thread=bool(longest and longest.event.is_main_thread),
        hit_node=node,
        hit_us=hit_us if node is not None else None,
        stolen_us=near.stolen_us,
        major_fault_count=near.count("major_fault"),
    )


def _cause(near: RunEvents, culprit: Culprit | None, share: float, is_traced: bool) -> Cause:
    """What accounts for an excess: what was seen to run first, then what only counts tell."""
    if culprit is not None and share >= LEAST_EXPLAINED_SHARE:
        return "own_thread" if culprit.is_own else "other_process"
    if near.stolen_us > 0:
        return "hypervisor"
    if near.count("major_fault"):
        return "page_fault"
    if not is_traced and near.count("involuntary_switch"):
        return "unnamed_process"
    return "none_recorded"

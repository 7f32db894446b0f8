"""The events that overlap each run: whose interval it was, and which node it hit."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from common.latency.run import NodeSpan, Run
from common.os_events.events import INTERVALS, EventKind, OsEvent


@dataclass(frozen=True, slots=True)
class Culprit:
    """A thread that ran while one of ours could have."""

    name: str
    thread_id: int
    is_own: bool


@dataclass(frozen=True, slots=True)
class Interval:
    """What of an event lies in the run, in µs on the clock of ``time.perf_counter``."""

    start_us: float
    end_us: float
    event: OsEvent

    @property
    def length_us(self) -> float:
        """Its length."""
        return self.end_us - self.start_us

    @property
    def culprit(self) -> Culprit | None:
        """Who ran instead; where that was a thread of ours, who crowded both onto one processor, if anyone."""
        event = self.event
        if event.crowding_process is not None and event.crowding_process_id is not None:
            return Culprit(event.crowding_process, event.crowding_process_id, False)
        if event.other_process is None or event.other_process_id is None:
            return None
        return Culprit(event.other_process, event.other_process_id, bool(event.is_own_thread))


def union_us(intervals: Iterable[Interval], start_us: float = -math.inf, end_us: float = math.inf) -> float:
    """Length of the union from ``start_us`` to ``end_us``: what overlaps counts once."""
    total_us, reached_us = 0.0, start_us
    for interval in sorted(intervals, key=lambda one: one.start_us):
        total_us += max(0.0, min(interval.end_us, end_us) - max(interval.start_us, reached_us))
        reached_us = max(reached_us, interval.end_us)
    return total_us


@dataclass(slots=True)
class RunEvents:
    """Events that overlap one run: intervals cut to it, counts of the periods that touch it."""

    intervals: list[Interval] = field(default_factory=list)
    counts: list[OsEvent] = field(default_factory=list)

    @property
    def lost_us(self) -> float:
        """Time in which at least one thread had no processor: the union of the intervals."""
        return union_us(self.intervals)

    @property
    def stolen_us(self) -> float:
        """What the hypervisor took from all processors."""
        return sum(event.lost_us or 0.0 for event in self.counts if event.event_kind == "stolen")

    def count(self, kind: EventKind) -> int:
        """How many events of a kind."""
        return sum(event.event_count or 0 for event in self.counts if event.event_kind == kind)

    def by_thread(self) -> dict[int, list[Interval]]:
        """When each thread of ours had no processor."""
        found: dict[int, list[Interval]] = {}
        for interval in self.intervals:
            if interval.event.thread_id is not None:
                found.setdefault(interval.event.thread_id, []).append(interval)
        return found

    def without(self, thread_ids: frozenset[int]) -> RunEvents:
        """The same without the intervals of some threads."""
        return RunEvents([one for one in self.intervals if one.event.thread_id not in thread_ids], self.counts)

    def by_culprit(self) -> dict[Culprit, list[Interval]]:
        """Who ran instead, and when."""
        found: dict[Culprit, list[Interval]] = {}
        for interval in self.intervals:
            if (culprit := interval.culprit) is not None:
                found.setdefault(culprit, []).append(interval)
        return found


def node_hit(spans: Iterable[NodeSpan], intervals: Sequence[Interval]) -> tuple[str | None, float]:
    """The node that overlaps the intervals the longest, and how long in µs; None where they lie between nodes.

    A node with a body lasts at least as long as what runs in it, so of equal overlaps the shortest span is taken.
    """
    best: tuple[float, float, str | None] = (0.0, 0.0, None)
    for span in spans:
        overlap_us = union_us(intervals, span.start_us, span.end_us)
        if overlap_us > 0:
            best = max(best, (overlap_us, span.start_us - span.end_us, span.executed_node), key=lambda item: item[:2])
    return best[2], best[0]


def events_by_run(runs: Sequence[Run], events: Iterable[OsEvent]) -> list[RunEvents]:
    """The events of each run.

    Args:
        runs: by start; they do not overlap.
        events: in any order.
    """
    starts = [run.start_s for run in runs]
    found = [RunEvents() for _ in runs]
    for event in events:
        end_s = event.time_s + 1e-6 * event.duration_us
        for index in range(max(0, bisect_right(starts, event.time_s) - 1), bisect_right(starts, end_s)):
            start_us = 1e6 * max(event.time_s, runs[index].start_s)
            end_us = 1e6 * min(end_s, runs[index].end_s)
            if end_us <= start_us:
                continue
            if event.event_kind in INTERVALS:
                found[index].intervals.append(Interval(start_us, end_us, event))
            else:
                found[index].counts.append(event)
    return found

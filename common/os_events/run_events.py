"""Assignment of events to the runs that they overlap, and of lost intervals to nodes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from common.graphs.grouping import grouped
from common.latency.run import NodeSpan, Run
from common.os_events.events import INTERVALS, EventKind, OsEvent


@dataclass(frozen=True, slots=True)
class Competitor:
    """A thread that ran while a thread of this process could have run."""

    name: str
    thread_id: int
    is_own: bool


@dataclass(frozen=True, slots=True)
class LostInterval:
    """The part of an event within a run, in µs on the clock of ``time.perf_counter``."""

    start_us: float
    end_us: float
    event: OsEvent

    @property
    def length_us(self) -> float:
        return self.end_us - self.start_us

    @property
    def competitor(self) -> Competitor | None:
        """The thread that ran instead; if it is of this process, the thread that crowded both onto one processor."""
        event = self.event
        if event.crowding_process is not None and event.crowding_process_id is not None:
            return Competitor(event.crowding_process, event.crowding_process_id, False)
        if event.other_process is None or event.other_process_id is None:
            return None
        return Competitor(event.other_process, event.other_process_id, bool(event.is_own_thread))


def union_us(intervals: Iterable[LostInterval], start_us: float = -math.inf, end_us: float = math.inf) -> float:
    """Return the length of the union of intervals from ``start_us`` to ``end_us``: overlaps count once."""
    total_us, reached_us = 0.0, start_us
    for interval in sorted(intervals, key=lambda interval: interval.start_us):
        total_us += max(0.0, min(interval.end_us, end_us) - max(interval.start_us, reached_us))
        reached_us = max(reached_us, interval.end_us)
    return total_us


@dataclass(slots=True)
class RunEvents:
    """Events that overlap one run: intervals cut to the run, and counts of the periods that overlap it."""

    intervals: list[LostInterval] = field(default_factory=list)
    counts: list[OsEvent] = field(default_factory=list)

    @property
    def lost_us(self) -> float:
        """Time in which at least one thread of this process had no processor: the union of the intervals."""
        return union_us(self.intervals)

    @property
    def stolen_us(self) -> float:
        """Time that the hypervisor took from all processors."""
        return sum(event.lost_us or 0.0 for event in self.counts if event.event_kind == "stolen")

    def count(self, kind: EventKind) -> int:
        return sum(event.event_count or 0 for event in self.counts if event.event_kind == kind)

    def by_thread(self) -> dict[int, list[LostInterval]]:
        pairs = ((interval.event.thread_id, interval) for interval in self.intervals)
        return grouped((thread_id, interval) for thread_id, interval in pairs if thread_id is not None)

    def without(self, thread_ids: frozenset[int]) -> RunEvents:
        """Return these events without the intervals of some threads."""
        kept = [interval for interval in self.intervals if interval.event.thread_id not in thread_ids]
        return RunEvents(kept, self.counts)

    def by_competitor(self) -> dict[Competitor, list[LostInterval]]:
        pairs = ((interval.competitor, interval) for interval in self.intervals)
        return grouped((competitor, interval) for competitor, interval in pairs if competitor is not None)


def node_hit(spans: Iterable[NodeSpan], intervals: Sequence[LostInterval]) -> tuple[str | None, float]:
    """Return the node that overlaps the intervals the longest, and the overlap in µs; None between nodes.

    A node with a body lasts at least as long as the nodes in the body, so the shortest span of equal overlaps is taken.
    """
    best: tuple[float, float, str | None] = (0.0, 0.0, None)
    for span in spans:
        overlap_us = union_us(intervals, span.start_us, span.end_us)
        if overlap_us > 0:
            best = max(best, (overlap_us, span.start_us - span.end_us, span.executed_node), key=lambda item: item[:2])
    return best[2], best[0]


def events_by_run(runs: Iterable[Run], events: Iterable[OsEvent]) -> Iterator[RunEvents]:
    """Yield the events, given in any order, of runs that do not overlap and are ordered by start.

    A sweep over both holds the events of one run, however many runs there are.
    """
    waiting = deque(sorted(events, key=lambda event: event.time_s))
    lasting: list[OsEvent] = []
    for run in runs:
        while waiting and waiting[0].time_s < run.end_s:
            lasting.append(waiting.popleft())
        lasting = [event for event in lasting if event.end_s > run.start_s]
        yield _cut(lasting, run)


def _cut(events: Iterable[OsEvent], run: Run) -> RunEvents:
    near = RunEvents()
    for event in events:
        if event.event_kind in INTERVALS:
            start_us, end_us = 1e6 * max(event.time_s, run.start_s), 1e6 * min(event.end_s, run.end_s)
            near.intervals.append(LostInterval(start_us, end_us, event))
        else:
            near.counts.append(event)
    return near

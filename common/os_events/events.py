"""The interface of recorders of operating-system events, and the events themselves.

A recorder is a ``with`` block around the runs. It has no thread of its own, which would be one more disturbance.
Instead, the caller calls :meth:`EventRecorder.drain_if_due`, and the recorder then reads the pending events. If a run
may be timed meanwhile, use a recorder that parses the events later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from common.table_rows import OsEventsRow

EventKind = Literal[
    "preempted",
    "waited",
    "involuntary_switch",
    "voluntary_switch",
    "minor_fault",
    "major_fault",
    "stolen",
    "resident_memory",
]
INTERVALS: tuple[EventKind, ...] = ("preempted", "waited")  # a thread of this process could run and had no processor
MAX_EVENTS = 100_000
Clock = Callable[[], float]  # CLOCK_MONOTONIC in seconds
INCOMPLETE = "os_events: incomplete: "  # prefix of the notes that say which events are missing


@dataclass(frozen=True, slots=True)
class OsEvent:
    """One interval of a thread, or one count over a period; the fields are columns of os_events.

    ``preempted`` and ``waited`` are intervals in which a thread of this process could run and had no processor. The
    first begins when the thread is switched out while runnable, the second when it is woken; both end when it is
    switched in. The other kinds are counts for the process (``stolen``: for the machine) since the previous reading.
    """

    event_kind: EventKind
    time_s: float  # start, on the clock of ``time.perf_counter``
    duration_us: float
    event_count: int | None = None  # None for a kind without a number
    lost_us: float | None = None
    thread_id: int | None = None
    is_main_thread: bool | None = None  # whether the thread started the recorder and calls the runtime
    processor_index: int | None = None
    other_process: str | None = None  # of the thread that ran there for most of the interval; None if unknown
    other_process_id: int | None = None
    is_own_thread: bool | None = None
    crowding_process: str | None = None  # of a thread that held another processor for most of the interval, if any
    crowding_process_id: int | None = None
    resident_bytes: int | None = None

    @property
    def end_s(self) -> float:
        return self.time_s + 1e-6 * self.duration_us


class EventRecorder(Protocol):
    """Records events while a ``with`` block runs."""

    @property
    def is_recording(self) -> bool: ...

    @property
    def events(self) -> list[OsEvent]:
        """Events recorded so far, by time."""

    @property
    def notes(self) -> list[str]:
        """Everything that is missing, with remedies."""

    def __enter__(self) -> EventRecorder:
        """Start recording; a missing permission or facility gives a note and raises nothing."""

    def __exit__(self, *_: object) -> None:
        """Read the remaining events, stop and clean up."""

    def restart(self) -> None:
        """Discard the events recorded so far, but not the known threads: the runs begin."""

    def drain_if_due(self) -> None:
        """Read pending events if enough time has passed."""


class EventLog:
    """A bounded list of events: beyond the limit, the events with the least lost time are dropped and counted."""

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        self.dropped_count = 0
        self._limit = limit
        self._events: list[OsEvent] = []

    def extend(self, events: Iterable[OsEvent]) -> None:
        """Add events; memory stays below twice the limit."""
        self._events.extend(events)
        if len(self._events) >= 2 * self._limit:
            self._drop()

    def sorted(self) -> list[OsEvent]:
        if len(self._events) > self._limit:
            self._drop()
        return sorted(self._events, key=lambda event: event.time_s)

    def _drop(self) -> None:
        self.dropped_count += len(self._events) - self._limit
        self._events.sort(key=lambda event: event.lost_us or 0.0, reverse=True)
        del self._events[self._limit :]


def event_rows(events: Iterable[OsEvent], origin_s: float) -> Iterator[OsEventsRow]:
    """Yield a row of os_events per event; its time counts from ``origin_s`` on the clock of ``time.perf_counter``."""
    for index, event in enumerate(events):
        yield {
            "event_index": index,
            "event_kind": event.event_kind,
            "event_source": "tracefs" if event.event_kind in INTERVALS else "psutil",
            "time_us": 1e6 * (event.time_s - origin_s),
            "duration_us": event.duration_us,
            "event_count": event.event_count,
            "lost_us": event.lost_us,
            "thread_id": event.thread_id,
            "is_main_thread": bool(event.is_main_thread),  # False for an event without a thread
            "processor_index": event.processor_index,
            "other_process": event.other_process or "",
            "other_process_id": event.other_process_id,
            "is_own_thread": bool(event.is_own_thread),
            "crowding_process": event.crowding_process or "",
            "crowding_process_id": event.crowding_process_id,
            "resident_bytes": event.resident_bytes,
        }

"""What a recorder of the operating system's events is, and the rows that it leaves.

A recorder is a ``with`` block around the runs. It has no thread of its own, which would be one more disturbance: the
caller says :meth:`EventRecorder.drain_if_due` where no run is being timed, and there it reads what has gathered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol

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
INTERVALS: tuple[EventKind, ...] = ("preempted", "waited")  # a thread of ours wanted a processor and had none
TRACEFS, PSUTIL = "tracefs", "psutil"  # who records intervals, and who counts
MAX_EVENTS = 100_000
INCOMPLETE = "os_events: incomplete: "  # how a note begins that says what the events are short of


@dataclass(frozen=True, slots=True)
class OsEvent:
    """One event, or one count over a period.

    ``preempted`` and ``waited`` are intervals of one thread: the first begins when it was switched out while it could
    run, the second when it was woken; both end when it was switched in. The other kinds are counts of the process (of
    the machine for ``stolen``) since the previous reading.

    Args:
        event_kind: see above.
        time_s: start, on the clock of ``time.perf_counter``.
        duration_us: length of the interval, or of the period that a count covers.
        event_count: 1 for an interval; how many for a count; None where the kind has no count.
        lost_us: processor time that was lost: the duration of an interval; for ``stolen`` what the hypervisor took.
        thread_id: the kernel's number of our thread.
        is_main_thread: whether it is the thread that started the recorder, which calls the runtime.
        processor_index: the processor that it lost or waited for.
        other_process: name of the thread that ran there for most of the interval; None where none is known.
        other_process_id: its number.
        is_own_thread: whether that is a thread of this process too.
        crowding_process: where it is, a thread of another process that meanwhile held another processor for most of the
            interval, so that our threads had to share one; None where there is none.
        crowding_process_id: its number.
        resident_bytes: memory in use.
    """

    event_kind: EventKind
    time_s: float
    duration_us: float
    event_count: int | None = None
    lost_us: float | None = None
    thread_id: int | None = None
    is_main_thread: bool | None = None
    processor_index: int | None = None
    other_process: str | None = None
    other_process_id: int | None = None
    is_own_thread: bool | None = None
    crowding_process: str | None = None
    crowding_process_id: int | None = None
    resident_bytes: int | None = None


class EventRecorder(Protocol):
    """Records between ``__enter__`` and ``__exit__``; ``events`` and ``notes`` hold what came of it."""

    @property
    def name(self) -> str:
        """How it is recorded: ``tracefs`` or ``psutil``."""
        ...

    @property
    def is_recording(self) -> bool:
        """Whether it could start, and has not stopped."""
        ...

    @property
    def events(self) -> list[OsEvent]:
        """What was recorded so far, by time."""
        ...

    @property
    def notes(self) -> list[str]:
        """What is missing, and the remedy."""
        ...

    def __enter__(self) -> EventRecorder:
        """Start; never raises for want of a right or a facility, which is a note."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Read the rest, stop, and leave nothing behind."""
        ...

    def restart(self) -> None:
        """Forget what was recorded, but not the threads that were seen: the runs begin."""
        ...

    def drain_if_due(self) -> None:
        """Read what has gathered. To be called where nothing is being timed; returns at once while little is due."""
        ...


class EventLog:
    """Events up to a limit: beyond it those that lost the least time go, and are counted.

    Args:
        limit: events kept.
    """

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        """Start empty."""
        self.dropped_count = 0
        self._limit = limit
        self._events: list[OsEvent] = []

    def extend(self, events: Iterable[OsEvent]) -> None:
        """Add events; memory stays below twice the limit."""
        self._events.extend(events)
        if len(self._events) >= 2 * self._limit:
            self._drop()

    def sorted(self) -> list[OsEvent]:
        """What is kept, by time."""
        if len(self._events) > self._limit:
            self._drop()
        return sorted(self._events, key=lambda event: event.time_s)

    def _drop(self) -> None:
        self.dropped_count += len(self._events) - self._limit
        self._events.sort(key=lambda event: event.lost_us or 0.0, reverse=True)
        del self._events[self._limit :]

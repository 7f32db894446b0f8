"""The recorder that a stage uses: scheduler events where they can be had, and the counters always."""

from __future__ import annotations

import contextlib
from types import TracebackType

from common.os_events.events import INCOMPLETE, EventRecorder, OsEvent
from common.os_events.psutil_events import CounterRecorder
from common.os_events.tracefs import TracefsRecorder

FALLBACK_NOTE = "os_events: only counts by psutil: that something ran instead is known, who ran is not"


class OsEventRecorder:
    """Both recorders as one.

    Args:
        scheduler: reads the scheduler's events.
        counters: reads the process's counters.
    """

    def __init__(self, scheduler: EventRecorder | None = None, counters: EventRecorder | None = None) -> None:
        """Start nothing yet."""
        self._scheduler = scheduler or TracefsRecorder()
        self._counters = counters or CounterRecorder()
        self._stack = contextlib.ExitStack()
        self.name = self._counters.name

    @property
    def events(self) -> list[OsEvent]:
        """What both recorded, by time."""
        return sorted([*self._scheduler.events, *self._counters.events], key=lambda event: event.time_s)

    @property
    def notes(self) -> list[str]:
        """What both lack."""
        fallback = [FALLBACK_NOTE] if self.name == self._counters.name else []
        return [*self._scheduler.notes, *fallback, *self._counters.notes]

    @property
    def incomplete(self) -> list[str]:
        """Those of the notes that say what the events are short of."""
        return [note for note in self.notes if note.startswith(INCOMPLETE)]

    def __enter__(self) -> OsEventRecorder:
        """Start both."""
        self._stack.enter_context(self._counters)
        if self._stack.enter_context(self._scheduler).is_recording:
            self.name = self._scheduler.name
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop both."""
        self._stack.close()

    def restart(self) -> None:
        """Forget what both recorded so far: the runs begin."""
        self._scheduler.restart()
        self._counters.restart()

    def drain_if_due(self) -> None:
        """Let both read what has gathered; to be called where nothing is being timed."""
        self._scheduler.drain_if_due()
        self._counters.drain_if_due()

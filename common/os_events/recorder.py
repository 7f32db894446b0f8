"""The recorder for profiling: scheduler events where they are available, and counters always."""

from __future__ import annotations

import contextlib

from common.os_events.counters import CounterRecorder
from common.os_events.events import INCOMPLETE, EventRecorder, OsEvent
from common.os_events.tracefs import TracefsRecorder

FALLBACK_NOTE = "os_events: only counts by psutil; they show that another thread ran, but not which"


class OsEventRecorder:
    """Both recorders as one: by default those of tracefs and of psutil."""

    def __init__(self, scheduler: EventRecorder | None = None, counters: EventRecorder | None = None) -> None:
        self._scheduler = scheduler or TracefsRecorder()
        self._counters = counters or CounterRecorder()
        self._stack = contextlib.ExitStack()
        self._only_counts = True

    @property
    def events(self) -> list[OsEvent]:
        return sorted([*self._scheduler.events, *self._counters.events], key=lambda event: event.time_s)

    @property
    def notes(self) -> list[str]:
        fallback = [FALLBACK_NOTE] if self._only_counts else []
        return [*self._scheduler.notes, *fallback, *self._counters.notes]

    @property
    def incomplete(self) -> list[str]:
        """What is missing of the events."""
        return [note.removeprefix(INCOMPLETE) for note in self.notes if note.startswith(INCOMPLETE)]

    def __enter__(self) -> OsEventRecorder:
        self._stack.enter_context(self._counters)
        self._only_counts = not self._stack.enter_context(self._scheduler).is_recording
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def restart(self) -> None:
        self._scheduler.restart()
        self._counters.restart()

    def drain_if_due(self) -> None:
        self._scheduler.drain_if_due()
        self._counters.drain_if_due()

"""Slow runs with what probably delayed them, looked for every ten seconds."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np

from common.latency.run import RunSeries
from common.monitor.figures.feed import Feed
from common.os_events.disturbance import disturbance_line, disturbances
from common.os_events.recorder import OsEventRecorder

MOST_RUNS = 2000  # examined in one look, because finding what a run lost takes time for each
KEPT = 8


class SlowRuns:
    """Actions of the operating system during the runs of a feed.

    The thread of the runs enters it before the runtime makes its threads, and calls :meth:`between` between two runs.
    Another thread calls :meth:`look`.

    Attributes:
        lines: the slow runs of the last looks, newest look first, each in words.
    """

    def __init__(self, feed: Feed, recorder: OsEventRecorder | None = None) -> None:
        self._feed, self._recorder = feed, recorder or OsEventRecorder()
        self._lock = threading.Lock()
        self._seen = 0
        self.lines: deque[str] = deque(maxlen=KEPT)

    def __enter__(self) -> SlowRuns:
        self._recorder.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._recorder.__exit__(*error)

    def between(self) -> None:
        """Read pending events, where nothing is timed."""
        with self._lock:
            self._recorder.drain_if_due()

    def look(self) -> None:
        """Add the slowest of the runs since the last look, and forget their events."""
        with self._lock:
            events = self._recorder.events
            self._recorder.restart()
        ends_ns, durations_ns, count = self._feed.runs(max(self._seen, self._feed.count - MOST_RUNS))
        self._seen = count
        starts_s = (ends_ns - durations_ns) / 1e9
        series = RunSeries(False, np.arange(count - len(ends_ns), count), starts_s, durations_ns / 1e3)
        slowed = disturbances([series], events)
        worst = sorted(slowed, key=lambda row: row["excess_us"])[-KEPT:]
        self.lines.extendleft(disturbance_line(row) for row in worst)

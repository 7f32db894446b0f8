"""The state of the dashboard: it makes a tick of the latest runs and gauges, ten times a second."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np

from common.messages.errors import PipelineError
from common.monitor.figures.alarms import AlarmWatch
from common.monitor.figures.feed import Feed, Samples, cells, window_figures
from common.monitor.history import Figures, History
from common.monitor.server.hub import RATE_HZ
from common.monitor.slow_runs import SlowRuns

DIGITS = 6
POSTED_S = 10.0  # a gauge that was posted longer ago says nothing of now
LOOK_TICKS = 100  # between two looks for slow runs


@dataclass(frozen=True, slots=True)
class NodeShare:
    node: str
    op_type: str
    share: float


@dataclass(slots=True)
class LiveSource:
    """The source of the figures: a model that this process runs, or messages that another process posts."""

    model: str
    feed: Feed = field(default_factory=Feed)
    gauges: Mapping[str, float] = field(default_factory=dict)  # that the source itself gives, such as its queue's depth
    gauges_s: float = 0.0  # when it gave them, on the clock of ``time.monotonic``
    nodes: Sequence[NodeShare] = ()  # the times of its nodes, if they are known; the longest first
    failed_run_count: int = 0
    error: BaseException | None = None  # why nothing runs; None if the model runs
    is_ready: bool = False

    def newest_gauges(self) -> Mapping[str, float]:
        return self.gauges if time.monotonic() - self.gauges_s < POSTED_S else {}

    @property
    def problem(self) -> str:
        """Why nothing runs, in a line; empty if the model runs."""
        if self.error is None:
            return ""
        return str(self.error) if isinstance(self.error, PipelineError) else "the dashboard itself failed"


class Monitor:
    """Makes ticks; all methods but those of its writer run in one thread.

    Args:
        sensed: returns the newest samples of the sensors, by the keys of figures.
        derived: returns figures that follow from the runs per s of the window.
    """

    def __init__(
        self,
        source: LiveSource,
        history: History,
        watch: AlarmWatch,
        sensed: Callable[[], Figures],
        derived: Callable[[float], Figures],
        slow: SlowRuns | None = None,
    ) -> None:
        self.source, self.watch, self._slow = source, watch, slow
        self._history, self._sensed, self._derived = history, sensed, derived
        self._writer = ThreadPoolExecutor(1, "history")
        self._written: Future[None] | None = None
        self._seen = 0
        self._kept_problem = ""
        self.figures: Figures = {}  # of the newest tick, as the others
        self.active: list[str] = []
        self.newest = "{}"  # as a message

    def tick(self, number: int, own: Figures) -> str:
        """Return the next tick as JSON; a model that cannot even be loaded raises why, and a later failure is in it."""
        if self.source.error is not None and not self.source.is_ready:
            raise self.source.error
        now_s = time.time()
        durations_ns, window_s = self.source.feed.window(time.perf_counter_ns())
        ordered_ns = np.sort(durations_ns)
        gauges = self._gauges(ordered_ns, window_s, own)
        self.figures = {**gauges, **self._history.whole}
        if number % RATE_HZ == 0:
            self._keep(now_s, gauges)
        if self._slow and number % LOOK_TICKS == 0:
            self._writer.submit(self._slow.look)
        self.active = self.watch.active(now_s, self.figures)
        self.newest = json.dumps(
            {
                "tick": number,
                "time_s": round(now_s, 3),
                "model": self.source.model,
                "is_ready": self.source.is_ready,
                "problem": self.source.problem or self._kept_problem,
                "figures": {name: _short(value) for name, value in self.figures.items()},
                "cells": [[_short(low_us), count] for low_us, count in cells(ordered_ns)],
                "alarms": self.active,
                "slow_runs": [*self._slow.lines] if self._slow else [],
            },
            separators=(",", ":"),
        )
        return self.newest

    def _gauges(self, ordered_ns: Samples, window_s: float, own: Figures) -> dict[str, float | None]:
        figures = {
            **window_figures(ordered_ns, window_s),
            "failed_run_count": float(self.source.failed_run_count),
            **self._sensed(),
            **self.source.newest_gauges(),
            **own,
        }
        derived = self._derived(figures["throughput_runs_per_s"] or 0.0)
        return figures | {name: value for name, value in derived.items() if value is not None or name not in figures}

    def _keep(self, now_s: float, gauges: Figures) -> None:
        """Let the writer enter the last second; while it writes an earlier one, this second waits for the next call."""
        if self._written is not None:
            if not self._written.done():
                return
            error = self._written.exception()
            if error is not None and not isinstance(error, PipelineError):
                raise error
            self._kept_problem = str(error or "")
        durations_ns, self._seen = self.source.feed.since(self._seen)
        kept = {name: value for name, value in gauges.items() if not name.startswith("window_")}
        self._written = self._writer.submit(self._history.add, now_s, durations_ns, kept)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        """Enter the figures after the last full second, and wait for the writer."""
        if self._written is not None:
            wait([self._written])
        self._keep(time.time(), {})
        self._writer.shutdown()


def enter(source: LiveSource, durations_us: list[float], failed: int, gauges: Mapping[str, float]) -> None:
    """Enter a message of another process: latencies, failed runs, and gauges by the names of figures."""
    now_ns = time.perf_counter_ns()
    for duration_us in durations_us:
        source.feed.record(now_ns, round(1e3 * duration_us))
    source.failed_run_count += failed
    source.gauges = {**source.newest_gauges(), **gauges}
    source.gauges_s = time.monotonic()
    source.is_ready = True


def _short(value: float | None) -> float | None:
    """Return a figure with its significant digits."""
    return None if value is None else float(f"{value:.{DIGITS}g}")

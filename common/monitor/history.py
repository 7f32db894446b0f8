"""The stored figures: those of each second, those of its 10 s and of its minute, and those of the whole.

A percentile of a minute is not the mean of 60 percentiles: runs are counted in a histogram per step, and the figures
are those of the histogram. Gauges are means over the seconds of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from common.latency.histogram import Histogram
from common.latency.statistics import QUANTILES
from common.monitor.figures.feed import Samples, whole_figures
from common.monitor.store import LEVELS_S, Store
from common.table_rows import DashboardSummaryDocument

Figures = Mapping[str, float | None]
DIGITS = 6  # significant ones of a stored figure
NEWEST = 10_000  # runs that say how much neighbours depend on each other
FIGURES = (
    *(f"{name}{end}_us" for name in QUANTILES for end in ("", "_low", "_high")),
    *("mean_us", "jitter_us", "min_us", "max_us"),
)


@dataclass(slots=True)
class Stretch:
    """A stretch of time that is going on: its number, its runs, and the sums of its gauges."""

    number: int
    runs: Histogram = field(default_factory=Histogram)
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, runs: Histogram, gauges: Figures) -> None:
        self.runs.merge(runs)
        for name, value in gauges.items():
            if value is not None:
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.counts[name] = self.counts.get(name, 0) + 1

    def figures(self) -> dict[str, float | None]:
        """Return what is stored of it; unknown figures are left out."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        known = {name: value for name, value in whole_figures(self.runs).items() if value is not None}
        return {name: float(f"{value:.{DIGITS}g}") for name, value in {**known, **means}.items()}


class History:
    """Writes each second of a run of the monitor.

    Attributes:
        whole: figures of all runs, as of the last second.
    """

    def __init__(self, store: Store, run_id: int) -> None:
        self._store, self._run_id = store, run_id
        self._all, self._newest_ns = Histogram(), np.empty(0, np.int64)
        self._steps: dict[int, Stretch] = {}
        self._forgot_s = 0.0
        self.whole: dict[str, float | None] = {}

    def add(self, time_s: float, durations_ns: Samples, gauges: Figures) -> None:
        """Enter the runs and the gauges of a second; called from one thread.

        Raises:
            PipelineError: the database does not take them.
        """
        second = Histogram()
        second.add(durations_ns)
        self._all.merge(second)
        self._newest_ns = np.concatenate([self._newest_ns, durations_ns])[-NEWEST:]
        self.whole = {f"whole_{name}": value for name, value in whole_figures(self._all).items()}
        for length_s in LEVELS_S:
            number = int(time_s) // length_s
            if length_s not in self._steps or self._steps[length_s].number != number:
                self._steps[length_s] = Stretch(number)  # the last one has ended
            self._steps[length_s].add(second, gauges)
        rows = {length_s: step.figures() for length_s, step in self._steps.items()}
        self._store.add(self._run_id, time_s, self._all.count, rows)
        if time_s - self._forgot_s >= 60:
            self._forgot_s = time_s
            self._store.forget(time_s)

    def summary(self) -> DashboardSummaryDocument:
        """Return figures of all runs until now, percentiles with their limits at 95 % confidence.

        Neighbouring runs depend on each other; the newest ones say how much.
        """
        runs = self._all
        known = runs.figures(self._newest_ns / 1e3) if runs.count else dict.fromkeys(FIGURES)
        named = {name: known[name] for name in FIGURES}
        return cast("DashboardSummaryDocument", {"run_count": runs.count, **named})

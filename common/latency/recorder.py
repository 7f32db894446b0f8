"""Storage for the loop of runs: start and duration of each run, in memory allocated before the first run."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from common.latency.dependence import Samples
from common.latency.histogram import Histogram
from common.latency.statistics import figures

CAPACITY = 1 << 20


class Recorder:
    """Runs on the clock of ``time.perf_counter_ns``: the first ``capacity`` one by one, later ones as counts.

    ``record`` is called between two runs, so it only stores two numbers (`python -m benchmarks.measuring.recorder`
    measures it). Storing a number in an array of the standard library costs half as much as in numpy's. Filling the
    arrays here touches their pages, so that no page fault occurs in a run.
    """

    __slots__ = ("_durations_ns", "_starts_ns", "beyond", "capacity", "count")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.count = 0
        self.beyond = Histogram()  # runs after the first ``capacity``
        self._starts_ns = array("q", [0]) * capacity
        self._durations_ns = array("q", [0]) * capacity

    def record(self, start_ns: int, end_ns: int) -> None:
        index = self.count
        if index < self.capacity:
            self._starts_ns[index] = start_ns
            self._durations_ns[index] = end_ns - start_ns
        else:
            self.beyond.record(end_ns - start_ns)
        self.count = index + 1

    @property
    def stored_count(self) -> int:
        return min(self.count, self.capacity)

    @property
    def starts_s(self) -> Samples:
        """Start of each stored run in s, on the clock of ``time.perf_counter``."""
        return self._stored(self._starts_ns) / 1e9

    @property
    def latencies_us(self) -> Samples:
        """Duration of each stored run in µs."""
        return self._stored(self._durations_ns) / 1e3

    def figures(self, first: int = 0) -> dict[str, float | None]:
        """Return percentiles, mean, deviation (``jitter``), ``min_us`` and ``max_us`` of the runs from ``first`` on.

        Stored runs give exact figures. If there are more runs than stored, percentiles come by rank from the histogram
        of all runs. The limits of the mean and the deviation then are those of the stored runs, narrowed by the square
        root of the ratio of the counts.
        """
        latencies_us = self.latencies_us[first:]
        if self.count > self.capacity:
            return self.histogram(first).figures(latencies_us)
        return figures(latencies_us)

    def histogram(self, first: int = 0) -> Histogram:
        """Make a histogram of every run from ``first`` on, stored or not."""
        merged = Histogram()
        merged.add(self._stored(self._durations_ns)[first:])
        merged.merge(self.beyond)
        return merged

    def _stored(self, numbers: array[int]) -> npt.NDArray[np.int64]:
        return np.frombuffer(numbers, dtype=np.int64)[: self.stored_count]

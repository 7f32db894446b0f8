"""Runs as they end: the newest in a ring, all of them in histograms, and the figures of a window and of the whole."""

from __future__ import annotations

import math
from array import array
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from common.latency.histogram import Histogram
from common.latency.statistics import CONFIDENCE, QUANTILES

WINDOW_S = 10.0
CAPACITY = 1 << 14  # runs of a window; a model of more than 1,638 runs/s has a shorter one
CELLS_PER_DOUBLING = 4
Samples = npt.NDArray[np.int64]
# No percentile without a run above it: the largest of n is above the q-quantile with probability 1 - q^n.
LEAST_RUNS = {name: math.ceil(math.log(1 - CONFIDENCE) / math.log(quantile)) for name, quantile in QUANTILES.items()}


class Feed:
    """Runs of one source. One thread records, another one reads; neither waits for the other.

    Attributes:
        count: runs so far.
    """

    __slots__ = ("_durations_ns", "_ends_ns", "count")

    def __init__(self) -> None:
        self._ends_ns = array("q", [0]) * CAPACITY
        self._durations_ns = array("q", [0]) * CAPACITY
        self.count = 0

    def record(self, end_ns: int, duration_ns: int) -> None:
        """Enter a run by its end, on the clock of ``time.perf_counter_ns``, and its duration."""
        place = self.count % CAPACITY
        self._ends_ns[place] = end_ns
        self._durations_ns[place] = duration_ns
        self.count += 1

    def since(self, first: int) -> tuple[Samples, int]:
        """Return the durations from a run on, as far as they are kept, and how many runs there are now."""
        _, durations_ns, count = self.runs(first)
        return durations_ns, count

    def window(self, now_ns: int, window_s: float = WINDOW_S) -> tuple[Samples, float]:
        """Return the durations of the runs that ended within a window, and its length in s.

        The window begins with the oldest run that is kept where that is younger, and with the first run of all.
        """
        ends_ns, durations_ns, count = self.runs(0)
        first = int(np.searchsorted(ends_ns, now_ns - round(window_s * 1e9)))
        if first or not len(ends_ns):
            return durations_ns[first:], window_s
        began_ns = int(ends_ns[0] if count > len(ends_ns) else ends_ns[0] - durations_ns[0])
        return durations_ns, min(window_s, max((now_ns - began_ns) / 1e9, 1e-9))

    def runs(self, first: int) -> tuple[Samples, Samples, int]:
        """Return ends and durations from a run on, oldest first, and how many runs there are now.

        Runs that are overwritten while they are copied are left out, and so is the place that may be written right now.
        """
        count = self.count
        first = max(first, count - CAPACITY)
        places = np.arange(first, count) % CAPACITY
        ends_ns, durations_ns = (
            np.frombuffer(numbers, dtype=np.int64)[places] for numbers in (self._ends_ns, self._durations_ns)
        )
        lost = max(0, self.count + 1 - CAPACITY - first)
        return ends_ns[lost:], durations_ns[lost:], count


def window_figures(ordered_ns: Samples, window_s: float) -> dict[str, float | None]:
    """Return percentiles, mean, jitter and throughput of a window, whose durations come the shortest first.

    A percentile without a run above it is None.
    """
    count = len(ordered_ns)
    return {
        **{
            f"window_{name}_us": _quantile_us(ordered_ns, QUANTILES[name]) if count >= least else None
            for name, least in LEAST_RUNS.items()
        },
        "window_mean_us": float(ordered_ns.mean()) / 1e3 if count else None,
        "window_jitter_us": float(ordered_ns.std(ddof=1)) / 1e3 if count > 1 else None,
        "window_max_us": float(ordered_ns[-1]) / 1e3 if count else None,
        "window_run_count": float(count),
        "throughput_runs_per_s": count / window_s,
    }


def _quantile_us(ordered_ns: Samples, quantile: float) -> float:
    """Return a quantile in µs, linear between two runs as numpy has it, which would partly sort the runs again."""
    place = quantile * (len(ordered_ns) - 1)
    below, above = ordered_ns[math.floor(place)], ordered_ns[math.ceil(place)]
    return float(below + (above - below) * (place % 1)) / 1e3


def whole_figures(histogram: Histogram) -> dict[str, float | None]:
    """Return percentiles, mean and jitter of everything that a histogram has counted; as above, None is unknown."""
    count, names = histogram.count, [name for name, least in LEAST_RUNS.items() if histogram.count >= least]
    values = histogram.quantiles_us([QUANTILES[name] for name in names]) if names else []
    return {
        **{f"{name}_us": None for name in LEAST_RUNS},
        **{f"{name}_us": value for name, value in zip(names, values, strict=True)},
        "mean_us": histogram.mean_us if count else None,
        "jitter_us": histogram.deviation_us,
        "max_us": histogram.max_ns / 1e3 if count else None,
        "run_count": float(count),
    }


def cells(ordered_ns: Samples) -> list[tuple[float, int]]:
    """Return a histogram to draw: the lower end in µs and the count of each cell, four cells per doubling.

    Cells between the first and the last one that hold nothing are there, too. Durations come the shortest first.
    """
    if not len(ordered_ns):
        return []
    first, last = (math.floor(math.log2(max(end_ns, 1)) * CELLS_PER_DOUBLING) for end_ns in ordered_ns[[0, -1]])
    edges_ns = 2.0 ** (np.arange(first, last + 2) / CELLS_PER_DOUBLING)
    ends = [0, *np.searchsorted(ordered_ns, edges_ns[1:-1]).tolist(), len(ordered_ns)]
    counts = (above - below for below, above in pairwise(ends))
    return [*zip((edges_ns[:-1] / 1e3).tolist(), counts, strict=True)]

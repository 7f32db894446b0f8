"""A histogram of latencies: 0.4 MB for any number of runs, values within 0.05 %.

The cells are those of an HDR histogram (G. Tene): 1 ns wide up to 2,047 ns, then 1,024 cells per doubling up to 63
bits, so there is no range to choose. A value is read as the middle of its cell, so it is off by at most 1/2,048.

The package ``hdrhistogram`` (0.10.8) is maintained and correct, but was not taken. It needs twice as long to record a
value and reads the upper end of a cell (up to 0.095 % off). It reads by percentage only, but limits from order
statistics need ranks. Its mean and deviation are those of the cells, not of the values.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from common.latency.dependence import Dependence, Samples
from common.latency.statistics import (
    QUANTILES,
    Estimate,
    dependent_ranks,
    deviation_of_sums,
    estimate_columns,
    limit_ranks,
    mean_and_deviation,
    percentile_columns,
    quantile_factor,
)

SUB_BUCKET_BITS = 10
SUB_BUCKETS = 1 << SUB_BUCKET_BITS
CELLS = (64 - SUB_BUCKET_BITS) * SUB_BUCKETS  # for values of 63 bits, without the sign


def cells_of(durations_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the cell of each duration of at most 2^53 ns, as :meth:`Histogram.record` finds it."""
    bit_lengths = np.frexp(durations_ns.astype(np.float64))[1]
    shifts = np.maximum(0, bit_lengths - SUB_BUCKET_BITS - 1).astype(np.int64)
    return np.asarray((shifts << SUB_BUCKET_BITS) + (durations_ns >> shifts))


class Histogram:
    """Counts of durations in ns; count, minimum, maximum, mean and deviation are exact."""

    __slots__ = ("_cells", "_squares_ns2", "_sum_ns", "count", "max_ns", "min_ns")

    def __init__(self) -> None:
        self._cells = array("q", [0]) * CELLS
        self._sum_ns = self._squares_ns2 = 0  # Python's integers do not overflow
        self.count = 0
        self.min_ns = self.max_ns = 0

    def record(self, duration_ns: int) -> None:
        """Count one duration; IndexError: it takes more than 63 bits; ValueError: it is negative."""
        if duration_ns < 0:
            raise ValueError(f"a duration of {duration_ns} ns")
        shift = max(0, duration_ns.bit_length() - SUB_BUCKET_BITS - 1)
        self._cells[(shift << SUB_BUCKET_BITS) + (duration_ns >> shift)] += 1
        self._sum_ns += duration_ns
        self._squares_ns2 += duration_ns * duration_ns
        if duration_ns > self.max_ns:  # noqa: PLR1730 - half the cost of max()
            self.max_ns = duration_ns
        if duration_ns < self.min_ns or not self.count:
            self.min_ns = duration_ns
        self.count += 1

    def add(self, durations_ns: npt.NDArray[np.int64]) -> None:
        """Count a whole series; errors are those of :meth:`record`."""
        for duration_ns in durations_ns.tolist():
            self.record(duration_ns)

    def merge(self, other: Histogram) -> None:
        """Count everything that another one has counted."""
        if not other.count:
            return
        cells = np.frombuffer(self._cells, dtype=np.int64)
        cells += np.frombuffer(other._cells, dtype=np.int64)
        self.min_ns = min(self.min_ns, other.min_ns) if self.count else other.min_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        self._sum_ns += other._sum_ns
        self._squares_ns2 += other._squares_ns2
        self.count += other.count

    @property
    def mean_us(self) -> float:
        return self._sum_ns / self.count / 1e3

    @property
    def deviation_us(self) -> float | None:
        """Sample standard deviation in µs; one duration has none."""
        return deviation_of_sums(self.count, self._sum_ns, self._squares_ns2, 1e-3)

    def figures(self, stored: Samples) -> dict[str, float | None]:
        """Return the fields of :func:`common.latency.statistics.figures` for everything that was counted.

        Args:
            stored: some of the counted runs, in order, in µs; they say how much neighbours depend on each other, and
                give the limits of the mean and the deviation.
        """
        narrower = math.sqrt(len(stored) / self.count)
        series = Dependence(stored)
        mean, jitter = mean_and_deviation(series)
        estimates = {
            name: self.dependent_percentile_us(quantile, quantile_factor(series, quantile))
            for name, quantile in QUANTILES.items()
        }
        return {
            **percentile_columns(estimates),
            **estimate_columns("mean", mean.about(self.mean_us, narrower)),
            **estimate_columns("jitter", jitter.about(self.deviation_us, narrower)),
            "min_us": self.min_ns / 1e3,
            "max_us": self.max_ns / 1e3,
        }

    def dependent_percentile_us(self, quantile: float, factor: float) -> Estimate:
        """Estimate a quantile in µs whose limits are those of fewer independent durations, by their variance factor."""
        estimate = self.percentile_us(quantile)
        if estimate.value is None:
            return estimate
        ranks = dependent_ranks(self.count, quantile, factor)
        low, high = (self._at_ranks([rank])[0] if rank else None for rank in ranks)
        return Estimate(estimate.value, low, high)

    def percentile_us(self, quantile: float) -> Estimate:
        """Estimate a quantile in µs from the cells; see :func:`common.latency.statistics.percentile`."""
        lower, upper = limit_ranks(self.count, quantile)
        if upper is None:
            return Estimate()
        position = quantile * (self.count - 1)
        rank = int(position)
        below, above, low, high = self._at_ranks([rank + 1, min(rank + 2, self.count), max(lower, 1), upper])
        return Estimate(below + (position - rank) * (above - below), low if lower else None, high)

    def quantiles_us(self, quantiles: Sequence[float]) -> list[float]:
        """Return the values in µs at the nearest ranks of quantiles, without limits; there must be values."""
        return self._at_ranks([max(1, math.ceil(quantile * self.count)) for quantile in quantiles])

    def _at_ranks(self, ranks: list[int]) -> list[float]:
        """Return the values in µs at the given ranks; rank 1 is the smallest value."""
        cumulative = np.cumsum(np.frombuffer(self._cells, dtype=np.int64))
        cells = np.searchsorted(cumulative, ranks)
        shifts = np.maximum(cells // SUB_BUCKETS - 1, 0)
        middles_ns = ((cells - shifts * SUB_BUCKETS).astype(float) + 0.5) * 2.0**shifts - 0.5
        return [float(value) for value in np.clip(middles_ns, self.min_ns, self.max_ns) / 1e3]

"""Percentiles, mean and deviation of a series with the confidence that so many samples allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95  # of each limit
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
DRAWS = 1000
MOST_BLOCKS = 1000
LEAST_SAMPLES = 10  # for limits of the mean
BINOMIAL_REACH = 12  # standard deviations; what lies beyond has a probability below 1e-20

Samples = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its limits, each of 95 % confidence; None is what so few samples do not tell."""

    value: float | None
    low: float | None
    high: float | None

    def about(self, value: float | None, narrower: float) -> Estimate:
        """The estimate of a longer series: around its own value, with limits as much narrower, in proportion."""
        if not value or not self.value or not self.low or not self.high:
            return Estimate(value, None, None)
        low, high = (value * (limit / self.value) ** narrower for limit in (self.low, self.high))
        return Estimate(value, low, high)


def percentile(samples: Samples, quantile: float) -> Estimate:
    """Quantile of a series with distribution-free limits; all None without an upper one. See :func:`limit_ranks`."""
    ordered = np.sort(samples)
    lower, upper = limit_ranks(len(ordered), quantile)
    if upper is None:
        return Estimate(None, None, None)
    low = float(ordered[lower - 1]) if lower else None
    return Estimate(float(np.quantile(ordered, quantile)), low, float(ordered[upper - 1]))


def limit_ranks(count: int, quantile: float) -> tuple[int, int | None]:
    """Ranks, 1 the smallest, of the samples that are the q-quantile's limits, each of 95 % confidence.

    The j-th smallest of n samples is at or above the q-quantile with probability P(Binomial(n, q) < j), whatever the
    distribution (David & Nagaraja 2003, Order Statistics, section 7.1). p99 needs 299 samples, p99.9 needs 2,995.
    The lower rank is 0, or the upper one None, where no sample is so sure.
    """
    first, masses = _binomial(count, quantile)
    below = np.cumsum(masses)  # below[j - first] = P(Binomial <= j)
    upper = first + int(np.searchsorted(below, CONFIDENCE)) + 1  # smallest j with P(Binomial < j) >= confidence
    # The largest i with P(Binomial >= i) >= confidence.
    lower = first + int(np.searchsorted(below, 1 - CONFIDENCE, side="right"))
    return lower, upper if upper <= count else None


def _binomial(count: int, probability: float) -> tuple[int, Samples]:
    """The first k, and P(Binomial(count, probability) = k) from there as far as it is above 1e-20.

    Each is its neighbour times (count - k) / (k + 1) · p / (1 - p), added up in logarithms, and all add up to 1.
    """
    mean = count * probability
    reach = BINOMIAL_REACH * (math.sqrt(mean * (1 - probability)) + BINOMIAL_REACH / 2)
    first, last = max(0, math.floor(mean - reach)), min(count, math.ceil(mean + reach))
    k = np.arange(first, last)
    steps = np.log((count - k) / (k + 1)) + math.log(probability / (1 - probability))
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    masses = np.exp(logs - logs.max())
    return first, masses / masses.sum()


def percentiles(samples: Samples) -> dict[str, float | None]:
    """``p50_us``, ``p50_low_us``, ``p50_high_us`` and so on for every quantile of ``QUANTILES``."""
    ordered = np.sort(samples)
    return percentile_columns({name: percentile(ordered, quantile) for name, quantile in QUANTILES.items()})


def percentile_columns(found: dict[str, Estimate]) -> dict[str, float | None]:
    """Each percentile under the three names that the tables have for it."""
    result: dict[str, float | None] = {}
    for name, each in found.items():
        result |= {f"{name}_us": each.value, f"{name}_low_us": each.low, f"{name}_high_us": each.high}
    return result


def mean_and_deviation(samples: Samples) -> tuple[Estimate, Estimate]:
    """Mean and sample standard deviation of a series in the order of its runs, with bootstrap limits.

    Whole blocks of neighbours are drawn (Künsch 1989), because neighbours are alike; the limits are bias-corrected and
    accelerated (Efron & Tibshirani 1993, chapter 14), because latencies are skewed. A studentized bootstrap covers a
    little better but has no end once one slow run makes half of the variance. The draws are seeded: the same series
    has the same limits. Fewer than ``LEAST_SAMPLES`` have none.
    """
    mean, std = float(np.mean(samples)), deviation(samples)
    if std is None or len(samples) < LEAST_SAMPLES:
        return Estimate(mean, None, None), Estimate(std, None, None)
    if std <= np.finfo(float).eps * abs(mean):
        return Estimate(mean, mean, mean), Estimate(std, std, std)
    means, squares = _block_means((samples - mean) / std)
    center = float(means.mean())
    spread = math.sqrt(float(squares.mean()) - center**2)
    draws = np.random.default_rng(0).integers(0, len(means), (DRAWS, len(means)))
    centers = means[draws].mean(axis=1)
    spreads = np.sqrt(np.maximum(squares[draws].mean(axis=1) - centers**2, 0))
    low, high = (mean + std * (limit - center) for limit in _accelerated(centers, center, means))
    narrow, wide = (std * limit / spread for limit in _accelerated(spreads, spread, squares - 2 * center * means))
    least, most = float(np.min(samples)), float(np.max(samples))
    return Estimate(mean, max(low, least), min(high, most)), Estimate(std, narrow, wide)


def _block_means(scores: Samples) -> tuple[Samples, Samples]:
    """Mean and mean square of each block; blocks are half the square root of the series long, or one longer."""
    count = len(scores)
    blocks = min(count // max(1, math.isqrt(count) // 2), MOST_BLOCKS)
    starts = np.arange(blocks) * count // blocks
    lengths = np.diff(np.append(starts, count))
    return np.add.reduceat(scores, starts) / lengths, np.add.reduceat(scores**2, starts) / lengths


def _accelerated(draws: Samples, value: float, influences: Samples) -> tuple[float, float]:
    """Limits of a value from draws of it.

    Args:
        draws: the value in each bootstrap sample.
        value: the value in the series itself.
        influences: what each block adds to it; their skewness is the acceleration.
    """
    normal, blocks = NormalDist(), len(influences)
    share = (np.mean(draws < value) + np.mean(draws <= value)) / 2
    bias = normal.inv_cdf(min(max(float(share), 1 / DRAWS), 1 - 1 / DRAWS))
    away = influences - influences.mean()
    spread = float((away**2).sum())
    acceleration = float((away**3).sum()) / (6 * spread**1.5) if spread else 0.0
    # So few blocks are short of spread and want Student's quantile, here by its first terms (Hesterberg 2015).
    z = normal.inv_cdf(CONFIDENCE)
    reach = z * math.sqrt(blocks / (blocks - 1)) * (1 + (1 + z * z) / (4 * (blocks - 1)))
    levels = [normal.cdf(bias + (bias + end) / (1 - acceleration * (bias + end))) for end in (-reach, reach)]
    low, high = np.quantile(draws, levels)
    return float(low), float(high)


def figures(samples: Samples) -> dict[str, float | None]:
    """Everything that a latency series gives, each named as the tables have it."""
    mean, jitter = mean_and_deviation(samples)
    return {
        **percentiles(samples),
        **estimate_columns("mean", mean),
        **estimate_columns("jitter", jitter),
        "min_us": float(np.min(samples)),
        "max_us": float(np.max(samples)),
    }


def estimate_columns(name: str, found: Estimate) -> dict[str, float | None]:
    """``name_us``, ``name_low_us`` and ``name_high_us``."""
    return {f"{name}_us": found.value, f"{name}_low_us": found.low, f"{name}_high_us": found.high}


def summary(samples: Samples, prefix: str) -> dict[str, float | None]:
    """Median, mean, minimum, 95th percentile and standard deviation, each named ``prefix_…_us``."""
    return {
        f"{prefix}_median_us": float(np.median(samples)),
        f"{prefix}_mean_us": float(np.mean(samples)),
        f"{prefix}_min_us": float(np.min(samples)),
        f"{prefix}_p95_us": float(np.quantile(samples, 0.95)),
        f"{prefix}_std_us": deviation(samples),
    }


def deviation(samples: Samples | Sequence[float]) -> float | None:
    """Sample standard deviation; one sample has none."""
    return float(np.std(samples, ddof=1)) if len(samples) > 1 else None


def deviation_of_sums(count: int, total: int, squares: int, unit: float) -> float | None:
    """Sample standard deviation from exact sums of whole numbers, times a unit."""
    if count < 2:
        return None
    return math.sqrt((count * squares - total * total) / (count * (count - 1))) * unit

"""Percentiles, mean and deviation of a latency series, with confidence limits where there are enough samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from common.latency.dependence import LEAST_WORTH, NORMAL_QUANTILE, Dependence, Samples

CONFIDENCE = 0.95  # of each limit
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
FIGURES = (*QUANTILES, "mean", "jitter")  # of a series, each with its limits
DRAWS = 1000
MOST_BLOCKS = 1000
LEAST_SAMPLES = 10  # for limits of the mean
MEDIAN_COUNT = 5  # independent samples between whose smallest and largest the median is
MOST_REACH, MOST_QUEUE_REACH = 1.0, 4.0  # of limits of mean and deviation, as a logarithm
UNSEEN_TAIL = 1.4  # the squares of dependent samples vary more than a series shows; simulated, see the benchmark
BINOMIAL_REACH = 12  # standard deviations; beyond it the probability is below 1e-20


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its limits, each at 95 % confidence; None where there are too few samples."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def reach_share(self) -> float | None:
        """How far the farther limit is from the value, as a share of the value; None without both limits."""
        if not self.value or self.low is None or self.high is None:
            return None
        return max(self.high - self.value, self.value - self.low) / self.value

    def about(self, value: float | None, narrower: float) -> Estimate:
        """Return the estimate of a longer series: around its value, with proportionally narrower limits."""
        if not value or not self.value or not self.low or not self.high:
            return Estimate(value)
        low, high = (value * (limit / self.value) ** narrower for limit in (self.low, self.high))
        return Estimate(value, low, high)


def percentile(samples: Samples, quantile: float, least_factor: float = 1.0) -> Estimate:
    """Estimate a quantile, from 0 to 1, of a series in its order, whose neighbours may depend on each other.

    See :func:`ordered_percentile`, and :class:`common.latency.dependence.Dependence` for the least factor.
    """
    return _percentile(Dependence(samples, least_factor), quantile)


def _percentile(series: Dependence, quantile: float) -> Estimate:
    return ordered_percentile(series.ordered, quantile, quantile_factor(series, quantile))


def quantile_factor(series: Dependence, quantile: float) -> float:
    """Return the variance factor of a quantile; a median has the whole series between its limits at the widest."""
    factor = series.quantile_factor(quantile)
    return min(factor, max(1.0, len(series.samples) / MEDIAN_COUNT)) if quantile == QUANTILES["p50"] else factor


def ordered_percentile(ordered: Samples, quantile: float, factor: float = 1.0) -> Estimate:
    """Estimate a quantile, from 0 to 1, of sorted samples with distribution-free limits (:func:`limit_ranks`).

    The limits are those of as many independent samples as say as much, by the variance factor of the share beyond the
    quantile. A limit is None where these are too few; all is None where even independent samples would be.
    """
    if limit_ranks(len(ordered), quantile)[1] is None:
        return Estimate()
    low, high = (float(ordered[rank - 1]) if rank else None for rank in dependent_ranks(len(ordered), quantile, factor))
    return Estimate(float(np.quantile(ordered, quantile)), low, high)


def dependent_ranks(count: int, quantile: float, factor: float) -> tuple[int, int | None]:
    """Return the ranks of the samples that limit a quantile of ``count`` dependent samples; see :func:`limit_ranks`.

    The limits are those of fewer independent samples, by the variance factor of the share beyond the quantile. Each of
    these stands for as many of the series, by size: a lower limit is the smallest of those, an upper one the largest.
    """
    independent = int(count / factor)
    lower, upper = limit_ranks(independent, quantile)
    return (lower - 1) * count // independent + 1 if lower else 0, upper and -(-upper * count // independent)


def limit_ranks(count: int, quantile: float) -> tuple[int, int | None]:
    """Return the ranks of the samples that limit the q-quantile, each at 95 % confidence; rank 1 is the smallest.

    The j-th smallest of n samples is at or above the q-quantile with probability P(Binomial(n, q) < j), whatever the
    distribution (David & Nagaraja 2003, Order Statistics, section 7.1). p99 needs 299 samples, p99.9 needs 2,995.
    The lower rank is 0, or the upper one None, where no sample gives that confidence.
    """
    first, masses = _binomial(count, quantile)
    below = np.cumsum(masses)  # below[j - first] = P(Binomial <= j)
    upper = first + int(np.searchsorted(below, CONFIDENCE)) + 1  # smallest j with P(Binomial < j) >= confidence
    # The largest i with P(Binomial >= i) >= confidence.
    lower = first + int(np.searchsorted(below, 1 - CONFIDENCE, side="right"))
    return lower, upper if upper <= count else None


def _binomial(count: int, probability: float) -> tuple[int, Samples]:
    """Return the first k, and P(Binomial(count, probability) = k) from there on, as far as it exceeds 1e-20.

    Each mass is its neighbour's times (count - k) / (k + 1) · p / (1 - p), summed as logarithms. All masses sum to 1.
    """
    mean = count * probability
    reach = BINOMIAL_REACH * (math.sqrt(mean * (1 - probability)) + BINOMIAL_REACH / 2)
    first, last = max(0, math.floor(mean - reach)), min(count, math.ceil(mean + reach))
    k = np.arange(first, last)
    steps = np.log((count - k) / (k + 1)) + math.log(probability / (1 - probability))
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    masses = np.exp(logs - logs.max())
    return first, masses / masses.sum()


def percentiles(samples: Samples, least_factor: float = 1.0) -> dict[str, float | None]:
    """Return ``p50_us``, ``p50_low_us``, ``p50_high_us`` and so on for every quantile of ``QUANTILES``."""
    return series_percentiles(Dependence(samples, least_factor))


def series_percentiles(series: Dependence) -> dict[str, float | None]:
    return percentile_columns({name: _percentile(series, quantile) for name, quantile in QUANTILES.items()})


def percentile_columns(estimates: dict[str, Estimate]) -> dict[str, float | None]:
    """Return each percentile under its three column names."""
    result: dict[str, float | None] = {}
    for name, estimate in estimates.items():
        result |= estimate_columns(name, estimate)
    return result


def mean_and_deviation(series: Dependence) -> tuple[Estimate, Estimate]:
    """Estimate mean and sample standard deviation of a series; fewer than ``LEAST_SAMPLES`` samples have no limits."""
    samples = series.samples
    mean, std = float(np.mean(samples)), deviation(samples)
    if std is None or len(samples) < LEAST_SAMPLES or not series.is_long_enough:
        return Estimate(mean), Estimate(std)
    if np.ptp(samples) <= np.finfo(float).eps * abs(mean):
        return Estimate(mean, mean, mean), Estimate(std, std, std)
    if series.factor == 1 or mean <= 0:
        return _drawn(samples, mean, std)
    return _dependent(series, mean, samples), _dependent(series, std, _deviation_influences(series))


def _deviation_influences(series: Dependence) -> Samples:
    """Return what each sample adds to the deviation: half its squared distance over the deviation (Hampel 1974).

    Where few samples make most of the variance of these, that variance is uncertain itself. They are then as large as
    at its upper limit, by its own relative error, which is at most 1.
    """
    samples = series.samples
    influences = np.asarray((samples - samples.mean()) ** 2 / (2 * samples.std(ddof=1)))
    squares = (influences - influences.mean()) ** 2
    error = float(squares.std()) * math.sqrt(series.mean_factor(influences) / len(samples))
    doubt = min(error / float(squares.mean()), 1.0) if squares.any() else 0.0
    return np.asarray(UNSEEN_TAIL * math.sqrt(1 + NORMAL_QUANTILE * doubt) * influences)


def counts_for_limits(samples: Samples, least_factor: float = 1.0) -> dict[str, int]:
    """Return the figures without limits of one or more samples, and how many of this kind would about do."""
    series = Dependence(samples, least_factor)
    mean, jitter = mean_and_deviation(series)
    counts = {
        name: math.ceil(least_count(quantile) * factor)
        for name, quantile in QUANTILES.items()
        if int(len(samples) / (factor := quantile_factor(series, quantile))) < least_count(quantile)
    }
    if mean.low is None:
        counts["mean"] = _count_of_mean(series, mean.value, samples)
    if jitter.low is None and jitter.value:
        counts["jitter"] = _count_of_mean(series, jitter.value, _deviation_influences(series))
    return counts


def least_count(quantile: float) -> int:
    """Return how many independent samples give a quantile of at least a half its upper limit."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(quantile))


def _count_of_mean(series: Dependence, value: float | None, influences: Samples) -> int:
    """Return how many samples would give a figure limits: enough of them, and limits that are narrow enough."""
    count = len(influences)
    if count < LEAST_SAMPLES or not value or value < 0:
        return LEAST_SAMPLES
    if not series.is_long_enough:
        return math.ceil(LEAST_WORTH * series.factor)
    return math.ceil(count * (_reach(series, value, influences) / _most_reach(series)) ** 2)


def _most_reach(series: Dependence) -> float:
    return MOST_QUEUE_REACH if series.is_queue else MOST_REACH


def _dependent(series: Dependence, value: float, influences: Samples) -> Estimate:
    """Estimate a positive figure that varies as the mean of the influences of dependent samples.

    The limits are those of the normal law for the logarithm. There are none beyond a factor of e: a single outlier
    then makes most of the variance, and nothing is known of the next one. The width of a queue's limits comes from its
    load, so they go further.
    """
    reach = _reach(series, value, influences)
    if reach > _most_reach(series):
        return Estimate(value)
    return Estimate(value, value / math.exp(reach), value * math.exp(reach))


def _reach(series: Dependence, value: float, influences: Samples) -> float:
    """Return how far the limits of a figure are from it, as a logarithm."""
    error = float(influences.std(ddof=1)) * math.sqrt(series.mean_factor(influences) / len(influences))
    return NORMAL_QUANTILE * error / value


def _drawn(samples: Samples, mean: float, std: float) -> tuple[Estimate, Estimate]:
    """Estimate mean and deviation of a series without much dependence, with bootstrap limits.

    Whole blocks of neighbouring runs are drawn (Künsch 1989), since a little correlation goes unseen. The limits are
    bias-corrected and accelerated (Efron & Tibshirani 1993, chapter 14), because latencies are skewed. A studentized
    bootstrap has slightly better coverage, but its limits become infinite once one slow run makes half of the variance.
    The draws are seeded, so equal series have equal limits.
    """
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
    """Return mean and mean square of each block; a block is half the square root of the series long, or one longer."""
    count = len(scores)
    blocks = min(count // max(1, math.isqrt(count) // 2), MOST_BLOCKS)
    starts = np.arange(blocks) * count // blocks
    lengths = np.diff(np.append(starts, count))
    return np.add.reduceat(scores, starts) / lengths, np.add.reduceat(scores**2, starts) / lengths


def _accelerated(draws: Samples, value: float, influences: Samples) -> tuple[float, float]:
    """Return bias-corrected and accelerated limits of a value.

    Args:
        draws: the value in each bootstrap sample.
        influences: contribution of each block to the value; their skewness gives the acceleration.
    """
    normal, blocks = NormalDist(), len(influences)
    share = (np.mean(draws < value) + np.mean(draws <= value)) / 2
    bias = normal.inv_cdf(min(max(float(share), 1 / DRAWS), 1 - 1 / DRAWS))
    away = influences - influences.mean()
    spread = float((away**2).sum())
    acceleration = float((away**3).sum()) / (6 * spread**1.5) if spread else 0.0
    # Few blocks underestimate the spread; Student's quantile, by its first terms, makes up for it (Hesterberg 2015).
    z = normal.inv_cdf(CONFIDENCE)
    reach = z * math.sqrt(blocks / (blocks - 1)) * (1 + (1 + z * z) / (4 * (blocks - 1)))
    levels = [normal.cdf(bias + (bias + end) / (1 - acceleration * (bias + end))) for end in (-reach, reach)]
    low, high = np.quantile(draws, levels)
    return float(low), float(high)


def figures(samples: Samples, least_factor: float = 1.0) -> dict[str, float | None]:
    """Return all figures of a latency series, in the order of its runs, by their column names."""
    series = Dependence(samples, least_factor)
    mean, jitter = mean_and_deviation(series)
    return {
        **series_percentiles(series),
        **estimate_columns("mean", mean),
        **estimate_columns("jitter", jitter),
        "min_us": float(np.min(samples)),
        "max_us": float(np.max(samples)),
    }


def estimate_columns(name: str, estimate: Estimate, unit: str = "us") -> dict[str, float | None]:
    """Return an estimate as ``name_us``, ``name_low_us`` and ``name_high_us``."""
    return {
        f"{name}_{unit}": estimate.value,
        f"{name}_low_{unit}": estimate.low,
        f"{name}_high_{unit}": estimate.high,
    }


def summary(samples: Samples, prefix: str) -> dict[str, float | None]:
    """Return median, mean, minimum, 95th percentile and standard deviation, each named ``prefix_…_us``."""
    return {
        f"{prefix}_median_us": float(np.median(samples)),
        f"{prefix}_mean_us": float(np.mean(samples)),
        f"{prefix}_min_us": float(np.min(samples)),
        f"{prefix}_p95_us": float(np.quantile(samples, 0.95)),
        f"{prefix}_std_us": deviation(samples),
    }


def deviation(samples: Samples | Sequence[float]) -> float | None:
    """Return the sample standard deviation; None for a single sample."""
    return float(np.std(samples, ddof=1)) if len(samples) > 1 else None


def deviation_of_sums(count: int, total: int, squares: int, unit: float) -> float | None:
    """Return the sample standard deviation from exact sums of integers, times a unit."""
    if count < 2:
        return None
    return math.sqrt((count * squares - total * total) / (count * (count - 1))) * unit


def with_quarters(columns: Mapping[str, float | None], samples: Samples) -> dict[str, float | None]:
    """Return the columns with limits of the median that hold the medians of all quarters of a series, in its order.

    The limits of order statistics are of independent samples of one level. Where the level changes, the medians of the
    quarters say how far that moves the median.
    """
    low, high = columns["p50_low_us"], columns["p50_high_us"]
    if low is None or high is None:
        return dict(columns)
    medians = [float(np.median(quarter)) for quarter in np.array_split(samples, 4)]
    return {**columns, "p50_low_us": min(low, *medians), "p50_high_us": max(high, *medians)}

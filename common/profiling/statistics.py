"""Percentiles with the confidence that so many samples allow, and the summary of a series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95  # of each limit
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}

Samples = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Percentile:
    """A quantile and its limits; all three are None where the samples give no upper limit."""

    value: float | None
    low: float | None
    high: float | None


def percentile(samples: Samples, quantile: float) -> Percentile:
    """Quantile of a series with distribution-free limits, each of 95 % confidence.

    The j-th smallest of n samples is at or above the q-quantile with probability P(Binomial(n, q) < j), whatever the
    distribution (David & Nagaraja 2003, Order Statistics, section 7.1). p99 needs 299 samples, p99.9 needs 2,995.
    """
    ordered = np.sort(samples)
    count = len(ordered)
    below = np.cumsum(_binomial(count, quantile))  # below[j] = P(Binomial <= j)
    upper = int(np.searchsorted(below, CONFIDENCE)) + 1  # smallest j with P(Binomial < j) >= confidence
    if upper > count:
        return Percentile(None, None, None)
    lower = int(np.searchsorted(below, 1 - CONFIDENCE, side="right"))  # largest i with P(Binomial >= i) >= confidence
    low = float(ordered[lower - 1]) if lower else None
    return Percentile(float(np.quantile(ordered, quantile)), low, float(ordered[upper - 1]))


def _binomial(count: int, probability: float) -> Samples:
    """P(Binomial(count, probability) = k) for k = 0 … count."""
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count + 1)))))
    k = np.arange(count + 1)
    log_choose = logs[count] - logs - logs[::-1]
    return np.asarray(np.exp(log_choose + k * np.log(probability) + (count - k) * np.log1p(-probability)))


def percentiles(samples: Samples) -> dict[str, float | None]:
    """``p50_us``, ``p50_low_us``, ``p50_high_us`` and so on for every quantile of ``QUANTILES``."""
    result: dict[str, float | None] = {}
    for name, quantile in QUANTILES.items():
        found = percentile(samples, quantile)
        result |= {f"{name}_us": found.value, f"{name}_low_us": found.low, f"{name}_high_us": found.high}
    return result


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

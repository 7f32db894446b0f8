"""How many independent samples a series of dependent samples is worth.

Requests that queue together are late together, and runs on a shared machine slow down together. Limits for independent
samples are then too narrow by the square root of the *variance factor*: the variance of a mean over that of independent
samples. The factor comes from the means of batches (batch means: Law, Simulation Modeling and Analysis, 5th edition,
section 9.5.3), with five rules:

- A tail of few samples hides its own dependence: a series that missed the long queues has no sign of them beyond its
  99th percentile. The factor of a quantile is therefore at least that of the whole series, by its ranks and by its
  values below the 90th percentile.
- The memory of a series is unknown, so the largest factor of 8, 16 and 32 batches counts. The correlation of
  neighbouring ranks gives one more: that of a first-order autoregressive series, which needs fewer samples where the
  series is one (Kendall 1954 corrects the correlation for its bias).
- A variance from few batches is uncertain; the squared ratio of Student's quantile to that of the normal law makes up
  for it.
- Where no sign of dependence is seen, the factor is 1: neither in the correlation of neighbouring ranks (Wald and
  Wolfowitz 1943), nor in the variance of the means of the batches, each tested at 95 %.
- If a series seems to be worth fewer than 20 independent samples, even this number is uncertain: its mean and deviation
  have no limits. Its median has limits, because those of a quantile are wide enough for few samples.

A short series of a busy queue always shows too little of its own dependence. There the load says more than the series:
:func:`queue_factor` is the factor of a queue of this utilization, and the factor in use is at least as large. The mean
and the deviation of such a series always have limits, however short it is. A rule that leaves out some series by what
they show would keep those that saw too little: their limits hold the true value in one case of two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float64]

NORMAL_QUANTILE = 1.645  # at 95 %
CLIP_QUANTILE = 0.9
LEAST_BATCH = 2
LEAST_WORTH = 20  # independent samples
MOST_UTILIZATION = 0.999


class BatchCount(NamedTuple):
    """A number of batches with two quantiles at 95 %, for one degree of freedom less than batches."""

    batches: int
    student: float  # of Student's law
    chance: float  # of chi squared, per degree of freedom; independent samples exceed it once in twenty


BATCH_COUNTS = (BatchCount(8, 1.895, 2.010), BatchCount(16, 1.753, 1.666), BatchCount(32, 1.696, 1.451))


@dataclass(frozen=True, slots=True)
class BatchVariance:
    """Variance factor of a mean from batches, and whether independent samples would seldom reach it."""

    factor: float
    is_seen: bool


class Dependence:
    """Dependence of neighbours in one series.

    Attributes:
        is_queue: whether the least factor is that of a queue.
        is_long_enough: whether the series is worth enough independent samples for limits of its mean and deviation.
    """

    def __init__(self, samples: Samples, least_factor: float = 1.0) -> None:
        """Look for dependence in one or more samples, in their order.

        ``least_factor`` is the least variance factor, from what is known besides the series.
        """
        self.samples = samples
        self.ordered = np.sort(samples)
        self.is_queue = least_factor > 1
        ranks = self._ranks()
        whole = batch_variance(ranks), batch_variance(np.minimum(samples, np.quantile(samples, CLIP_QUANTILE)))
        correlation = _neighbour_correlation(ranks)
        is_alike = correlation > NORMAL_QUANTILE / math.sqrt(len(ranks))
        self._is_seen = self.is_queue or is_alike or any(each.is_seen for each in whole)
        by_neighbours = _autoregressive_factor(correlation, len(ranks)) if is_alike else 1.0
        self._factor = max(1.0, least_factor, by_neighbours, *(each.factor for each in whole))
        self.is_long_enough = self.is_queue or len(samples) >= LEAST_WORTH * self.factor or self.factor == 1

    @property
    def factor(self) -> float:
        """Variance factor of the whole series."""
        return self._factor if self._is_seen else 1.0

    def quantile_factor(self, quantile: float) -> float:
        """Return the variance factor of the share of samples beyond a quantile."""
        return self.mean_factor((self.samples > np.quantile(self.ordered, quantile)).astype(float))

    def mean_factor(self, values: Samples) -> float:
        """Return the variance factor of the mean of one value per sample."""
        own = batch_variance(values)
        return max(self._factor, own.factor) if self._is_seen or own.is_seen else 1.0

    def _ranks(self) -> Samples:
        """Return the rank of each sample; equal samples share the mean of their ranks."""
        first, last = (np.searchsorted(self.ordered, self.samples, side) for side in ("left", "right"))
        return np.asarray((first + last) / 2)


def batch_variance(values: Samples) -> BatchVariance:
    """Return the largest variance factor of the mean of values, over the numbers of batches that fit."""
    variance = float(values.var())
    factor, is_seen = 1.0, False
    for count in BATCH_COUNTS if variance else ():
        length = len(values) // count.batches
        if length < LEAST_BATCH:
            break
        means = values[len(values) - count.batches * length :].reshape(count.batches, length).mean(axis=1)
        ratio = length * float(means.var(ddof=1)) / variance
        factor = max(factor, ratio * (count.student / NORMAL_QUANTILE) ** 2)
        is_seen |= ratio > count.chance
    return BatchVariance(factor, is_seen)


def _neighbour_correlation(ranks: Samples) -> float:
    """Return the correlation of neighbouring ranks; 0 if all are equal."""
    away = ranks - ranks.mean()
    squares = float(away @ away)
    return float(away[1:] @ away[:-1]) / squares if squares else 0.0


def _autoregressive_factor(correlation: float, count: int) -> float:
    """Return the variance factor of a series in which each sample depends only on the one before."""
    unbiased = min(correlation + (1 + 3 * correlation) / count, 1 - 1 / count)
    return (1 + unbiased) / (1 - unbiased)


def queue_factor(utilization: float, service_us: Samples, gaps_us: Samples) -> float:
    """Return the variance factor of the latencies of a queue with one server, from times of calls and between arrivals.

    With Poisson arrivals and exponential service the waiting times have a closed form: their asymptotic variance (Daley
    1968; Whitt, Planning Queueing Simulations, Management Science 35, 1989) over their variance. Other times scale it
    as in heavy traffic, by the mean of the asymptotic variabilities of service and arrivals (:func:`_variability`). The
    factor grows fast with the utilization, which a short load knows badly, so its upper limit at 95 % counts. The
    utilization is the share of its time that the server is in calls; from 1 on there is no such factor.
    """
    if not 0 < utilization < 1:
        return 1.0
    of_service, of_gaps = _variability(service_us), _variability(gaps_us)
    error_share = math.sqrt((of_service + of_gaps) / len(service_us))
    load = min(utilization * (1 + NORMAL_QUANTILE * error_share), MOST_UTILIZATION)
    exponential = (2 + load * (5 + load * (load - 4))) / ((2 - load) * (1 - load) ** 2)
    return max(1.0, exponential * (of_service + of_gaps) / 2)


def _variability(values: Samples) -> float:
    """Return the asymptotic variability of times: the variance of a sum over its length and the squared mean.

    For independent times this is the squared coefficient of variation. Where arrivals come in phases of another rate,
    the gaps hardly scatter more, but their sums do (Fendick and Whitt, Proceedings of the IEEE 77, 1989).
    """
    mean = float(values.mean())
    return Dependence(values).mean_factor(values) * float(values.var()) / mean**2 if mean else 0.0

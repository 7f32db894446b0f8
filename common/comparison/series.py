"""The difference between two series of runs: effect, interval, test, and what a repeat scatters anyway.

Neighbouring runs are correlated, and the level of a shared host wanders. So no figure here takes single runs for
independent. Test and interval work on the medians of blocks of neighbours. The noise floor comes from how far the
medians of neighbouring quarters of one series differ. Half of their mean square is the Allan variance (Allan 1966,
Proc. IEEE 54(2)). For noise that wanders (flicker), it does not depend on the length of the quarters: the medians of
two whole series then differ as the medians of two quarters do. For independent runs the floor is twice too high.

Between runs that take turns, what wanders cancels, and each block has sessions of its own. So blocks are independent,
and the floor is that of their median.

Of many nodes some have quarters that agree by chance. So a node's floor also follows from its own scatter between
blocks, times how much larger the steps between quarters are in the median of all nodes (:func:`with_common_floor`).
Nodes also differ between two sessions by more than within one, because their memory is elsewhere. Most nodes are
alike in both measurements, so the scatter of their differences says how much more (Efron 2004, J. Am. Stat. Assoc. 99:
the empirical null), beside a step of the clock, which is much for a short node. What moved all nodes alike is left out
of that scatter: it is a difference, and no noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from common.latency.dependence import Samples
from common.latency.statistics import Estimate

LEAST_RUNS = 5  # of a series that is compared
MOST_BLOCKS = 20  # 20 against 20 can be told apart at p = 1e-7, so a thousand nodes leave room for Holm's correction
QUARTERS = 4
DRAWS = 1000
CONFIDENCE = 0.95  # of an interval
FLOOR_CONFIDENCE = 0.99  # of the floors of all nodes together
FLOOR_QUANTILE = 2.776  # Student's, of six differences in two series that overlap: about four degrees of freedom
NORMAL_MAD = 0.6745  # median absolute deviation of a normal distribution
UNCHANGED_SHARE = 0.8  # of the nodes, at least: their scatter is that between sessions
NORMAL_REACH = NormalDist().inv_cdf((1 + UNCHANGED_SHARE) / 2)
MOST_BETWEEN_SESSIONS = 0.03  # share: what moved most nodes, each by another share, is no noise either
HALVINGS = 20
MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean, of normally distributed values
LEAST_NODES = 8  # whose scatter says anything

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Difference:
    """How much a figure differs from its baseline, as shares of the baseline; None where unknown."""

    baseline: float  # median of the baseline
    candidate: float  # median of what is compared
    share: float | None = None  # the difference, as are the ends of its interval at 95 %
    low_share: float | None = None
    high_share: float | None = None
    noise_floor_share: float | None = None  # what a repeat scatters anyway
    p_value: float | None = None  # of the test that neither series tends to be larger
    cliffs_delta: float | None = None  # how much more often a run of the candidate is the larger one, from -1 to 1
    baseline_runs: int | None = None  # runs that count
    candidate_runs: int | None = None  # likewise
    spread_share: float | None = None  # standard deviation of a difference between two blocks
    step_share: float = 0.0  # smallest step of the clock


def difference(baseline: Samples, candidate: Samples, resolution: float = 0.0) -> Difference:
    """Compare two series, each in the order of its runs.

    Args:
        baseline: a series of times or other amounts that are not negative.
        resolution: smallest step of the clock; a smaller difference is noise.
    """
    before, after = float(np.median(baseline)), float(np.median(candidate))
    counts = (len(baseline), len(candidate))
    if min(counts) < LEAST_RUNS or before <= 0:
        share = after / before - 1 if before > 0 else None
        return Difference(before, after, share, baseline_runs=counts[0], candidate_runs=counts[1])
    blocks = block_medians(baseline), block_medians(candidate)
    low, high = _interval(*blocks, after - before)
    floor = FLOOR_QUANTILE * math.sqrt(allan_variance(baseline) + allan_variance(candidate))
    return Difference(
        before,
        after,
        (after - before) / before,
        low / before,
        high / before,
        max(floor, resolution) / before,
        rank_test(*blocks),
        cliffs_delta(baseline, candidate),
        *counts,
        math.sqrt(_spread(blocks[0]) ** 2 + _spread(blocks[1]) ** 2) / before,
        resolution / before,
    )


def paired_difference(baseline: Samples, candidate: Samples, resolution: float = 0.0) -> Difference:
    """Compare two series whose runs took turns, run by run: what moved both of a pair cancels."""
    before, after = float(np.median(baseline)), float(np.median(candidate))
    count = len(baseline)
    gaps = np.asarray(candidate - baseline)
    change = float(np.median(gaps))
    if count < LEAST_RUNS or before <= 0:
        share = change / before if before > 0 else None
        return Difference(before, after, share, baseline_runs=count, candidate_runs=count)
    blocks = block_medians(gaps)
    low, high = _bounds(np.median(_drawn(blocks), axis=1) - np.median(blocks) + change)
    spread = _spread(blocks)
    deviation = max(MEDIAN_ERROR * spread / math.sqrt(len(blocks)), math.sqrt(allan_variance(gaps) / QUARTERS))
    return Difference(
        before,
        after,
        change / before,
        low / before,
        high / before,
        max(FLOOR_QUANTILE * deviation, resolution) / before,
        _signed_rank_test(blocks),
        cliffs_delta(baseline, candidate),
        count,
        count,
        spread / before,
        resolution / before,
    )


def with_common_floor(family: Mapping[Key, Difference]) -> dict[Key, Difference]:
    """Return the differences of many nodes with floors that follow from all of them; see the head of this module."""
    known = {
        key: (estimate.noise_floor_share, estimate.spread_share)
        for key, estimate in family.items()
        if estimate.noise_floor_share and estimate.spread_share is not None
    }
    if len(known) < LEAST_NODES:
        return dict(family)
    ratios = [floor / spread for floor, spread in known.values() if spread]
    ratio = float(np.median(ratios)) / FLOOR_QUANTILE if ratios else 0.0
    quantile = NormalDist().inv_cdf(1 - (1 - FLOOR_CONFIDENCE) / (2 * len(known)))
    keys, shares = [*known], np.array([family[key].share or 0.0 for key in known])
    deviations = np.array([max(floor / quantile, ratio * spread) for floor, spread in known.values()])
    spreads = np.array([spread for _, spread in known.values()])
    steps = np.array([family[key].step_share for key in keys])
    errors = np.hypot(spreads * max(MEDIAN_ERROR / math.sqrt(MOST_BLOCKS), ratio / math.sqrt(QUARTERS)), steps)
    session = _session_share(shares, errors)
    floors = quantile * np.maximum(deviations, np.sqrt(errors**2 + session**2))
    return {
        **family,
        **{key: replace(family[key], noise_floor_share=float(floor)) for key, floor in zip(keys, floors, strict=True)},
    }


def _session_share(shares: Samples, deviations: Samples) -> float:
    """Return the standard deviation between sessions that the scatter of all nodes shows beside that within them.

    It is the one at which four fifths of the standardized differences are as near to their median as those of a normal
    distribution, found by bisection. The half of them says too little where a trace counts whole microseconds: most
    small nodes then do not differ at all. More than a fifth may have changed.
    """
    low, high = 0.0, MOST_BETWEEN_SESSIONS
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        away = shares / np.sqrt(deviations**2 + middle**2)
        reach = np.quantile(np.abs(away - np.median(away)), UNCHANGED_SHARE)
        low, high = (middle, high) if reach > NORMAL_REACH else (low, middle)
    return low


def block_medians(samples: Samples) -> Samples:
    """Return the medians of at most ``MOST_BLOCKS`` blocks of neighbouring runs."""
    return np.array([np.median(part) for part in np.array_split(samples, min(len(samples), MOST_BLOCKS))])


def allan_variance(samples: Samples) -> float:
    """Return half the mean square of the steps between the medians of neighbouring quarters."""
    quarters = np.array([np.median(part) for part in np.array_split(samples, QUARTERS)])
    return float(np.mean(np.diff(quarters) ** 2)) / 2


def difference_limits(before: Estimate, after: Estimate, widening: float = 1.0) -> tuple[float, float] | None:
    """Return the limits of the difference of two estimates, by the squares of their reaches (Zou and Donner 2008).

    Limits of 95 % on each side give a difference 95 % on each side; for a family of figures, all reaches are wider.
    None where an estimate lacks a limit.
    """
    if before.value is None or before.low is None or before.high is None:
        return None
    if after.value is None or after.low is None or after.high is None:
        return None
    change = after.value - before.value
    below = math.hypot(after.value - after.low, before.high - before.value)
    above = math.hypot(after.high - after.value, before.value - before.low)
    return change - widening * below, change + widening * above


def cliffs_delta(baseline: Samples, candidate: Samples) -> float:
    """Return P(candidate > baseline) - P(candidate < baseline) over all pairs of runs (Cliff 1993)."""
    ordered = np.sort(baseline)
    below = np.searchsorted(ordered, candidate, side="left").sum()
    above = len(ordered) * len(candidate) - np.searchsorted(ordered, candidate, side="right").sum()
    return float(below - above) / (len(ordered) * len(candidate))


def _interval(baseline: Samples, candidate: Samples, change: float) -> tuple[float, float]:
    """Return the limits of the difference of two medians, from blocks drawn with replacement."""
    drawn = np.median(_drawn(candidate, seed=1), axis=1) - np.median(_drawn(baseline), axis=1)
    return _bounds(drawn - (np.median(candidate) - np.median(baseline)) + change)


def _spread(blocks: Samples) -> float:
    """Return the standard deviation of block medians, by their median absolute deviation: a disturbed one adds little.

    Whole microseconds may agree in most blocks; then it is the standard deviation itself.
    """
    robust = float(np.median(np.abs(blocks - np.median(blocks)))) / NORMAL_MAD
    return robust or float(np.std(blocks, ddof=1))


def _drawn(blocks: Samples, seed: int = 0) -> Samples:
    """Return blocks drawn with replacement, a row per draw; equal series have equal limits."""
    return np.asarray(blocks[np.random.default_rng(seed).integers(0, len(blocks), (DRAWS, len(blocks)))])


def _bounds(draws: Samples) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def rank_test(baseline: Samples, candidate: Samples) -> float:
    """Return the p-value of Mann and Whitney's test: exact for few values without ties."""
    from scipy.stats import mannwhitneyu  # half a second

    return float(mannwhitneyu(baseline, candidate).pvalue)


def _signed_rank_test(gaps: Samples) -> float:
    """Return the p-value of Wilcoxon's signed-rank test over all signs that the gaps could have.

    The usual approximation for equal gaps ends at 9e-5 for 20 pairs, which Holm's correction for a thousand nodes uses
    up. Ranks are doubled, so that those of equal gaps are whole.
    """
    from scipy.stats import rankdata

    gaps = gaps[gaps != 0]
    ranks = np.rint(2 * rankdata(np.abs(gaps))).astype(int)
    ways = np.zeros(ranks.sum() + 1)  # by the sum of the ranks of positive gaps
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] += ways[:-rank].copy()
    seen = ranks[gaps > 0].sum()
    return float(min(1.0, 2 * min(ways[: seen + 1].sum(), ways[seen:].sum()) / ways.sum()))

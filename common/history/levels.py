"""Changes of level in a series of few values, and the range of the next value on a level.

A value is a figure of one record: a session of its own, days after the last one. There are tens of them, and nothing
says that they are normally distributed or independent. So the change points of a latency series
(:mod:`common.latency.steady_state`), which need hundreds of runs, cannot be used. A change must pass two tests. The
first holds whatever the distribution of independent values is, by ranks: of all places where the series could be cut,
the one counts where the ranks before and after differ most (Pettitt 1979, J. R. Stat. Soc. C 28(2), with the cut's own
standard deviation), and the p-value is the share of shuffled series with a larger maximum. The second one holds where
neighbours are alike (:mod:`common.history.dependent_steps`). The larger p-value counts. Where there is a change, the
cut is where two medians fit the values best; both parts are tested again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from common.comparison.series import CONFIDENCE, MEDIAN_ERROR, Difference
from common.history.dependent_steps import LEAST_LEVEL, share_beyond
from common.latency.dependence import Samples

LEAST_BEFORE = 5  # values that say how far the next one may be away
DEPENDENT_REACH = 1.2  # of the next value, where neighbours are alike: AR(1) to 0.8, by series/history_changes
FALSE_ALARMS = 0.05  # of a history in which nothing changes, over all figures of a family
MOST_SHUFFLED = 2_000_000  # values, of all shuffled series of one length
MOST_SERIES = 100_000


@dataclass(frozen=True, slots=True)
class Change:
    """A new level: the index of its first value, and the p-value for all figures of the family; None if exact."""

    index: int
    p_value: float | None


def changes(values: Sequence[float], family: int, *, is_exact: bool = False) -> list[Change]:
    """Return where the level of a series changes, in order.

    Args:
        family: how many series are judged together.
        is_exact: whether the values are computed, and do not scatter: any difference is a change.
    """
    if is_exact:
        return [Change(index, None) for index in range(1, len(values)) if values[index] != values[index - 1]]
    return _cuts(np.asarray(values, dtype=float), 0, family)


def _cuts(values: Samples, start: int, family: int) -> list[Change]:
    if len(values) < 2 * LEAST_LEVEL or np.all(values == values[0]):
        return []
    from scipy.stats import rankdata

    distance = float(_distances(rankdata(values)[None, :]).max())
    p_value = min(1.0, family * max(_share_above(len(values), distance), share_beyond(values)))
    if p_value > FALSE_ALARMS:
        return []
    cut = min(range(LEAST_LEVEL, len(values) - LEAST_LEVEL + 1), key=lambda size: _misfit(values, size))
    before, after = _cuts(values[:cut], start, family), _cuts(values[cut:], start + cut, family)
    return [*before, Change(start + cut, p_value), *after]


def _misfit(values: Samples, size: int) -> float:
    """Return how far the values are from the medians of both parts; the ranks alone draw a cut to the middle."""
    return float(sum(np.sum(np.abs(part - np.median(part))) for part in (values[:size], values[size:])))


def _distances(ranks: Samples) -> Samples:
    """Return how far the ranks before each cut are from their expectation, in standard deviations, a row per series.

    Ranks drawn without replacement have this variance: k (n - k) (n + 1) / 12.
    """
    count = ranks.shape[1]
    size = np.arange(LEAST_LEVEL, count - LEAST_LEVEL + 1)
    sums = np.cumsum(ranks, axis=1)[:, size - 1]
    deviations = np.sqrt(size * (count - size) * (count + 1) / 12)
    return np.asarray(np.abs(sums - size * (count + 1) / 2) / deviations)


def _share_above(count: int, distance: float) -> float:
    """Return the share of shuffled series whose largest distance is at least this one, itself included."""
    largest = _shuffled(count)
    return (1 + int(np.sum(largest >= distance * (1 - 1e-12)))) / (1 + len(largest))


@cache
def _shuffled(count: int) -> Samples:
    """Return the largest distance of each of many shuffled series of a length."""
    series = min(MOST_SERIES, max(1000, MOST_SHUFFLED // count))
    ranks = np.random.default_rng(count).permuted(np.tile(np.arange(1.0, count + 1), (series, 1)), axis=1)
    return np.asarray(_distances(ranks).max(axis=1))


def from_level(level: Sequence[float], last: float, family: int) -> Difference:
    """Return how far a value is from the level before it.

    The interval is for the next value at 95 % (Student's, for one figure). The noise floor is for all figures of the
    family together, so that a history without a change seldom has a figure beyond it. Both are wide enough for
    dependent values, which scatter less on a short level than the next value differs from it.
    """
    before = float(np.median(level))
    if not before:
        return Difference(before, last)
    share = last / before - 1
    if len(level) < LEAST_BEFORE:
        return Difference(before, last, share)
    from scipy.stats import t

    # The error of the level itself adds to that of the next value.
    spread = DEPENDENT_REACH * float(np.std(level, ddof=1))
    deviation = spread * math.sqrt(1 + MEDIAN_ERROR**2 / len(level)) / before
    freedom = len(level) - 1
    reach = deviation * float(t.ppf((1 + CONFIDENCE) / 2, freedom))
    floor = deviation * float(t.ppf(1 - FALSE_ALARMS / (2 * family), freedom))
    return Difference(before, last, share, share - reach, share + reach, floor)

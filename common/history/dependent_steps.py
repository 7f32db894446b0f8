"""Whether the largest step of a short series exceeds the steps that dependent values make by chance.

Records of one host resemble each other for a while, for example while the host is warm or another program runs. Such a
series wanders, and a cut always finds two parts with different means. So the step is compared with its own standard
error, which includes the dependence: the standard error of the mean of an AR(1) process is sqrt((1 + r) / (1 - r))
times that of independent values (Box, Jenkins, Reinsel, Time Series Analysis, section 2.1). The correlations are those
of the values around the levels, as the step is to be no part of them. Such correlations are too small by a few times 1
/ n for each level that was fitted to n values, and badly known, so ``CORRECTION / n`` is added for each cut. The scores
of short series then depend less on the correlation. What is left is simulated: a p-value is the share of AR(1) series
of ``MOST_CORRELATION`` with a larger score. Series with less correlation have smaller scores.

There is a second cut, because a series may have two steps: without it the second step would count as scatter around the
first one. The larger score of both ways counts.

The batch means of :mod:`common.latency.dependence` need hundreds of values; a history has tens.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from common.latency.dependence import Samples

LEAST_LEVEL = 3  # values of a level
MOST_CORRELATION = 0.8  # of neighbours, up to which the p-values hold
CORRECTION = 6  # of a correlation, over the number of values; makes scores of short series alike
CLOSEST = 0.97  # correlation
MOST_VALUES, MOST_SERIES, FEWEST_SERIES = 2_000_000, 10_000, 1000  # of the simulated series of one length
TOGETHER = 200_000  # values whose scores are computed at once

Places = npt.NDArray[np.int64]


def share_beyond(values: Samples) -> float:
    """Return the share of simulated series of this length whose score is at least that of these values.

    Values above zero are compared by their logarithms: a step is a ratio then, and heavy tails of latencies are none.
    """
    own = scores((np.log(values) if np.all(values > 0) else values)[None, :])[0]
    simulated = _simulated(len(values))
    return (1 + int(np.sum(simulated >= own * (1 - 1e-12)))) / (1 + len(simulated))


def scores(series: Samples) -> Samples:
    """Return the largest step of each series, a row of at least two levels, over its standard error."""
    centered = series - series.mean(axis=1, keepdims=True)
    sums = np.pad(np.cumsum(centered, axis=1), ((0, 0), (1, 0)))
    begin = np.zeros((len(series), 1), dtype=np.int64)
    end = begin + series.shape[1]
    gains = _gains(sums, begin, end)
    cut = gains.argmax(axis=1)[:, None]
    gain = np.take_along_axis(gains, cut, axis=1)[:, 0]
    places = np.arange(series.shape[1] + 1)
    within = np.where(places < cut, _gains(sums, begin, cut), _gains(sums, cut, end))
    other = np.where(within.max(axis=1, keepdims=True) > 0, within.argmax(axis=1)[:, None], cut)
    both = np.minimum(cut, other), np.maximum(cut, other)
    errors = np.stack([_error_squares(centered, sums, [begin, *cuts, end]) for cuts in ((cut,), both)])
    return np.asarray(np.sqrt(gain / np.maximum(errors.min(axis=0), np.finfo(float).tiny)))


def _gains(sums: Samples, begin: Places, end: Places) -> Samples:
    """Return by how much a cut at each place of a part reduces its sum of squares; below 0 where none may be."""
    places = np.arange(sums.shape[1])
    before, after = places - begin, end - places
    first, last = (np.take_along_axis(sums, at, axis=1) for at in (begin, end))
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = ((sums - first) * after - (last - sums) * before) ** 2 / (before * after * (end - begin))
    return np.asarray(np.where((before >= LEAST_LEVEL) & (after >= LEAST_LEVEL), gains, -1.0))


def _error_squares(centered: Samples, sums: Samples, bounds: list[Places]) -> Samples:
    """Return the variance that independent values would have whose means are as uncertain as those of the levels.

    Each bound of the levels is a column with a place per series.
    """
    count, cuts = centered.shape[1], len(bounds) - 2
    places, rest = np.arange(count), centered.copy()
    for begin, end in pairwise(bounds):
        first, last = (np.take_along_axis(sums, at, axis=1) for at in (begin, end))
        is_inside = (places >= begin) & (places < end)
        rest -= np.where(is_inside, (last - first) / np.maximum(end - begin, 1), 0.0)
    squares = np.einsum("ij,ij->i", rest, rest)
    one, two = (_correlation(rest, squares, lag, CORRECTION * cuts / count) for lag in (1, 2))
    return np.asarray(squares / (count - cuts - 1) * _variance_factors(one, two))


def _correlation(rest: Samples, squares: Samples, lag: int, correction: float) -> Samples:
    products = np.einsum("ij,ij->i", rest[:, lag:], rest[:, :-lag])
    raw = products / np.maximum(squares, np.finfo(float).tiny)
    return np.asarray(np.clip(raw + correction * (1 + raw), -CLOSEST, CLOSEST))


def _variance_factors(one: Samples, two: Samples) -> Samples:
    """Return the variance of a mean over that of independent values, by the correlations at lags 1 and 2.

    It is that of an AR(1) process, or of an AR(2) process where neighbours of neighbours are more alike than that, and
    at least 1.
    """
    near = np.maximum(one, 0.0)
    first = one * (1 - two) / (1 - one**2)  # the weights of AR(2), by Yule and Walker
    second = (two - one**2) / (1 - one**2)
    longer = (1 - first * one - second * two) / (1 - np.minimum(first + second, CLOSEST)) ** 2
    return np.asarray(np.maximum((1 + near) / (1 - near), np.where(second > 0, longer, 1.0)))


@cache
def _simulated(count: int) -> Samples:
    """Return the scores of stationary AR(1) series of a length."""
    random = np.random.default_rng(count)
    rows = min(MOST_SERIES, max(FEWEST_SERIES, MOST_VALUES // count))
    series = random.standard_normal((rows, count))
    series[:, 1:] *= np.sqrt(1 - MOST_CORRELATION**2)
    for place in range(1, count):
        series[:, place] += MOST_CORRELATION * series[:, place - 1]
    return np.concatenate([scores(part) for part in np.array_split(series, max(1, series.size // TOGETHER))])

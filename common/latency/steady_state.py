"""From which run on a latency series is steady, by its change points; "never" is an answer.

After Barrett et al. 2017 (Virtual Machine Warmup Blows Hot and Cold): outliers are trimmed, PELT (Killick et al. 2012;
here the C implementation of ``ruptures``) finds the stretches of one level, those within a tolerance count as one, and
the last level decides. Two things differ, because runs of a millisecond on a shared machine are no runs of a virtual
machine. The penalty grows with the noise between neighbours that are alike, else each slow wave of the machine is a
change; and a short stretch with the same level on both sides is somebody else's work, which stays in the steady part
as what a user would meet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from common.latency.statistics import Samples

Kind = Literal["flat", "warm-up", "slowdown", "no steady state"]

LEAST_RUNS = 5
LEAST_POINTS = 12  # below, a change cannot be told from noise
LEAST_SHARE = 0.25  # of the runs, in the steady part
TOLERANCE = 0.03  # of the level: closer ones count as one
DISTURBED_SHARE = 0.1  # of the steady part, at most, at other levels
TRAILING_SHARE = 0.05  # of the runs, at most, at another level at the end
POINTS = 1000  # a longer series is looked at as medians of blocks
PENALTY = 5.0  # times log n times the long-run variance, for each change point
NEIGHBOURS = 5  # about a point, whose median an outlier is far from
FENCE = 3.0  # interquartile ranges
DRIFT_SIGMAS = 4.0
LEAST_WIDTH = 5  # points, of a block
NORMAL_WINSORIZED = 0.831  # mean square with the largest tenth lowered to the next, over the mean square
NORMAL_DIFFERENCE_MEDIAN = 0.6745  # of |x|, in standard deviations


@dataclass(frozen=True, slots=True)
class Segment:
    """Runs ``start`` to ``end`` (left out) at one level: their median latency."""

    start: int
    end: int
    level_us: float

    @property
    def length(self) -> int:
        """Runs in it."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class SteadyState:
    """What a series does.

    Attributes:
        kind: ``flat``: steady from the first run; ``warm-up``: after other levels, none of them faster; ``slowdown``:
            after a faster one; ``no steady state``.
        start_index: first run of the steady part; None: there is none.
        segments: all runs, in stretches of one level.
    """

    kind: Kind
    start_index: int | None
    segments: tuple[Segment, ...]


def steady_state(latencies_us: Samples) -> SteadyState:
    """Find the steady part of a series of one or more runs, in their order.

    It is the longest end of the series whose stretches are within ``TOLERANCE`` of its level, but for
    ``DISTURBED_SHARE`` of it; it has at least ``LEAST_RUNS`` runs and ``LEAST_SHARE`` of all, and its last quarter is
    where its first quarter was. A series that a straight line describes as well has none. Changes are looked for from
    twelve runs on; a step by 5 % is found in 100 runs whose noise is 3 %.
    """
    count = len(latencies_us)
    width = -(-count // POINTS)
    edges = [*range(0, count, width), count]
    raw = np.array([np.median(latencies_us[low:high]) for low, high in pairwise(edges)])
    points = _trimmed(raw, _local_medians(raw))  # one slow run is no change, and a warm-up keeps its height
    variance = _long_run_variance(_trimmed(raw, 0.0)) or _long_run_variance(points)  # a high warm-up is no noise
    changes = _change_points(points, variance)
    bounds = [0, *(edges[index] for index in changes), count]
    segments = tuple(Segment(low, high, float(np.median(latencies_us[low:high]))) for low, high in pairwise(bounds))
    start = _steady_start(segments)
    if start is None or _is_slope(points, changes, variance) or _drifts(points[-(-start // width) :], variance):
        return SteadyState("no steady state", None, segments)
    # A change lies somewhere in its block, so the steady part begins with the next one.
    return SteadyState(_kind(segments, start), start + width - 1 if start else 0, segments)


def _kind(segments: tuple[Segment, ...], start: int) -> Kind:
    before = [segment.level_us for segment in segments if segment.end <= start]
    if not before:
        return "flat"
    return "slowdown" if min(before) < (1 - TOLERANCE) * _last_level(segments) else "warm-up"


def _trimmed(points: Samples, center: Samples | float) -> Samples:
    """Points no further from a center than Tukey's outer fences of their distances from it."""
    low, high = np.percentile(points - center, [25, 75])
    reach = FENCE * (high - low)
    return np.asarray(center + np.clip(points - center, low - reach, high + reach))


def _local_medians(points: Samples) -> Samples:
    """Median of each point and its neighbours; three of five must be slow to be left as they are."""
    if len(points) < NEIGHBOURS:
        return points
    padded = np.pad(points, NEIGHBOURS // 2, mode="reflect")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS), axis=1))


def _change_points(points: Samples, variance: float) -> list[int]:
    """Where the mean changes, by PELT with a cost of squares."""
    if len(points) < LEAST_POINTS or not variance:
        return []
    from ruptures import KernelCPD  # it loads SciPy, which takes half a second

    scaled = (points - np.median(points)) / math.sqrt(variance)
    found = KernelCPD(kernel="linear", min_size=2).fit(scaled).predict(pen=PENALTY * math.log(len(points)))
    return [int(index) for index in found[:-1]]


def _long_run_variance(points: Samples) -> float:
    """Variance of the mean of n points times n, from differences, which changes of the level hardly touch.

    The larger of two. As of an autoregressive series: the squares of the differences over two steps and over one are
    as 1 + φ to 1 (Chakar et al. 2017), and φ is taken one standard error lower, for it multiplies. And for slower
    waves, from the median difference between blocks, where there are enough of them.
    """
    if len(points) < LEAST_POINTS:
        return 0.0
    squares, squares_of_two = (_detrended(points[lag:] - points[:-lag]) ** 2 for lag in (1, 2))
    if not squares.any():
        return 0.0
    ratio = _winsorized_mean(squares_of_two) / (_winsorized_mean(squares) or math.inf)
    phi = min(max(ratio - 1 - 1 / math.sqrt(len(points)), 0.0), 0.9)
    scale = _winsorized_mean(squares) / NORMAL_WINSORIZED or float(np.mean(squares))
    autoregressive = scale / (2 * (1 - phi)) * (1 + phi) / (1 - phi)
    width = math.isqrt(len(points)) // 2
    if width < LEAST_WIDTH:
        return autoregressive
    blocks = points[: len(points) // width * width].reshape(-1, width).mean(axis=1)
    typical = float(np.median(np.abs(_detrended(np.diff(blocks))))) / (math.sqrt(2) * NORMAL_DIFFERENCE_MEDIAN)
    return max(autoregressive, width * typical**2)


def _detrended(differences: Samples) -> Samples:
    """Without what a steady slope adds to each."""
    return np.asarray(differences - np.median(differences))


def _winsorized_mean(squares: Samples) -> float:
    """Mean with the largest tenth lowered to the next, so that a step of the level does not count."""
    return float(np.mean(np.minimum(squares, np.quantile(squares, 0.9))))


def _is_slope(points: Samples, changes: list[int], variance: float) -> bool:
    """Whether a straight line that leaves the tolerance fits no worse than the steps; it counts as one change."""
    if not changes:
        return False
    x = np.arange(len(points))
    line = np.polyval(np.polyfit(x, points, 1), x)
    if abs(line[-1] - line[0]) <= TOLERANCE * np.median(points):
        return False
    steps = np.concatenate([np.full(len(part), part.mean()) for part in np.split(points, changes)])
    worse = float(np.sum((points - line) ** 2) - np.sum((points - steps) ** 2))
    return worse <= PENALTY * math.log(len(points)) * (len(changes) - 1) * variance


def _last_level(segments: tuple[Segment, ...]) -> float:
    """Level of the longest stretch that reaches into the last quarter."""
    last_quarter = 0.75 * segments[-1].end
    return max((each for each in segments if each.end > last_quarter), key=lambda each: each.length).level_us


def _steady_start(segments: tuple[Segment, ...]) -> int | None:
    """First run of the steady part, if it is large enough."""
    count, level_us = segments[-1].end, _last_level(segments)
    start, away = count, 0
    for segment in reversed(segments):
        if abs(segment.level_us - level_us) > TOLERANCE * level_us:
            away += segment.length
        elif away <= (DISTURBED_SHARE * (count - segment.start) if start < count else TRAILING_SHARE * count):
            start = segment.start
    return start if count - start >= max(LEAST_RUNS, LEAST_SHARE * count) else None


def _drifts(points: Samples, variance: float) -> bool:
    """Whether the last quarter of the steady points is away from the first, beyond the tolerance and beyond chance."""
    quarter = len(points) // 4
    if quarter < 2:
        return False
    first, last = np.mean(points[:quarter]), np.mean(points[-quarter:])
    deviation = math.sqrt(2 * variance / quarter)
    return bool(abs(last - first) > max(TOLERANCE * np.median(points), DRIFT_SIGMAS * deviation))

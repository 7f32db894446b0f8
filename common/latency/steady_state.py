"""Find the run from which on a latency series is steady, by its change points; there may be none.

The method follows Barrett et al. 2017 (Virtual Machine Warmup Blows Hot and Cold). Outliers are trimmed. PELT (Killick
et al. 2012; here the C implementation of ``ruptures``) finds segments of one level. Levels within a tolerance count as
equal, and the last level decides. Two things differ, because the runs are short and the machine is shared. The penalty
grows with the correlated noise of neighbouring runs; otherwise each slow wave of the machine would be a change. A short
segment between two segments of equal level is other work on the host; it stays in the steady part, because a user
would meet it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from common.latency.dependence import Samples

Kind = Literal["flat", "warm-up", "slowdown", "no steady state"]

LEAST_RUNS = 5
LEAST_POINTS = 12  # with fewer, a change cannot be told from noise
LEAST_SHARE = 0.25  # least share of the runs in the steady part
TOLERANCE = 0.03  # levels that differ by less count as equal
DISTURBED_SHARE = 0.1  # largest share of the steady part at other levels
TRAILING_SHARE = 0.05  # largest share of the runs at another level at the end
POINTS = 1000  # a longer series is reduced to medians of blocks
PENALTY = 5.0  # times log n times the long-run variance, for each change point
NEIGHBOURS = 5  # width of the running median that outliers are measured from
FENCE = 3.0  # interquartile ranges
DRIFT_SIGMAS = 4.0
LEAST_WIDTH = 5  # points in a block
NORMAL_WINSORIZED = 0.831  # mean square with the largest tenth lowered to the next, over the mean square
NORMAL_DIFFERENCE_MEDIAN = 0.6745  # of |x|, in standard deviations


@dataclass(frozen=True, slots=True)
class Segment:
    """Runs ``start`` to ``end`` (exclusive) at one level, which is their median latency."""

    start: int
    end: int
    level_us: float

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Course of a series."""

    # ``flat``: steady from the first run; ``warm-up``: steady after other levels, none of them faster; ``slowdown``:
    # steady after a faster level; ``no steady state``
    kind: Kind
    start_index: int | None  # first run of the steady part; None without a steady part
    segments: tuple[Segment, ...]  # all runs, in segments of one level


def steady_state(latencies_us: Samples) -> SteadyState:
    """Find the steady part of a series of one or more runs, in their order.

    The steady part is the longest end of the series whose segments are within ``TOLERANCE`` of its level, except for
    ``DISTURBED_SHARE`` of it. It has at least ``LEAST_RUNS`` runs and ``LEAST_SHARE`` of all runs, and the level of its
    last quarter equals that of its first. A series that a straight line fits equally well has no steady part. Changes
    are sought in series of twelve runs or more; a step of 5 % is found in 100 runs with 3 % noise.
    """
    count = len(latencies_us)
    width = -(-count // POINTS)
    edges = [*range(0, count, width), count]
    raw = np.array([np.median(latencies_us[low:high]) for low, high in pairwise(edges)])
    points = _trimmed(raw, _local_medians(raw))  # one slow run is not a change; a warm-up keeps its height
    variance = _long_run_variance(_trimmed(raw, 0.0)) or _long_run_variance(points)  # a high warm-up is not noise
    changes = _change_points(points, variance)
    bounds = [0, *(edges[index] for index in changes), count]
    segments = tuple(Segment(low, high, float(np.median(latencies_us[low:high]))) for low, high in pairwise(bounds))
    start = _steady_start(segments)
    if start is None or _is_slope(points, changes, variance) or _drifts(points[-(-start // width) :], variance):
        return SteadyState("no steady state", None, segments)
    # A change is somewhere within its block, so the steady part begins with the next block.
    return SteadyState(_kind(segments, start), start + width - 1 if start else 0, segments)


def _kind(segments: tuple[Segment, ...], start: int) -> Kind:
    before = [segment.level_us for segment in segments if segment.end <= start]
    if not before:
        return "flat"
    return "slowdown" if min(before) < (1 - TOLERANCE) * _last_level(segments) else "warm-up"


def _trimmed(points: Samples, center: Samples | float) -> Samples:
    """Clip the points' distances from a center to Tukey's outer fences."""
    low, high = np.percentile(points - center, [25, 75])
    reach = FENCE * (high - low)
    return np.asarray(center + np.clip(points - center, low - reach, high + reach))


def _local_medians(points: Samples) -> Samples:
    """Return the running median; a slow stretch of three points or more survives it."""
    if len(points) < NEIGHBOURS:
        return points
    padded = np.pad(points, NEIGHBOURS // 2, mode="reflect")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS), axis=1))


def _change_points(points: Samples, variance: float) -> list[int]:
    """Find where the mean changes, by PELT with a least-squares cost."""
    if len(points) < LEAST_POINTS or not variance:
        return []
    from ruptures import KernelCPD  # it imports SciPy, which takes half a second

    scaled = (points - np.median(points)) / math.sqrt(variance)
    ends = KernelCPD(kernel="linear", min_size=2).fit(scaled).predict(pen=PENALTY * math.log(len(points)))
    return [int(index) for index in ends[:-1]]


def _long_run_variance(points: Samples) -> float:
    """Return n times the variance of the mean of n points, from differences, which level changes hardly affect.

    The result is the larger of two estimates. The first takes the series as autoregressive: the mean squares of the
    differences over two steps and over one are in the ratio 1 + φ (Chakar et al. 2017). φ is taken one standard error
    lower, because it multiplies. The second is for slower waves: it comes from the median difference between blocks,
    where there are enough points.
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
    """Remove the part of each difference that a constant slope causes."""
    return np.asarray(differences - np.median(differences))


def _winsorized_mean(squares: Samples) -> float:
    """Return the mean with the largest tenth lowered to the 0.9 quantile, so that a level change does not count."""
    return float(np.mean(np.minimum(squares, np.quantile(squares, 0.9))))


def _is_slope(points: Samples, changes: list[int], variance: float) -> bool:
    """Whether a straight line beyond the tolerance fits no worse than the steps; the line counts as one change."""
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
    last_quarter = 0.75 * segments[-1].end
    late = (segment for segment in segments if segment.end > last_quarter)
    return max(late, key=lambda segment: segment.length).level_us


def _steady_start(segments: tuple[Segment, ...]) -> int | None:
    """Return the first run of the steady part, if that is large enough."""
    count, level_us = segments[-1].end, _last_level(segments)
    start, away = count, 0
    for segment in reversed(segments):
        if abs(segment.level_us - level_us) > TOLERANCE * level_us:
            away += segment.length
        elif away <= (DISTURBED_SHARE * (count - segment.start) if start < count else TRAILING_SHARE * count):
            start = segment.start
    return start if count - start >= max(LEAST_RUNS, LEAST_SHARE * count) else None


def _drifts(points: Samples, variance: float) -> bool:
    """Whether the last quarter of the steady points differs from the first by more than tolerance and chance."""
    quarter = len(points) // 4
    if quarter < 2:
        return False
    first, last = np.mean(points[:quarter]), np.mean(points[-quarter:])
    deviation = math.sqrt(2 * variance / quarter)
    return bool(abs(last - first) > max(TOLERANCE * np.median(points), DRIFT_SIGMAS * deviation))

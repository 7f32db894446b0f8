"""Whether a difference is real: regressed, improved, unchanged, or undecided with the runs that would decide it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from common.comparison.series import LEAST_RUNS, Difference

Outcome = Literal["regressed", "improved", "unchanged", "undecided", "not judged"]
MOST_RUNS = 1_000_000  # that anyone would make
SIGNIFICANCE = 0.05  # of all tests of a family together


@dataclass(frozen=True, slots=True)
class Judgement:
    """The meaning of a difference, its reason, and how many runs would decide an undecided one."""

    outcome: Outcome
    reason: str = ""
    runs_needed: int | None = None


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values for which a level holds for the whole family (Holm 1979); an unknown one stays unknown."""
    ranked = sorted((value, index) for index, value in enumerate(p_values) if value is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (value, index) in enumerate(ranked):
        largest = max(largest, min(1.0, (len(ranked) - rank) * value))
        adjusted[index] = largest
    return adjusted


def judge(difference: Difference, margin_share: float, p_value: float | None, *, is_less_better: bool) -> Judgement:
    """Judge a difference.

    It is real if the test says so, its interval leaves zero out and it exceeds the noise floor. It is unchanged if the
    floor and the interval are within the margin.

    Args:
        margin_share: smallest difference that counts as a change.
        p_value: of the test, corrected for its family; None if the figure has an interval but no runs.
    """
    share, low, high = difference.share, difference.low_share, difference.high_share
    if share is None or low is None or high is None:
        return Judgement("undecided", *_too_little(difference))
    floor = difference.noise_floor_share or 0.0
    is_real = (p_value is None or p_value < SIGNIFICANCE) and not low <= 0 <= high and abs(share) > floor
    if is_real:
        return Judgement("regressed" if (share > 0) == is_less_better else "improved")
    if max(-low, high, floor) <= margin_share:
        return Judgement("unchanged")
    reach = max((high - low) / 2, floor)
    return Judgement("undecided", _doubt(low, high, floor, share), _runs_needed(difference, reach, margin_share))


def judge_exact(difference: Difference, *, is_less_better: bool) -> Judgement:
    """Judge a figure that is computed and does not scatter: any difference is real."""
    if difference.share in (0.0, None) and difference.baseline == difference.candidate:
        return Judgement("unchanged")
    return Judgement("regressed" if (difference.candidate > difference.baseline) == is_less_better else "improved")


def _too_little(difference: Difference) -> tuple[str, int | None]:
    """Return why nothing can be said, and the least number of runs."""
    runs = [count for count in (difference.baseline_runs, difference.candidate_runs) if count is not None]
    if runs and min(runs) < LEAST_RUNS:
        return "1 run is too few" if min(runs) == 1 else f"{min(runs)} runs are too few", LEAST_RUNS
    if not runs:
        return "one value each, without an interval: repeat both measurements", None
    return "the baseline takes no time that the clock can measure", None


def _doubt(low: float, high: float, floor: float, share: float) -> str:
    if low <= 0 <= high:
        return "the interval holds zero and more than the margin"
    return "a repeat scatters as much" if abs(share) <= floor else "the test cannot rule out chance"


def _runs_needed(difference: Difference, reach: float, margin_share: float) -> int | None:
    """Return how many runs of each side would decide: noise falls with their square root.

    A difference is decided once the noise is below it. Equality is decided once noise and difference fit into the
    margin. A node that takes almost no time would need more runs than anyone makes.
    """
    runs = [count for count in (difference.baseline_runs, difference.candidate_runs) if count is not None]
    if not runs or difference.share is None:
        return None
    wanted = max(abs(difference.share), margin_share - abs(difference.share))
    needed = min(runs) * (reach / wanted) ** 2
    return max(min(runs) + 1, math.ceil(needed)) if needed <= MOST_RUNS else None

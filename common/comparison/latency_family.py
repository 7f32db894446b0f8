"""The figures of the latency, compared as one family with one rate of false alarms.

Median, percentiles, mean and deviation come from one series on each side, so they raise their false alarms together.
Two figures judge each of them.

*Limits of the difference* come from the limits that the measurement states for each side. They include the dependence
of neighbouring runs (:mod:`common.latency.dependence`). A series that is worth too few independent runs has no limits,
and its figure is not judged.

*A noise floor* comes from parts of the measurement. It covers what the dependence of neighbours does not show: a level
that wanders, and sessions that differ. The parts are the sessions if both sides together have at least four. Sessions
are independent, so Student's law gives the floor, at the level of the family: the median gets half of 5 %, and the
other figures share the other half (Bonferroni). Otherwise the parts are the quarters of each side, and the floor is
``QUARTERS_REACH`` standard errors. For four independent normal quarters on each side a difference exceeds that in 0.04
% of all pairs. Quarters that drift are not independent; the reach was chosen on half of the laws of
``benchmarks/series/comparison_alarms.py`` such that the whole family raises an alarm in less than 5 % of the pairs
under each law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from common.comparison.judgement import SIGNIFICANCE, Judgement, judge
from common.comparison.series import LEAST_RUNS, Difference, block_medians, cliffs_delta, difference_limits, rank_test
from common.latency.dependence import Samples
from common.latency.sessions import point_figures, student_quantile
from common.latency.statistics import (
    FIGURES,
    LEAST_SAMPLES,
    QUANTILES,
    Estimate,
    counts_for_limits,
    figures,
    least_count,
)
from common.table_rows import ComparisonRow

QUARTERS, QUARTERS_REACH = 4, 7.0
LEAST_SESSIONS = 4  # of both sides together, that say how far sessions scatter
LEVELS = np.array([SIGNIFICANCE / 2, *[SIGNIFICANCE / 2 / (len(FIGURES) - 1)] * (len(FIGURES) - 1)])
FEW_INDEPENDENT = "too few independent runs"


class _Scatter(NamedTuple):
    """The noise floor, and the limits of the mean difference of sessions, if each has enough runs.

    All runs together also scatter by the differences between sessions, so their tail and their deviation are not those
    of the sessions. Both differences must exceed chance.
    """

    floor_us: float
    limits_us: tuple[float, float] | None = None


@dataclass(frozen=True)
class LatencySide:
    """The runs of each session of one side, in their order."""

    sessions: Sequence[Samples]

    @cached_property
    def runs(self) -> Samples:
        return np.concatenate(self.sessions)

    @cached_property
    def figures(self) -> dict[str, Estimate]:
        """The figures that have a value, with the limits that the runs alone give."""
        columns = figures(self.runs)
        estimates = {name: Estimate(*(columns[f"{name}{end}_us"] for end in ("", "_low", "_high"))) for name in FIGURES}
        return {name: estimate for name, estimate in estimates.items() if estimate.value}

    @cached_property
    def of_sessions(self) -> Samples:
        """The figures of each session, a row per session."""
        return np.array([point_figures(session) for session in self.sessions])

    @cached_property
    def of_quarters(self) -> Samples:
        """The figures of each quarter; deviations are from the mean of all runs, so that they show a drift."""
        parts, mean = np.array_split(self.runs, QUARTERS), np.mean(self.runs)
        away = [math.sqrt(np.mean((part - mean) ** 2)) for part in parts]
        return np.column_stack(
            [[np.quantile(part, [*QUANTILES.values()]) for part in parts], [*map(np.mean, parts)], away]
        )

    def runs_needed(self, name: str) -> int | None:
        """Return how many runs like these give a figure both limits, or None where they have them.

        Further sessions must each have as many as independent runs would take.
        """
        if len(self.sessions) == 1:
            return counts_for_limits(self.runs).get(name)
        needed = len(self.sessions) * least_runs(name)
        return needed if needed > len(self.runs) else None


def least_runs(name: str) -> int:
    """Return how many independent runs give a figure both limits."""
    return least_count(QUANTILES[name]) if name in QUANTILES else LEAST_SAMPLES


def latency_differences(baseline: LatencySide, candidate: LatencySide) -> dict[str, Difference]:
    """Compare the figures that both sides have; a figure without limits has only its difference.

    Each side has ``LEAST_RUNS`` runs or more. The median has a rank test of medians of blocks as well, which must
    reject chance, too.
    """
    scatter = _of_sessions if len(baseline.sessions) + len(candidate.sessions) >= LEAST_SESSIONS else _of_quarters
    scatters = dict(zip(FIGURES, scatter(baseline, candidate), strict=True))
    counts = (len(baseline.runs), len(candidate.runs))
    changes = {
        name: _difference(before, candidate.figures[name], scatters[name], counts)
        for name, before in baseline.figures.items()
        if name in candidate.figures
    }
    if median := changes.get("p50"):
        series = (baseline.runs, candidate.runs)
        p_value = rank_test(*map(block_medians, series))
        changes["p50"] = replace(median, p_value=p_value, cliffs_delta=cliffs_delta(*series))
    return changes


def judged_latency(
    baseline: LatencySide, candidate: LatencySide, margin_share: float
) -> dict[str, tuple[Difference, Judgement]]:
    """Return the difference of each figure and its meaning; nothing where a side has too few runs."""
    if min(len(baseline.runs), len(candidate.runs)) < LEAST_RUNS:
        return {}
    return {
        name: (change, _judged(name, change, (baseline, candidate), margin_share))
        for name, change in latency_differences(baseline, candidate).items()
    }


def too_few_runs(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return a note on the figures that are not judged, with the number of runs that would suffice; or none."""
    of_latency = {row["compared_figure"]: row for row in rows if row["compared_kind"] == "end_to_end"}
    if not {"p50_us", "mean_us"} <= of_latency.keys():
        return []  # no series, or pairs
    named = []
    for name in FIGURES:
        row = of_latency.get(f"{name}_us")
        if row is None and name in QUANTILES:
            named.append(f"{_spoken(name)} ({least_runs(name):,} or more would do)")
        elif row is not None and row["comparison_verdict"] == "not judged":
            needed = row["runs_needed_count"]
            named.append(f"{_spoken(name)}{f' ({needed:,} would do)' if needed else ''}")
    return [f"{FEW_INDEPENDENT} to judge {', '.join(named)}; raise <runs>"] if named else []


def _spoken(name: str) -> str:
    return name.replace("_", ".")


def _difference(before: Estimate, after: Estimate, scatter: _Scatter, counts: tuple[int, int]) -> Difference:
    first, second = before.value or 0.0, after.value or 0.0
    known = [limits for limits in (difference_limits(before, after), scatter.limits_us) if limits]
    low, high = None, None
    if known:  # no time is negative, so none falls by more than all of it
        low, high = max(-1.0, min(known)[0] / first), max(limits[1] for limits in known) / first
    runs = {"baseline_runs": counts[0], "candidate_runs": counts[1]}
    return Difference(first, second, second / first - 1, low, high, scatter.floor_us / first, **runs)


def _judged(name: str, change: Difference, sides: Sequence[LatencySide], margin_share: float) -> Judgement:
    if change.low_share is not None:
        return judge(change, margin_share, change.p_value, is_less_better=True)
    needed = [count for side in sides if (count := side.runs_needed(name)) is not None]
    return Judgement("not judged", FEW_INDEPENDENT, max(needed, default=None))


def _of_quarters(baseline: LatencySide, candidate: LatencySide) -> list[_Scatter]:
    errors = [side.of_quarters.var(axis=0, ddof=1) / QUARTERS for side in (baseline, candidate)]
    return [_Scatter(floor) for floor in (QUARTERS_REACH * np.sqrt(np.sum(errors, axis=0))).tolist()]


def _of_sessions(baseline: LatencySide, candidate: LatencySide) -> list[_Scatter]:
    """Return floors and limits by Student's test of two samples: the figures of the sessions of each side."""
    both = (baseline.of_sessions, candidate.of_sessions)
    degrees = sum(map(len, both)) - len(both)
    squares = sum(((each - each.mean(axis=0)) ** 2).sum(axis=0) for each in both)
    errors_us = np.sqrt(squares / degrees * sum(1 / len(each) for each in both))
    floors_us = errors_us * [student_quantile(degrees, 1 - level / 2) for level in LEVELS.tolist()]
    changes_us = both[1].mean(axis=0) - both[0].mean(axis=0)
    fewest = min(len(session) for side in (baseline, candidate) for session in side.sessions)
    return [
        _Scatter(floor, (change - floor, change + floor) if fewest >= least_runs(name) else None)
        for name, floor, change in zip(FIGURES, floors_us.tolist(), changes_us.tolist(), strict=True)
    ]

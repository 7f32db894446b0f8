"""Figures that a table states as one value: which are compared, what is better, and how they scatter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from common.comparison.judgement import SIGNIFICANCE
from common.comparison.series import Difference, difference_limits
from common.latency.statistics import CONFIDENCE, Estimate

Spread = Literal["interval", "cases", "halves", "exact", "single"]
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure that a table states."""

    kind: str  # what the figure is about
    document: str  # its file
    name: str  # its column
    # ``interval``: two columns are its limits; ``cases``: two columns are it where all that nobody knows is worse, and
    # better: both sides know as little, so each case is compared with itself; ``halves``: a column says how far two
    # halves of the measurement were apart; ``exact``: it is computed, and does not scatter; ``single``: one value, of
    # which nobody knows how far a repeat would be away.
    spread: Spread
    is_less_better: bool = True  # whether a larger value is worse
    beside: tuple[str, ...] = ()  # the columns that its spread needs
    source: str = ""  # column that says where a figure comes from; the limits of a ``modelled`` one are its cases

    def spread_of(self, documents: Sequence[Document]) -> Spread:
        """Return what is known of its scatter in some documents."""
        is_modelled = bool(self.source) and all(document.get(self.source) == "modelled" for document in documents)
        return "cases" if is_modelled else self.spread


def _interval(kind: str, document: str, stem: str, unit: str, *, is_less_better: bool = True) -> ComparedFigure:
    ends = (f"{stem}_low{unit}", f"{stem}_high{unit}")
    return ComparedFigure(kind, document, f"{stem}{unit}", "interval", is_less_better, ends)


def _ceiling(name: str, halves: str) -> ComparedFigure:
    return ComparedFigure("ceiling", "host_ceilings", name, "halves", is_less_better=False, beside=(halves,))


FIGURES = (
    *(_interval("end_to_end", "latency_summary", name, "_us") for name in ("p90", "p95", "p99", "p99_9")),
    ComparedFigure("end_to_end", "latency_summary", "session_creation_us", "single"),
    ComparedFigure("end_to_end", "latency_summary", "first_run_us", "single"),
    ComparedFigure("memory", "latency_summary", "peak_memory_bytes", "exact"),
    ComparedFigure("memory", "latency_summary", "arena_bytes", "exact"),
    ComparedFigure("memory", "latency_summary", "peak_resident_bytes", "single"),
    _ceiling("peak_flop_per_s", "peak_halves_difference_share"),
    _ceiling("int8_op_per_s", "int8_halves_difference_share"),
    _ceiling("memory_bytes_per_s", "memory_halves_difference_share"),
    replace(_interval("energy", "energy_summary", "energy", "_uj"), source="energy_source"),
    ComparedFigure("energy", "energy_summary", "average_power_w", "single"),
    ComparedFigure("plan", "offload_verdict", "likely", "cases", False, ("speedup_p5_factor", "speedup_p95_factor")),
    ComparedFigure(
        *("plan", "offload_comparison", "plan_latency_likely_us", "cases"),
        beside=("plan_latency_pessimistic_us", "plan_latency_optimistic_us"),
    ),
    ComparedFigure("plan", "offload_plan", "kernel_power_likely_w", "exact"),
    ComparedFigure("plan", "board_resources", "used_count", "exact"),
    *(_interval("load", "load_summary", f"request_{name}", "_us") for name in ("p50", "p90", "p95", "p99")),
    ComparedFigure("load", "load_summary", "answered_requests_per_s", "single", is_less_better=False),
    ComparedFigure("load", "load_summary", "peak_resident_bytes", "single"),
    _interval("load", "load_best", "sustained", "_requests_per_s", is_less_better=False),
    ComparedFigure("load", "load_best", "request_energy_j", "single"),
    ComparedFigure("load", "load_best", "million_requests_usd", "single"),
    ComparedFigure("counter", "hardware_counters", "instructions_per_cycle", "single", is_less_better=False),
    ComparedFigure("counter", "hardware_counters", "cache_miss_share", "single"),
)


# Limits of 95 % on each side become those of a family: each figure has its share of 5 % (Bonferroni). The figures of
# the latency are no part of it, because their runs are compared.
STATED = [figure for figure in FIGURES if figure.spread == "interval" and figure.document != "latency_summary"]
WIDENING = NormalDist().inv_cdf(1 - SIGNIFICANCE / 2 / len(STATED)) / NormalDist().inv_cdf(CONFIDENCE)
LEAST_REPEATS = 5  # baselines that say how far a repeat is away


def figure_difference(
    figure: ComparedFigure, baselines: Sequence[Document], candidate: Document, floor_share: float | None = None
) -> Difference | None:
    """Return the difference of a figure from one baseline or several; None where a side does not have it.

    Args:
        floor_share: the noise floor of the latency. What is computed from the host's times scatters no further.
    """
    known = [baseline for baseline in baselines if baseline.get(figure.name) is not None]
    if not known or candidate.get(figure.name) is None:
        return None
    known.sort(key=lambda baseline: float(baseline[figure.name]))
    middle, sides = known[len(known) // 2], [*known, candidate]
    before, after = float(middle[figure.name]), float(candidate[figure.name])
    spread = figure.spread_of(sides)
    if not before:
        return Difference(before, after) if after and spread == "exact" else None
    share, limits = after / before - 1, _Limits()
    if spread not in ("exact", "halves") and len(known) >= LEAST_REPEATS:
        limits = _of_repeats(share, (float(known[-1][figure.name]) - float(known[0][figure.name])) / before)
    elif spread == "halves":
        limits = _of_halves(share, [side.get(figure.beside[0]) for side in sides])
    elif spread == "interval":
        limits = _of_intervals(figure, sides, before, after)
    elif spread == "cases":
        limits = _of_cases(figure, middle, candidate, share, floor_share)
    return Difference(before, after, share, *limits)


class _Limits(NamedTuple):
    """The ends of the interval of a difference and its noise floor, as shares of the baseline; None where unknown."""

    low: float | None = None
    high: float | None = None
    floor: float | None = None


def _of_repeats(share: float, reach: float) -> _Limits:
    """Return the range that one more of several baselines would have.

    Of k repeats, the next one is outside their range with probability 2 / (k + 1), whatever the distribution. Half of
    the range is added on both sides.
    """
    return _Limits(share - reach, share + reach, reach)


def _of_cases(
    figure: ComparedFigure, baseline: Document, candidate: Document, share: float, floor: float | None
) -> _Limits:
    """Return the least and the largest difference of all cases."""
    shares = [
        float(candidate[name]) / float(baseline[name]) - 1
        for name in figure.beside
        if baseline.get(name) and candidate.get(name) is not None
    ]
    if len(shares) < len(figure.beside) or floor is None:
        return _Limits()
    return _Limits(min(share, *shares), max(share, *shares), floor)


def _of_halves(share: float, apart: Sequence[float | None]) -> _Limits:
    """Return the limits for two ceilings: a repeat may be as far away as the halves of a measurement are."""
    known = [float(distance) for distance in apart if distance is not None]
    if len(known) < len(apart):
        return _Limits()
    floor = math.hypot(max(known[:-1]), known[-1])
    return _Limits(share - floor, share + floor, floor)


def _of_intervals(figure: ComparedFigure, sides: Sequence[Document], before: float, after: float) -> _Limits:
    """Return the limits for two estimates with intervals; those of all stated figures hold together."""
    lows, highs = ([side[end] for side in sides if side.get(end) is not None] for end in figure.beside)
    if len(lows) + len(highs) < 2 * len(sides):
        return _Limits()
    first, second = Estimate(before, min(lows[:-1]), max(highs[:-1])), Estimate(after, lows[-1], highs[-1])
    low, high = (limit / before for limit in difference_limits(first, second, WIDENING) or (0.0, 0.0))
    return _Limits(low, high, max(before - min(lows[:-1]), max(highs[:-1]) - before) / before)

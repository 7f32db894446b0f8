"""Figures that a table states as one value: which are compared, what is better, and how they scatter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from common.comparison.series import Difference

Spread = Literal["interval", "halves", "exact", "single"]
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of a document.

    Attributes:
        kind: what the figure is about.
        document: where it stands.
        name: its column.
        spread: ``interval``: columns with ``_low`` and ``_high`` beside it; ``halves``: a column says how far two
            halves of the measurement were apart; ``exact``: it is computed, and does not scatter; ``single``: one
            value, of which nobody knows how far a repeat would be away.
        is_less_better: whether a larger value is worse.
        halves: the column of the halves.
    """

    kind: str
    document: str
    name: str
    spread: Spread
    is_less_better: bool = True
    halves: str = ""


def _ceiling(name: str, halves: str) -> ComparedFigure:
    return ComparedFigure("ceiling", "host_ceilings", name, "halves", is_less_better=False, halves=halves)


FIGURES = (
    *(
        ComparedFigure("end_to_end", "latency_summary", f"{name}_us", "interval")
        for name in ("p90", "p95", "p99", "p99_9")
    ),
    *(
        ComparedFigure("end_to_end", "latency_summary", name, "single")
        for name in ("session_creation_us", "first_run_us")
    ),
    ComparedFigure("memory", "latency_summary", "peak_memory_bytes", "exact"),
    ComparedFigure("memory", "latency_summary", "arena_bytes", "exact"),
    ComparedFigure("memory", "latency_summary", "peak_resident_bytes", "single"),
    _ceiling("peak_flop_per_s", "peak_halves_difference_share"),
    _ceiling("int8_op_per_s", "int8_halves_difference_share"),
    _ceiling("memory_bytes_per_s", "memory_halves_difference_share"),
    ComparedFigure("energy", "energy_summary", "energy_uj", "interval"),
    ComparedFigure("energy", "energy_summary", "average_power_w", "single"),
    *(
        ComparedFigure("load", "load_summary", f"request_{name}_us", "interval")
        for name in ("p50", "p90", "p95", "p99")
    ),
    ComparedFigure("load", "load_summary", "answered_requests_per_s", "single", is_less_better=False),
    ComparedFigure("load", "load_summary", "peak_resident_bytes", "single"),
    ComparedFigure("counter", "hardware_counters", "instructions_per_cycle", "single", is_less_better=False),
    ComparedFigure("counter", "hardware_counters", "cache_miss_share", "single"),
)


def figure_difference(figure: ComparedFigure, baselines: Sequence[Document], candidate: Document) -> Difference | None:
    """Return the difference of a figure from one baseline or several; None where a side does not have it."""
    known = [one for one in baselines if one.get(figure.name)]
    if not known or not candidate.get(figure.name):
        return None
    values = sorted(float(one[figure.name]) for one in known)
    before, after = values[len(values) // 2], float(candidate[figure.name])
    if figure.spread == "halves":
        return _of_halves(before, after, [one.get(figure.halves) for one in (*known, candidate)])
    if figure.spread != "exact" and len(values) >= LEAST_REPEATS:
        return _against_repeats(values, before, after)
    if figure.spread == "interval":
        return _of_intervals(figure, known, candidate, before, after)
    return Difference(before, after, after / before - 1)


def _of_halves(before: float, after: float, apart: Sequence[Any]) -> Difference:
    """Return the difference of two ceilings: a repeat may be as far away as the halves of a measurement are."""
    share = after / before - 1
    known = [float(one) for one in apart if one is not None]
    if len(known) < len(apart):
        return Difference(before, after, share)
    floor = math.hypot(max(known[:-1]), known[-1])
    return Difference(before, after, share, share - floor, share + floor, floor)


LEAST_REPEATS = 5  # baselines that say how far a repeat is away


def _against_repeats(values: Sequence[float], before: float, after: float) -> Difference:
    """Return the difference from several baselines, within the range that one more of them would have.

    Of k repeats, the next one is outside their range with probability 2 / (k + 1), whatever the distribution. Half of
    the range is added on both sides.
    """
    reach = (values[-1] - values[0]) / before
    share = after / before - 1
    return Difference(before, after, share, share - reach, share + reach, reach)


def _of_intervals(
    figure: ComparedFigure, baselines: Sequence[Document], candidate: Document, before: float, after: float
) -> Difference:
    """Return the difference of two estimates with intervals, by the squares of their reaches (Zou and Donner 2008).

    Limits of 95 % on each side give a difference 95 % on each side: its interval is one of 90 %.
    """
    stem, _, unit = figure.name.rpartition("_")
    ends = (f"{stem}_low_{unit}", f"{stem}_high_{unit}")
    lows, highs = ([one[end] for one in (*baselines, candidate) if one.get(end) is not None] for end in ends)
    share = after / before - 1
    if len(lows) + len(highs) < 2 * (len(baselines) + 1):
        return Difference(before, after, share)
    (low_before, low_after), (high_before, high_after) = (min(lows[:-1]), lows[-1]), (max(highs[:-1]), highs[-1])
    below = math.hypot(after - low_after, high_before - before)
    above = math.hypot(high_after - after, before - low_before)
    floor = max(before - low_before, high_before - before) / before
    return Difference(before, after, share, share - below / before, share + above / before, floor)

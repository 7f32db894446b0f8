"""Speed against agreement: what a plan gains in each number format or mixture, and how often it agrees with float."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from common.table_rows import FormatPrecisionRow, PrecisionMixturesRow, WhatIfPlansRow
from common.view.plan.answer.precision_text import arithmetic_row, is_broken, is_on_samples
from common.view.plan.what_if_text import PLAN
from common.view.style import (
    BLACK,
    BLUE,
    ORANGE,
    explain_marks,
    legend_mark,
    list_entries,
    new_figure,
    number_marks,
    on_screen,
    with_side_column,
)
from common.view.text import percent, significant

if TYPE_CHECKING:
    from common.view.plan.answer.precision_text import JudgedRow

FLOAT, SUBJECT, MIXTURE = "fp32", "precision", "mixture"
MARK_POINTS, ROOM = 8.0, 1.15  # of the largest gain


@dataclass(frozen=True, slots=True)
class FormatPoint:
    """One number format, or a mixture of two.

    Attributes:
        gain: end-to-end speedup of the plan in it, with the limits that hold 90 %.
        agreement: share of samples with the same likeliest class as in float, with limits at 95 %.
        is_broken: whether the share is below the bound that was asked for.
    """

    name: str
    gain: tuple[float, float, float]
    agreement: tuple[float, float, float]
    is_broken: bool

    def is_beaten(self, others: Sequence[FormatPoint]) -> bool:
        """Whether another format is at least as good in both figures, and better in one."""
        own = self.gain[0], self.agreement[0]
        theirs = [(other.gain[0], other.agreement[0]) for other in others]
        return any(all(map(float.__ge__, each, own)) and each != own for each in theirs)


def draw_formats(
    plans: Sequence[WhatIfPlansRow],
    formats: Sequence[FormatPrecisionRow],
    mixtures: Sequence[PrecisionMixturesRow] = (),
    warning: str = "",
) -> Figure | None:
    """Draw each format and mixture that was planned and judged on samples; return None for fewer than two.

    Args:
        warning: the title where the host's times decide nothing.
    """
    points = sorted(format_points(plans, formats, mixtures), key=lambda point: -point.gain[0])
    if len(points) < 2:
        return None
    figure = new_figure(warning or _title(points), _subtitle(formats))
    axes, side = with_side_column(figure)
    for point in points:
        colour = ORANGE if point.is_broken else BLUE
        face = "none" if point.is_beaten(points) else colour
        (share, *shares), (gain, *gains) = point.agreement, point.gain
        axes.plot([100 * end for end in shares], [gain] * 2, color=colour, linewidth=1.0)
        axes.plot([100 * share] * 2, gains, color=colour, linewidth=1.0)
        axes.plot(100 * share, gain, "o", color=colour, markerfacecolor=face, markersize=MARK_POINTS)
    axes.axhline(1.0, color=BLACK, linewidth=1.0, linestyle=(0, (2, 1)))
    axes.set(xlabel="samples whose likeliest class is that of float (%)", ylabel="end-to-end speedup")
    axes.set(xlim=_shares_shown(points), ylim=(0, ROOM * max(max(point.gain) for point in points)))
    places = {rank: (100 * point.agreement[0], point.gain[0]) for rank, point in enumerate(points, start=1)}
    others = on_screen(axes, [*places.values()])
    number_marks(axes, places, [MARK_POINTS / 2 * axes.figure.dpi / 72] * len(places), others)
    list_entries(side, "Formats, by speedup", [point.name for point in points], [*map(_figures, points)])
    explain_marks(side, [*_marks(points), Line2D([], [], color=BLACK, linestyle=(0, (2, 1)), label="the host alone")])
    return figure


def format_points(
    plans: Sequence[WhatIfPlansRow],
    formats: Sequence[FormatPrecisionRow],
    mixtures: Sequence[PrecisionMixturesRow] = (),
) -> list[FormatPoint]:
    """Return the formats and mixtures that were planned and judged; fp32 agrees with itself."""
    points = {}
    by_index = {row["mixture_index"]: row for row in mixtures}
    for plan in plans:
        name, gain, index = plan["precision"], plan["latency_speedup_factor"], plan["planned_mixture_index"]
        if plan["what_if_subject"] not in (PLAN, SUBJECT, MIXTURE) or gain is None or not plan["is_judged"]:
            continue
        if index is not None:
            name = f"mixture {plan['what_if_setting']}"
            agreement, is_below = _agreement(by_index.get(index))
        elif name == FLOAT:
            agreement, is_below = (1.0, 1.0, 1.0), False
        else:
            agreement, is_below = _agreement(arithmetic_row(formats, name))
        if agreement is not None:
            low, high = plan["latency_speedup_p5_factor"], plan["latency_speedup_p95_factor"]
            limits = gain if low is None else low, gain if high is None else high
            points[name] = FormatPoint(name, (gain, *limits), agreement, is_below)
    return [*points.values()]


def _agreement(row: JudgedRow | None) -> tuple[tuple[float, float, float] | None, bool]:
    """Return the share of samples on which a format agrees, with its limits, and whether that breaks the model."""
    share = row["top1_agreement_share"] if row is not None and is_on_samples(row) else None
    if row is None or share is None:
        return None, False
    ends = row["top1_agreement_low_share"], row["top1_agreement_high_share"]
    low, high = (share if end is None else end for end in ends)
    return (share, low, high), is_broken(row)


def _title(points: Sequence[FormatPoint]) -> str:
    whole = [point for point in points if not point.is_broken]
    if not whole:
        return "The model survives none of these formats"
    best = max(whole, key=lambda point: point.gain[0])
    low, high = best.gain[1:]
    return (
        f"Of the formats that the model survives, {best.name} gains most: {significant(best.gain[0])}x "
        f"({significant(low)} to {significant(high)}), {percent(best.agreement[0])} agree"
    )


def _figures(point: FormatPoint) -> str:
    share, low, high = point.agreement
    figures = f"{significant(point.gain[0])}x, {percent(share)} agree"
    return figures if low == high else f"{figures} ({100 * low:.1f} to {100 * high:.1f})"


def _shares_shown(points: Sequence[FormatPoint]) -> tuple[float, float]:
    """Return the ends of the axis of agreement, with room for marks at both."""
    least = 100 * min(min(point.agreement) for point in points)
    room = 0.05 * max(1.0, 100 - least)
    return least - room, 100 + room


def _subtitle(formats: Sequence[FormatPrecisionRow]) -> str:
    count = max(row["judged_sample_count"] for row in formats)
    return f"each format planned anew, estimated, 90 % within the line · agreement on {count} samples, limits at 95 %"


def _marks(points: Sequence[FormatPoint]) -> list[Line2D]:
    looks = dict.fromkeys((point.is_broken, point.is_beaten(points)) for point in points)
    marks = []
    for is_below, is_beaten in looks:
        colour = ORANGE if is_below else BLUE
        label = ("broken" if is_below else "not broken") + (" (beaten)" if is_beaten else "")
        marks.append(legend_mark("o", label, color=colour, markerfacecolor="none" if is_beaten else colour))
    return marks

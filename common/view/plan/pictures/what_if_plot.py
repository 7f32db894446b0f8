"""What-if plans: a tornado of one inference, and what each number format or mixture gains and how often it agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from common.table_rows import FormatPrecisionRow, PrecisionMixturesRow, WhatIfPlansRow
from common.view.plan.answer.precision_text import arithmetic_row, is_broken, is_on_samples
from common.view.plan.what_if_text import PLAN, likely_us, of_another_host, tornado
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
from common.view.text import duration, percent, significant, span

if TYPE_CHECKING:
    from common.view.plan.answer.precision_text import JudgedRow

# A warning, where the host's times decide nothing, is the title of each picture.
FLOAT, SUBJECT, MIXTURE = "fp32", "precision", "mixture"
MARK_POINTS, ROOM = 8.0, 1.15  # of the largest gain
BAR_HEIGHT = 0.5
TORNADO_ROOM = 1.15  # of the longest inference, so that its name ends within the picture
NAME = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}


@dataclass(frozen=True, slots=True)
class FormatPoint:
    """One number format, or a mixture of two."""

    name: str
    gain: tuple[float, float, float]  # end-to-end speedup of the plan in it, with the limits that hold 90 %
    # Share of samples with the same likeliest class as in float, with limits at 95 %
    agreement: tuple[float, float, float]
    is_broken: bool  # whether the share is below the bound that was asked for

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
    """Draw each format and mixture that was planned and judged on samples; return None for fewer than two."""
    points = sorted(format_points(plans, formats, mixtures), key=lambda point: -point.gain[0])
    if len(points) < 2:
        return None
    count = max(row["judged_sample_count"] for row in formats)
    how = f"each format planned anew, estimated, 90 % within the line · agreement on {count} samples, limits at 95 %"
    figure = new_figure(warning or _title(points), how)
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
    least = 100 * min(min(point.agreement) for point in points)
    room = 0.05 * max(1.0, 100 - least)  # for marks at both ends
    axes.set(xlim=(least - room, 100 + room), ylim=(0, ROOM * max(max(point.gain) for point in points)))
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
    gain = f"{significant(best.gain[0])}x ({span(*best.gain[1:])}), {percent(best.agreement[0])} agree"
    return f"Of the formats that the model survives, {best.name} gains most: {gain}"


def _figures(point: FormatPoint) -> str:
    share, low, high = point.agreement
    figures = f"{significant(point.gain[0])}x, {percent(share)} agree"
    return figures if low == high else f"{figures} ({100 * low:.1f} to {100 * high:.1f})"


def _marks(points: Sequence[FormatPoint]) -> list[Line2D]:
    looks = dict.fromkeys((point.is_broken, point.is_beaten(points)) for point in points)
    marks = []
    for is_below, is_beaten in looks:
        colour = ORANGE if is_below else BLUE
        label = ("broken" if is_below else "not broken") + (" (beaten)" if is_beaten else "")
        marks.append(legend_mark("o", label, color=colour, markerfacecolor="none" if is_beaten else colour))
    return marks


def draw_what_if(rows: Sequence[WhatIfPlansRow], warning: str = "") -> Figure | None:
    """Draw a bar per subject from its shortest to its longest inference; return None where nothing was asked."""
    bars = tornado(rows)
    plan = next((row for row in rows if row["what_if_subject"] == PLAN), None)
    if plan is None or not bars:
        return None
    planned_ms, subject = likely_us(plan) * 1e-3, next(iter(bars))
    title = f"One inference takes {duration(likely_us(plan))} as planned; the {subject} changes it most"
    others = of_another_host(rows)
    left_out = f" · not drawn, as the profiled host is not theirs: {', '.join(others)}" if others else ""
    how = f"each question planned anew · likely case, estimated, not measured{left_out}"
    figure = new_figure(warning or title, how)
    axes = figure.add_axes((0.12, 0.12, 0.78, 0.72))
    for place, ranked in enumerate(bars.values()):
        ends = likely_us(ranked[0]) * 1e-3, likely_us(ranked[-1]) * 1e-3
        axes.barh(place, planned_ms - ends[0], BAR_HEIGHT, ends[0], color=BLUE)
        axes.barh(place, ends[1] - planned_ms, BAR_HEIGHT, planned_ms, color=ORANGE)
        for row in ranked:
            axes.plot([likely_us(row) * 1e-3] * 2, [place - 0.25, place + 0.25], color=BLACK, linewidth=0.8)
        names = (ranked[0]["what_if_setting"], ranked[-1]["what_if_setting"])
        for name, end, align in zip(names, ends, ("right", "left"), strict=True):
            axes.annotate(name, (end, place), (6 if align == "left" else -6, 0), ha=align, **NAME)  # type: ignore[arg-type]
    axes.axvline(planned_ms, color=BLACK, linewidth=1.0, linestyle=(0, (2, 1)))
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.set_xlim(0, TORNADO_ROOM * max(likely_us(ranked[-1]) for ranked in bars.values()) * 1e-3)
    axes.set_xlabel("one inference with the card (ms)")
    return figure

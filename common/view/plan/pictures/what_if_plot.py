"""Tornado of a plan: how far one inference moves with each clock, link, number format and board."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from common.table_rows import WhatIfPlansRow
from common.view.plan.what_if_text import PLAN, likely_us, of_another_host, tornado
from common.view.style import BLACK, BLUE, ORANGE, new_figure
from common.view.text import duration

BAR_HEIGHT = 0.5
ROOM = 1.15  # of the longest inference, so that its name ends within the picture
NAME = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}


def draw_what_if(rows: Sequence[WhatIfPlansRow], warning: str = "") -> Figure | None:
    """Draw a bar per subject from its shortest to its longest inference; return None where nothing was asked.

    Args:
        warning: the title where the host's times decide nothing.
    """
    bars = tornado(rows)
    plan = next((row for row in rows if row["what_if_subject"] == PLAN), None)
    if plan is None or not bars:
        return None
    planned_ms, subject = likely_us(plan) * 1e-3, next(iter(bars))
    title = f"One inference takes {duration(likely_us(plan))} as planned; the {subject} changes it most"
    figure = new_figure(warning or title, _subtitle(rows))
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
    axes.set_xlim(0, ROOM * max(likely_us(ranked[-1]) for ranked in bars.values()) * 1e-3)
    axes.set_xlabel("one inference with the card (ms)")
    return figure


def _subtitle(rows: Sequence[WhatIfPlansRow]) -> str:
    others = of_another_host(rows)
    left_out = f" · not drawn, as the profiled host is not theirs: {', '.join(others)}" if others else ""
    return f"each question planned anew · likely case, estimated, not measured{left_out}"

"""How searches of the best design converge: the lowest energy-delay product so far over its bound, by evaluations."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from common.view.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, LogLabels, label_log, new_figure
from common.view.text import percent, quantity

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION)
STYLES = ("-", "--")
LEAST_GAP = 5e-4  # less would be written as 0.0 %


class SearchCurve(NamedTuple):
    """A search: its engine, and the best product over the bound after each count of evaluations."""

    engine: str
    counts: list[int]
    ratios: list[float]


def draw_design_convergence(points: pd.DataFrame, convergence: pd.DataFrame) -> Figure | None:
    """Draw a line of steps for each search on the design of the least product, with a mark where it ended.

    An exact search has a single result, at its end. Without another search there is no curve to draw.
    """
    there = points[points["edp_pj_cycles"].notna()].sort_values("edp_pj_cycles", kind="stable")
    there = there[there["design"].isin(convergence["design"])]
    if not len(there):
        return None
    design = there.iloc[0]["design"]
    curves = _curves(there[there["design"] == design], convergence[convergence["design"] == design])
    if max(len(set(curve.ratios)) for curve in curves) == 1:
        return None
    figure = new_figure(_title(curves), f"best energy-delay product so far on {design} · modelled, not measured")
    axes = figure.add_axes((0.09, 0.11, 0.7, 0.74))
    for number, (engine, counts, ratios) in enumerate(curves):
        colour, style = COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
        label = f"{engine}: {percent(ratios[-1] - 1)} above"
        axes.step(counts, ratios, where="post", linewidth=1.5, color=colour, linestyle=style, label=label)
        axes.plot(counts[-1], ratios[-1], "o", color=colour, markersize=5)
    axes.axhline(1, color=GREY, linestyle="--", linewidth=1.2, label="floor: none is below")
    axes.set(xscale="log", yscale="log", xlabel="schedules evaluated", ylabel="product over the floor")
    axes.xaxis.set_major_formatter(LogLabels(lambda value: quantity(value, "", 1)))
    label_log(axes.yaxis)
    axes.grid(visible=True, which="major")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8.5)
    return figure


def _curves(points: pd.DataFrame, convergence: pd.DataFrame) -> list[SearchCurve]:
    curves = []
    for point in points.to_dict("records"):
        steps = convergence[convergence["search_engine"] == point["search_engine"]]
        if len(steps):
            counts = [max(1, int(count)) for count in steps["evaluation_count"]]
            ratios = [float(product) / point["bound_edp_pj_cycles"] for product in steps["best_edp_pj_cycles"]]
            end = counts[-1] if pd.isna(point["evaluation_count"]) else max(counts[-1], int(point["evaluation_count"]))
            curves.append(SearchCurve(point["search_engine"], [*counts, end], [*ratios, ratios[-1]]))
    return sorted(curves, key=lambda curve: curve.ratios[-1])


def _title(curves: list[SearchCurve]) -> str:
    nearest, *others = curves
    above = nearest.ratios[-1] - 1
    ends = "reaches the floor" if above < LEAST_GAP else f"comes to {percent(above)} above the floor"
    text = f"{nearest.engine} {ends} after {nearest.counts[-2]:,} evaluations"
    if not others:
        return text
    return (
        f"{text}; {others[0].engine} ends {percent(others[0].ratios[-1] - 1)} above it after {others[0].counts[-2]:,}"
    )

"""The energy-delay product by the size of a memory on the chip, and how searches of the best design converge to it."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from common.view.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, LogLabels, label_log, new_figure
from common.view.text import percent, quantity

CURVES = {
    "unfused_edp_pj_cycles": ("without fusion", ORANGE, "s-"),
    "edp_pj_cycles": ("best schedule found", BLUE, "o-"),
    "bound_edp_pj_cycles": ("floor: none is below", GREY, "--"),
}
MOST_TICKS, DECADE = 12, 10
LEAST_GAP = 5e-4  # less would be written as 0.0 %


def draw_design_buffer(points: pd.DataFrame) -> Figure | None:
    """Draw the least of design_points at each size of the memory that has most; return None where none has two."""
    there = points[points["edp_pj_cycles"].notna()]
    memory = swept_memory(there)
    if memory is None:
        return None
    sizes_kib = there["memory_sizes_kib"].map(lambda sizes: float(sizes[memory]))
    least = there.groupby(sizes_kib)[list(CURVES)].min()
    figure = new_figure(_title(memory, least), _subtitle(there, least))
    axes = figure.add_axes((0.09, 0.11, 0.73, 0.74))
    axes.plot(sizes_kib, there["edp_pj_cycles"], ".", color=BLUE, alpha=0.35, markersize=4)
    for name, (label, colour, form) in CURVES.items():
        known = least[name].dropna()
        if len(known):
            axes.plot(known.index, known, form, color=colour, label=label, markersize=5)
    _set_scales(axes, memory, list(least.index))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8.5)
    return figure


def swept_memory(points: pd.DataFrame) -> str | None:
    """Return the memory of most sizes among designs of one array, because other arrays have other memories."""
    arrays = points.groupby(["array_row_count", "array_column_count"])["memory_sizes_kib"]
    counts = [pd.DataFrame(list(sizes)).nunique() for _, sizes in arrays]
    most = pd.concat(counts).groupby(level=0, sort=False).max() if counts else pd.Series(dtype=int)
    return str(most.idxmax()) if (most > 1).any() else None


def _set_scales(axes: Axes, memory: str, sizes_kib: list[float]) -> None:
    axes.set(xscale="log", yscale="log", xlabel=f"{memory} (KiB)", ylabel="energy-delay product (pJ·cycles)")
    ticks = sizes_kib[:: -(-len(sizes_kib) // MOST_TICKS)]
    axes.set_xticks(ticks, [f"{size:g}" for size in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    label_log(axes.yaxis, "{:.0e}".format)
    low, high = axes.get_ylim()
    axes.grid(visible=True, which="major" if high > DECADE * low else "both", axis="y")


def _title(memory: str, least: pd.DataFrame) -> str:
    best = least.iloc[int(least["edp_pj_cycles"].to_numpy().argmin())]
    size = f"A {memory} of {best.name:g} KiB is best"
    gap = best["edp_pj_cycles"] / best["bound_edp_pj_cycles"] - 1
    reached = "the floor is reached" if gap < LEAST_GAP else f"the product is {percent(gap)} above the floor"
    if pd.isna(gap):  # FA-DOSA's accounting has no floor
        reached = "no floor is known"
    if pd.isna(best["unfused_edp_pj_cycles"]):
        return f"{size}: {reached}"
    return f"{size}: fusion saves {percent(1 - best['edp_pj_cycles'] / best['unfused_edp_pj_cycles'])}, and {reached}"


def _subtitle(there: pd.DataFrame, least: pd.DataFrame) -> str:
    several = ", the best of all designs with that memory; the others are dots" if len(there) > len(least) else ""
    return f"energy-delay product of one inference at each size{several} · modelled, not measured"


COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION)
STYLES = ("-", "--")


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
    figure = new_figure(
        _title_of_searches(curves), f"best energy-delay product so far on {design} · modelled, not measured"
    )
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


def _title_of_searches(curves: list[SearchCurve]) -> str:
    nearest, *others = curves
    above = nearest.ratios[-1] - 1
    ends = "reaches the floor" if above < LEAST_GAP else f"comes to {percent(above)} above the floor"
    text = f"{nearest.engine} {ends} after {nearest.counts[-2]:,} evaluations"
    for second in others[:1]:
        text += f"; {second.engine} ends {percent(second.ratios[-1] - 1)} above it after {second.counts[-2]:,}"
    return text

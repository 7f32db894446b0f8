"""The energy-delay product against the size of a memory on the chip: fused, without fusion, and the physical floor."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from common.view.style import BLUE, GREY, ORANGE, label_log, new_figure
from common.view.text import percent

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
    counts: dict[str, int] = {}
    for _, sizes in arrays:
        for memory, values in pd.DataFrame(list(sizes)).items():
            counts[str(memory)] = max(counts.get(str(memory), 0), values.nunique())
    swept = {memory: count for memory, count in counts.items() if count > 1}
    return max(swept, key=lambda memory: swept[memory]) if swept else None


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
    reached = _above_floor(best["edp_pj_cycles"] / best["bound_edp_pj_cycles"] - 1)
    if pd.isna(best["unfused_edp_pj_cycles"]):
        return f"{size}: {reached}"
    return f"{size}: fusion saves {percent(1 - best['edp_pj_cycles'] / best['unfused_edp_pj_cycles'])}, and {reached}"


def _above_floor(gap: float) -> str:
    """Return how far the best product is above the floor; FA-DOSA's accounting has none."""
    if pd.isna(gap):
        return "no floor is known"
    return "the floor is reached" if gap < LEAST_GAP else f"the product is {percent(gap)} above the floor"


def _subtitle(there: pd.DataFrame, least: pd.DataFrame) -> str:
    several = ", the best of all designs with that memory; the others are dots" if len(there) > len(least) else ""
    return f"energy-delay product of one inference at each size{several} · modelled, not measured"

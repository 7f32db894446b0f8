"""Evaluated accelerators: energy against cycles, and the energy-delay product against the area."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from common.view.design.design_text import PICO, DesignNames, design_names
from common.view.style import (
    BLUE,
    GREY,
    LIST_ROWS,
    ORANGE,
    label_log,
    list_entries,
    new_figure,
    number_marks,
    on_screen,
)
from common.view.text import quantity, significant

MOST_LISTED = 12
MARK_POINTS = 5.0
MARGIN = 1.25  # of the axes around the outermost marks, as a factor


def draw_design_front(points: pd.DataFrame) -> Figure | None:
    """Draw the rows of design_points that fit; the front is filled, and its best designs are numbered and listed."""
    there = points[points["edp_pj_cycles"].notna()].sort_values("edp_pj_cycles", kind="stable")
    if len(there) < 2:
        return None
    has_areas = bool(there["chip_mm2"].notna().all())
    names = design_names(there)
    figure = new_figure(_title(there), _subtitle(points, there, names))
    widths = (4, 4, 3.4) if has_areas else (8, 3.4)
    room = {"left": 0.07, "right": 0.985, "bottom": 0.1, "top": 0.83, "wspace": 0.27}
    costs, *areas, side = figure.subplots(1, len(widths), width_ratios=widths, gridspec_kw=room)
    energy = ("energy_j", "energy of one inference", "J")
    _draw(costs, there, ("modelled_cycles", "cycles of one inference", ""), energy)
    left, right = costs.get_xlim()
    cycles = np.geomspace(left, right, 2)
    same = float(there["edp_pj_cycles"].min()) * PICO / cycles
    costs.plot(cycles, same, color=ORANGE, linestyle="--", linewidth=1.2, zorder=0)
    if areas:
        product = ("edp_pj_cycles", "energy-delay product (pJ·cycles)", None)
        _draw(areas[0], there, ("chip_mm2", "area of the array and memories (mm²)", None), product)
        ordered = there.sort_values("chip_mm2")
        least = ordered["edp_pj_cycles"].cummin()
        areas[0].step(ordered["chip_mm2"], least, where="post", color=ORANGE, linewidth=1.2, zorder=0)
    side.set_axis_off()
    side.set(xlim=(0, 1), ylim=(LIST_ROWS, 0))
    front = there[there["is_pareto"]].head(MOST_LISTED).to_dict("records")
    list_entries(side, "No design beats these", [names.of[row["design"]] for row in front], list(map(_figures, front)))
    within = [Line2D([], [], color=ORANGE, label="best within the area")] if has_areas else []
    handles = [
        Line2D([], [], color=BLUE, marker="o", linestyle="none", label="on the front"),
        Line2D([], [], color=GREY, marker="o", markerfacecolor="none", linestyle="none", label="beaten"),
        Line2D([], [], color=ORANGE, linestyle="--", label="same product as the best design"),
        *within,
    ]
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", bbox_to_anchor=(0.01, 0.9))
    return figure


def _draw(axes: Axes, there: pd.DataFrame, x: tuple[str, str, str | None], y: tuple[str, str, str | None]) -> None:
    """Draw the designs as marks; ``x`` and ``y`` are a column, its name, and its unit (None: the name has it)."""
    rows = there.assign(energy_j=there["modelled_energy_pj"] * PICO)
    front = rows[rows["is_pareto"]]
    beaten = rows[~rows["is_pareto"]]
    axes.plot(beaten[x[0]], beaten[y[0]], "o", color=GREY, markersize=MARK_POINTS, markerfacecolor="none")
    axes.plot(front[x[0]], front[y[0]], "o", color=BLUE, markersize=MARK_POINTS)
    axes.set(xscale="log", yscale="log", xlabel=x[1], ylabel=y[1])
    axes.set(xlim=_around(rows[x[0]]), ylim=_around(rows[y[0]]))
    for axis, unit in ((axes.xaxis, x[2]), (axes.yaxis, y[2])):
        label_log(axis, "{:g}".format if unit is None else partial(_in, unit))
    axes.tick_params(which="both", labelsize=8)
    axes.grid(visible=True, which="major")
    _number(axes, front[[x[0], y[0]]].to_numpy(float), beaten[[x[0], y[0]]].to_numpy(float))


def _in(unit: str, value: float) -> str:
    """Write a value of an axis: ``3 M``, ``1.8 mJ``."""
    return quantity(value, unit, 2).replace(".0 ", " ")


def _around(values: pd.Series) -> tuple[float, float]:
    return float(values.min()) / MARGIN, float(values.max()) * MARGIN


def _number(axes: Axes, front: np.ndarray, beaten: np.ndarray) -> None:
    """Write the number of each listed design beside its mark, with a line to it."""
    listed = {number: (x, y) for number, (x, y) in enumerate(front[:MOST_LISTED], start=1)}
    others = on_screen(axes, [(x, y) for x, y in (*front[MOST_LISTED:], *beaten)])
    number_marks(axes, listed, [MARK_POINTS / 2 * axes.figure.dpi / 72] * len(listed), others)


def _title(there: pd.DataFrame) -> str:
    count = int(there["is_pareto"].sum())
    front = f"{count} of {len(there)} designs are" if count > 1 else f"1 of {len(there)} designs is"
    return f"{there.iloc[0]['design']} has the least product of energy and cycles; {front} on the front"


def _subtitle(points: pd.DataFrame, there: pd.DataFrame, names: DesignNames) -> str:
    what = "cycles, energy or area" if there["chip_mm2"].notna().all() else "cycles or energy"
    parts = [f"on the front: no design is better in {what} and as good in the rest", "modelled, not measured"]
    if names.explanation:
        parts.append(f"names are {names.explanation}")
    if missing := len(points) - len(there):
        parts.append(f"nothing fits in {missing} more")
    return " · ".join(parts)


def _figures(row: dict[Any, Any]) -> str:
    energy, cycles = quantity(row["modelled_energy_pj"] * PICO, "J"), quantity(row["modelled_cycles"], "")
    area = "" if pd.isna(row["chip_mm2"]) else f", {significant(row['chip_mm2'])} mm²"
    return f"{row['edp_pj_cycles']:.2e}: {energy}, {cycles}{area}"

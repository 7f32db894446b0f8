"""Energy of accelerators by part: the multipliers and each memory, of the best designs and of the best one's groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from common.messages.names import shorten
from common.view.design.design_text import PICO, DesignNames, design_names
from common.view.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, new_figure
from common.view.text import percent, quantity

COLOURS = (ORANGE, BLUE, GREEN, SKY, PURPLE, VERMILLION, YELLOW)
MOST_BARS, LABEL_COLUMNS = 12, 30


def draw_design_energy(points: pd.DataFrame, groups: pd.DataFrame) -> Figure | None:
    """Draw stacked bars of the best rows of design_points, and of the design_groups of the best one."""
    there = points[points["edp_pj_cycles"].notna()].sort_values("edp_pj_cycles", kind="stable")
    own = {str(design): _by_group(rows) for design, rows in groups.groupby("design", sort=False)}
    best = [row for row in there.head(MOST_BARS).to_dict("records") if row["design"] in own]
    if not best:
        return None
    names = design_names(there)
    designs = pd.DataFrame([own[row["design"]].sum() for row in best], index=[names.of[row["design"]] for row in best])
    designs = designs.loc[:, designs.sum() > 0]
    colours = dict(zip(designs.columns, COLOURS, strict=False))
    figure = new_figure(_title(best[0], designs.iloc[0]), _subtitle(best, there, names))
    if len(best) > 1:
        room = {"left": 0.15, "right": 0.94, "bottom": 0.1, "top": 0.78, "wspace": 0.85}
        left, axes = figure.subplots(1, 2, gridspec_kw=room)
        _draw_bars(left, designs, colours, "by design, the least product first")
    else:
        axes = figure.add_axes((0.26, 0.1, 0.66, 0.68))
    costliest = _costliest(own[best[0]["design"]][list(designs.columns)])
    _draw_bars(axes, costliest, colours, "by group of the best design (last layer)")
    handles = [Patch(color=colour, label=part) for part, colour in colours.items()]
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", bbox_to_anchor=(0.01, 0.89))
    return figure


def _by_group(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the energy of each group in pJ by part, under the name of its last layer."""
    counts = [f" +{count - 1}" if count > 1 else "" for count in rows["layer_count"]]
    pairs = zip(rows["last_layer"], counts, strict=True)
    names = [shorten(name, LABEL_COLUMNS - len(more)) + more for name, more in pairs]
    return pd.DataFrame(list(rows["energy_parts_pj"]), index=names)


def _costliest(groups: pd.DataFrame) -> pd.DataFrame:
    """Return the groups by falling energy, small ones in one row."""
    ordered = groups.iloc[groups.sum(axis=1).argsort(kind="stable")[::-1]]
    first, rest = ordered.head(MOST_BARS), ordered.iloc[MOST_BARS:]
    if len(rest) < 2:
        return ordered
    return pd.concat([first, pd.DataFrame([rest.sum()], index=[f"{len(rest)} other groups"])])


def _title(best: Mapping[Any, Any], parts: pd.Series) -> str:
    energy = quantity(best["modelled_energy_pj"] * PICO, "J")
    share = percent(parts.max() / parts.sum() if parts.sum() else None, 0)
    return f"An inference on {best['design']} takes {energy}, {share} of it in {parts.idxmax()}"


def _subtitle(best: Sequence[Mapping[Any, Any]], there: pd.DataFrame, names: DesignNames) -> str:
    parts = ["energy of the multipliers and of each memory · modelled, not measured"]
    if len(best) > 1 and names.explanation:
        parts.append(f"names are {names.explanation}")
    if len(best) < len(there):
        parts.append(f"the {len(best)} best of {len(there)} designs")
    return " · ".join(parts)


def _draw_bars(axes: Axes, rows: pd.DataFrame, colours: Mapping[str, str], title: str) -> None:
    joules = rows.fillna(0.0) * PICO
    left = pd.Series(0.0, index=range(len(rows)))
    for part in joules:
        width = joules[part].to_numpy()
        axes.barh(left.index, width, left=left, color=colours[str(part)], edgecolor="white", linewidth=0.5)
        left += width
    for place, end in enumerate(left):
        axes.annotate(quantity(end, "J"), (end, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(left.index, list(rows.index))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda value, _: quantity(value, "J"))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_title(title, fontsize=10)
    axes.set_xlim(0, float(left.max()) * 1.05 or 1.0)
    axes.grid(visible=True, axis="x")
    axes.invert_yaxis()

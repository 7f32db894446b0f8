"""Resources of a board by kind and region: used by the plan, limit of timing closure, and kept by the shell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from common.view.style import BLACK, GREEN, GREY, PALE, VERMILLION, new_figure
from common.view.text import percent, significant

NAMES = {
    **{"lut": "LUT", "ff": "flip-flops", "bram36": "block RAM (36 Kb)", "uram": "UltraRAM", "dsp": "DSP"},
    "memory_channels": "memory channels",
}
BAR_HEIGHT = 0.6
COLUMNS = 3
LEAST_ROWS = 3  # of a panel, so that a lone bar is no block


def draw_resources(resources: pd.DataFrame) -> Figure | None:
    """Draw board_resources: a panel for each kind, a bar for each region; return None where the plan uses nothing."""
    if not (resources["used_count"] > 0).any():
        return None
    there = _known_rows(resources[resources["total_count"] > 0])
    kinds = [kind for kind in NAMES if kind in set(there["resource"])]
    figure = new_figure(_title(there), _subtitle(there))
    rows = -(-len(kinds) // COLUMNS)
    grid = GridSpec(rows, COLUMNS, figure, left=0.06, right=0.97, bottom=0.09, top=0.79, hspace=0.5, wspace=0.24)
    regions = list(dict.fromkeys(there["region"]))
    for place, kind in enumerate(kinds):
        axes = figure.add_subplot(grid[divmod(place, COLUMNS)])
        of_kind = there[there["resource"] == kind]
        _draw(axes, of_kind.to_dict("records"), is_partial=_has_spanning(of_kind) and kind != "memory_channels")
        axes.set_ylim(max(len(regions), LEAST_ROWS) - 0.5, -0.85)
        axes.set_title(NAMES[kind], fontsize=10)
    has_excess = any(_fill(row) > 1 + 1e-9 for row in there.to_dict("records"))
    handles = [
        Patch(color=GREEN, label="used by the plan"),
        *([Patch(color=VERMILLION, label="used, above the limit")] if has_excess else []),
        Line2D([], [], color=BLACK, linewidth=1.4, label="timing limit"),
        Patch(facecolor="white", edgecolor=GREY, hatch="////", label="kept by the shell"),
    ]
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", bbox_to_anchor=(0.01, 0.89), fontsize=8.5)
    return figure


def _known_rows(resources: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose use is known: where every engine spans regions, those of the board alone.

    An engine that spans regions uses some of each. Nobody knows how much before it is placed, so it is no use of 0.
    """
    is_board = (resources["region"] == "board") | (resources["resource"] == "memory_channels")
    return resources[is_board] if not (resources.loc[~is_board, "used_count"] > 0).any() else resources


def _fill(row: Mapping[Any, Any]) -> float:
    """Return used resources over the limit of timing closure."""
    return float(row["used_count"] / row["budget_count"]) if row["budget_count"] else 0.0


def _title(resources: pd.DataFrame) -> str:
    tightest = max(resources.to_dict("records"), key=_fill)
    where = "" if tightest["region"] == "board" else f" in {tightest['region']}"
    kind = NAMES[tightest["resource"]]
    return f"The tightest resource is {kind}{where}: {percent(_fill(tightest), 0)} of the timing limit"


def _subtitle(resources: pd.DataFrame) -> str:
    parts = [resources["board"].iloc[0], "bars are shares of the device; numbers are used / timing limit"]
    regional = resources[resources["resource"] != "memory_channels"]
    if _has_spanning(regional):
        parts.append("engines that span regions count for the board only")
    return " · ".join(parts)


def _has_spanning(resources: pd.DataFrame) -> bool:
    """Return whether the board's use is more than that of its regions."""
    is_whole, used = resources["region"] == "board", resources["used_count"]
    return bool(used[is_whole].sum() > used[~is_whole].sum() * (1 + 1e-9))


def _draw(axes: Axes, rows: list[dict[Any, Any]], *, is_partial: bool) -> None:
    """Draw a bar for each region; where engines span regions, a region has at least the use of its own engines."""
    for place, row in enumerate(rows):
        total, used, budget = row["total_count"], row["used_count"], row["budget_count"]
        shell = 1 - row["usable_count"] / total
        colour = VERMILLION if _fill(row) > 1 + 1e-9 else GREEN
        axes.barh(place, 1, BAR_HEIGHT, color=PALE)
        axes.barh(place, shell, BAR_HEIGHT, 1 - shell, facecolor="white", edgecolor=GREY, hatch="////", linewidth=0)
        axes.barh(place, used / total, BAR_HEIGHT * 0.62, color=colour)
        axes.plot([budget / total] * 2, [place - BAR_HEIGHT / 2, place + BAR_HEIGHT / 2], color=BLACK, linewidth=1.4)
        least = "at least " if is_partial and row["region"] != "board" else ""
        text = f"{least}{_count(used)} / {_count(math.floor(budget + 1e-9))}"
        axes.text(0.012, place - BAR_HEIGHT / 2 - 0.02, text, fontsize=7.5, color=BLACK, va="bottom")
    axes.set_xlim(0, 1)
    axes.set_yticks(range(len(rows)), [row["region"] for row in rows])
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
    axes.tick_params(axis="both", length=0, labelsize=8)


def _count(value: float) -> str:
    """Write a count; from ten thousand on in thousands."""
    return f"{significant(value / 1e3)}k" if value >= 1e4 else f"{value:g}"

"""Differences from the baseline with their intervals, over what a repeat scatters anyway."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.names import shorten
from common.view.comparison.comparison_text import change_text
from common.view.node_labels import labels_of
from common.view.style import BLACK, BLUE, GREEN, GREY, PALE, VERMILLION, new_figure
from common.view.text import distinct, duration

MOST_BARS = 24
MOST_NAMED = 3
LABEL_WIDTH = 34
COLOURS = {"regressed": VERMILLION, "improved": GREEN, "unchanged": BLUE, "undecided": GREY}
MARKERS = {"regressed": "D", "improved": "s", "unchanged": "o", "undecided": "o"}


def draw_comparison(rows: pd.DataFrame) -> Figure | None:
    """Draw the figures of the whole, then the nodes that move the latency most, of the first folder compared.

    Args:
        rows: comparison.
    """
    of_one = rows[rows["compared_folder"] == rows["compared_folder"].iloc[0]]
    known = of_one[of_one["difference_low_share"].notna() & of_one["noise_floor_share"].notna()]
    nodes = known[known["compared_kind"] == "node"]
    nodes = nodes.loc[nodes["latency_change_share"].abs().sort_values(ascending=False, kind="stable").index]
    whole = known[~known["compared_kind"].isin(["node", "op_type"])]
    shown = pd.concat([whole, nodes]).head(MOST_BARS)
    if shown.empty:
        return None
    left_out = len(known) - len(shown)
    rest = f" · {left_out} more in comparison.csv" if left_out else ""
    figure = new_figure(_title(of_one), f"bars: 95 % interval · grey: what a repeat scatters anyway{rest}")
    axes = figure.add_axes((0.27, 0.12, 0.7, 0.75))
    _draw(axes, shown)
    axes.set_xlabel(f"difference from the baseline (%){_alone(of_one)}")
    return figure


def _alone(rows: pd.DataFrame) -> str:
    """Return the nodes that one side alone executes, as a line; they have no difference that could be drawn."""
    nodes: list[Any] = rows[(rows["compared_kind"] == "node") & (rows["difference_low_share"].isna())].to_dict(
        "records"
    )
    alone = [row for row in nodes if str(row["verdict_reason"]).startswith("only")]
    alone.sort(key=lambda row: -abs(row["candidate_value"] - row["baseline_value"]))
    if not alone:
        return ""
    names = [
        f"{row['compared_subject']} ({duration(row['candidate_value'] or row['baseline_value'])})" for row in alone
    ]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"\nonly one side executes {', '.join(shorten(name, LABEL_WIDTH) for name in names[:MOST_NAMED])}{more}"


def _title(rows: pd.DataFrame) -> str:
    whole: list[Any] = rows[rows["compared_kind"] == "end_to_end"].to_dict("records")
    head = f"latency {whole[0]['comparison_verdict']}: {change_text(whole[0])}" if whole else "No latency to compare"
    nodes = rows[rows["compared_kind"] == "node"]
    changed = int(nodes["comparison_verdict"].isin(["regressed", "improved"]).sum())
    return f"{head[0].upper()}{head[1:]}; {changed} of {len(nodes)} groups of nodes changed"


def _draw(axes: Axes, rows: pd.DataFrame) -> None:
    short = labels_of(rows.rename(columns={"compared_subject": "executed_node"}))
    names = [short[row["compared_subject"]] or row["compared_figure"] for row in rows.to_dict("records")]
    labels = distinct(names, LABEL_WIDTH)
    for place, row in enumerate(rows.to_dict("records")):
        share, low, high, floor = (
            100 * row[f"{name}_share"] for name in ("difference", "difference_low", "difference_high", "noise_floor")
        )
        colour = COLOURS[row["comparison_verdict"]]
        axes.barh(place, 2 * floor, left=-floor, height=0.75, color=PALE)
        axes.plot([low, high], [place, place], color=colour, linewidth=2)
        axes.plot(share, place, MARKERS[row["comparison_verdict"]], color=colour, markersize=5)
    for verdict in dict.fromkeys(rows["comparison_verdict"]):
        axes.plot([], [], MARKERS[verdict], color=COLOURS[verdict], label=verdict)
    ends = float(rows[["difference_low_share", "difference_high_share"]].abs().to_numpy().max())
    reach = 130 * min(ends, 2 * float(rows["difference_share"].abs().max()))  # one wide interval hides no other
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(-reach or -1, reach or 1))
    axes.set_yticks(range(len(rows)), [labels[name] for name in names])
    axes.axvline(0, color=BLACK, linewidth=0.8)
    axes.grid(visible=True, axis="x")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4)

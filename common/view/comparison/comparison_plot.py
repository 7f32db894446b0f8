"""Differences from the baseline with their intervals, over what a repeat scatters anyway."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.messages.names import shorten
from common.table_rows import ComparisonRow
from common.view.comparison.comparison_tables import LOUD, change_text
from common.view.node_labels import label_nodes, typed_sources
from common.view.style import BLACK, BLUE, GREEN, GREY, PALE, VERMILLION, new_figure
from common.view.text import distinct, duration

MOST_BARS = 24
MOST_NAMED = 3
LABEL_WIDTH = 34
COLOURS = {"regressed": VERMILLION, "improved": GREEN, "unchanged": BLUE, "undecided": GREY}
MARKERS = {"regressed": "D", "improved": "s", "unchanged": "o", "undecided": "o"}


def draw_comparison(rows: Sequence[ComparisonRow]) -> Figure | None:
    """Draw the figures of the whole, then the nodes that move the latency most, of the first folder compared."""
    of_one = [row for row in rows if row["compared_folder"] == rows[0]["compared_folder"]]
    known = [row for row in of_one if row["difference_low_share"] is not None and row["noise_floor_share"] is not None]
    nodes = [row for row in known if row["compared_kind"] == "node"]
    nodes.sort(key=lambda row: -abs(row["latency_change_share"] or 0.0))
    whole = [row for row in known if row["compared_kind"] not in ("node", "op_type")]
    shown = [*whole, *nodes][:MOST_BARS]
    if not shown:
        return None
    left_out = len(known) - len(shown)
    more = f" · {left_out} more in comparison.csv" if left_out else ""
    figure = new_figure(_title(of_one), f"bars: 95 % interval · grey: what a repeat scatters anyway{more}")
    axes = figure.add_axes((0.27, 0.12, 0.7, 0.75))
    _draw(axes, shown)
    axes.set_xlabel(f"difference from the baseline (%){_alone(of_one)}")
    return figure


def _alone(rows: Sequence[ComparisonRow]) -> str:
    """Return the nodes that one side alone executes, as a line; they have no difference that could be drawn."""
    nodes = [row for row in rows if row["compared_kind"] == "node" and row["difference_low_share"] is None]
    alone = [row for row in nodes if row["verdict_reason"].startswith("only")]
    alone.sort(key=lambda row: -abs(row["candidate_value"] - row["baseline_value"]))
    if not alone:
        return ""
    names = [
        f"{row['compared_subject']} ({duration(row['candidate_value'] or row['baseline_value'])})" for row in alone
    ]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"\nonly one side executes {', '.join(shorten(name, LABEL_WIDTH) for name in names[:MOST_NAMED])}{more}"


def _title(rows: Sequence[ComparisonRow]) -> str:
    latency = next((row for row in rows if row["compared_kind"] == "end_to_end"), None)
    head = f"latency {latency['comparison_verdict']}: {change_text(latency)}" if latency else "No latency to compare"
    nodes = [row for row in rows if row["compared_kind"] == "node"]
    changed = sum(row["comparison_verdict"] in LOUD for row in nodes)
    return f"{head[0].upper()}{head[1:]}; {changed} of {len(nodes)} groups of nodes changed"


def _draw(axes: Axes, rows: Sequence[ComparisonRow]) -> None:
    short = label_nodes({row["compared_subject"]: typed_sources(row["source_nodes"]) for row in rows})
    names = [short[row["compared_subject"]] or row["compared_figure"] for row in rows]
    labels = distinct(names, LABEL_WIDTH)
    for place, row in enumerate(rows):
        low, share, high = (100 * value for value in _interval(row))
        floor, colour = 100 * (row["noise_floor_share"] or 0.0), COLOURS[row["comparison_verdict"]]
        axes.barh(place, 2 * floor, left=-floor, height=0.75, color=PALE)
        axes.plot([low, high], [place, place], color=colour, linewidth=2)
        axes.plot(share, place, MARKERS[row["comparison_verdict"]], color=colour, markersize=5)
    for verdict in dict.fromkeys(row["comparison_verdict"] for row in rows):
        axes.plot([], [], MARKERS[verdict], color=COLOURS[verdict], label=verdict)
    ends = max(abs(value) for row in rows for value in _interval(row))
    reach = 130 * min(ends, 2 * max(abs(_interval(row)[1]) for row in rows))  # one wide interval hides no other
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(-reach or -1, reach or 1))
    axes.set_yticks(range(len(rows)), [labels[name] for name in names])
    axes.axvline(0, color=BLACK, linewidth=0.8)
    axes.grid(visible=True, axis="x")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4)


def _interval(row: ComparisonRow) -> tuple[float, float, float]:
    """Return the low end, the difference and the high end of a row whose interval is known."""
    low, share, high = row["difference_low_share"], row["difference_share"], row["difference_high_share"]
    assert low is not None and share is not None and high is not None
    return low, share, high

"""Schedule of the nodes: the sequential order above, the earliest starts by dependency below."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from common.view.executed_nodes import KeyNode, gap_text
from common.view.placing import spread
from common.view.style import BLACK, GREY, PALE, SKY, VERMILLION, list_keys, mark, new_figure, with_side_column
from common.view.text import duration, percent, significant

MAX_DRAWN = 600  # bars; more than the picture has room for
MAX_OUTLINED = 150  # more bars are drawn without white outlines
OUTLINE_POINTS = 0.4
MAX_LANES = 8
BAR_HEIGHT, SLACK_HEIGHT = 0.5, 0.12
VISIBLE_SHARE = 0.0005  # of the width; slack below it is rounding, or no bar
NUMBER_GAP_SHARE = 0.022  # of the width, between two numbers


def draw_schedule(schedule: pd.DataFrame, keys: Sequence[KeyNode], gap: float | None = None) -> Figure:
    """Draw a Gantt chart in lanes; ``gap`` is its share of the latency where it comes before any operator."""
    drawn = schedule.nlargest(MAX_DRAWN, "node_latency_us", keep="first").sort_values("execution_index")
    lanes = pack_lanes(drawn)
    placed = drawn[drawn["executed_node"].isin(lanes)]
    figure = new_figure(_title(schedule, gap), _subtitle(schedule, placed))
    axes, side = with_side_column(figure)
    makespan_ms = 1e-3 * float(schedule["sequential_finish_us"].max())
    axes.set(xlim=(0, makespan_ms), xlabel="time since the first node starts (ms), kernel time only")
    for y, end_us in ((0.0, makespan_ms * 1e3), (1.4, float(schedule["earliest_finish_us"].max()))):
        axes.broken_barh([(0, end_us * 1e-3)], (y - BAR_HEIGHT / 2, BAR_HEIGHT), facecolor=PALE)
    line = OUTLINE_POINTS if len(drawn) <= MAX_OUTLINED else 0.0
    _draw_lane(axes, 0.0, drawn, "sequential_start_us", line)
    _number(axes, 0.0, drawn, "sequential_start_us", keys)
    lane_of = placed["executed_node"].map(lanes)
    for lane, rows in placed.groupby(lane_of):
        _draw_lane(axes, 1.4 + float(lane), rows, "earliest_start_us", line)
        _draw_slack(axes, 1.4 + float(lane), rows)
        _number(axes, 1.4 + float(lane), rows, "earliest_start_us", keys)
    _name_lanes(axes, max(lanes.values(), default=0))
    details = _details(schedule, keys)
    list_keys(side, [key for key in keys if key.name in details], details)
    patches = [
        *([Patch(color=PALE, label="short nodes, not drawn one by one")] if len(drawn) < len(schedule) else []),
        Patch(color=VERMILLION, label="on the critical path"),
        Patch(color=SKY, label="off the critical path"),
        Patch(color=GREY, label="slack: may finish as late as this"),
    ]
    side.legend(handles=patches, loc="lower left", fontsize=8, borderpad=0)
    return figure


def pack_lanes(nodes: pd.DataFrame) -> dict[str, int]:
    """Assign lanes: 0 is the critical path; a node for which no lane is free has none.

    A node occupies its lane from its earliest start to its latest finish. The longest choose first.
    """
    lanes = dict.fromkeys(nodes.loc[nodes["is_critical"], "executed_node"], 0)
    taken: list[list[tuple[float, float]]] = [[] for _ in range(MAX_LANES)]
    for row in nodes[~nodes["is_critical"]].sort_values("node_latency_us", ascending=False, kind="stable").itertuples():
        start, end = float(row.earliest_start_us), float(row.latest_start_us + row.node_latency_us)  # type: ignore[arg-type, operator]
        free = (lane for lane, busy in enumerate(taken) if all(end <= first or start >= last for first, last in busy))
        if (lane := next(free, None)) is not None:
            taken[lane].append((start, end))
            lanes[str(row.executed_node)] = lane + 1
    return lanes


def _title(schedule: pd.DataFrame, gap: float | None) -> str:
    work_us, span_us = schedule["node_latency_us"].sum(), schedule["earliest_finish_us"].max()
    first = f"{percent(span_us / work_us, 0)} of the work is one chain:" if gap is None else f"{gap_text(gap)};"
    return f"{first} span {duration(span_us)} of {duration(work_us)}, parallelism {significant(work_us / span_us)}"


def _subtitle(schedule: pd.DataFrame, drawn: pd.DataFrame) -> str:
    if rest := len(schedule) - len(drawn):
        share = 1 - drawn["node_latency_us"].sum() / schedule["node_latency_us"].sum()
        return f"{len(drawn)} of {len(schedule)} nodes drawn; {rest} short ones ({percent(share)} of the work) are not"
    return "ONNX Runtime's default executor takes one node after another; the lanes below show what dependencies allow"


def _draw_lane(axes: Axes, y: float, rows: pd.DataFrame, start: str, line: float) -> None:
    for is_critical, colour in ((True, VERMILLION), (False, SKY)):
        drawn = rows[rows["is_critical"] == is_critical]
        extents = list(zip(drawn[start] * 1e-3, drawn["node_latency_us"] * 1e-3, strict=True))
        spot = (y - BAR_HEIGHT / 2, BAR_HEIGHT)
        bars = axes.broken_barh(extents, spot, facecolor=colour, edgecolor="white", linewidth=line)
        mark(bars, ([name] for name in drawn["executed_node"]))


def _draw_slack(axes: Axes, y: float, rows: pd.DataFrame) -> None:
    least_us = VISIBLE_SHARE * axes.get_xlim()[1] * 1e3
    slack_rows = rows[rows["slack_us"] > least_us]
    slack = list(zip(slack_rows["earliest_finish_us"] * 1e-3, slack_rows["slack_us"] * 1e-3, strict=True))
    axes.broken_barh(slack, (y - SLACK_HEIGHT / 2, SLACK_HEIGHT), color=GREY)


def _number(axes: Axes, y: float, rows: pd.DataFrame, start: str, keys: Sequence[KeyNode]) -> None:
    """Write numbers above the bars, apart from each other, each with a line to its bar."""
    starts_ms = dict(zip(rows["executed_node"], rows[start].astype(float) * 1e-3, strict=True))
    shown = [key for key in keys if key.name in starts_ms]
    middles = [starts_ms[key.name] + key.latency_us * 1e-3 / 2 for key in shown]
    top = y - BAR_HEIGHT / 2
    for key, middle, at in zip(shown, middles, spread(middles, NUMBER_GAP_SHARE * axes.get_xlim()[1]), strict=True):
        axes.plot([middle, at], [top, top - 0.13], color=BLACK, linewidth=0.6, clip_on=False)
        axes.text(at, top - 0.15, str(key.number), ha="center", va="bottom", fontsize=8, fontweight="bold")


def _name_lanes(axes: Axes, last_lane: int) -> None:
    lanes = range(1, last_lane + 1)
    names = ["as run", "critical\npath", *(f"parallel\nlane {lane}" for lane in lanes)]
    axes.set_yticks([0.0, 1.4, *(1.4 + lane for lane in lanes)], names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(3.0, 2.0 + last_lane), -0.9)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x")
    axes.axhline(0.62, color=PALE, linewidth=1.0)


def _details(schedule: pd.DataFrame, keys: Sequence[KeyNode]) -> dict[str, str]:
    details = {}
    for row in schedule[schedule["executed_node"].isin([key.name for key in keys])].to_dict("records"):
        slack = "critical" if row["is_critical"] else f"slack {duration(row['slack_us'])}"
        details[row["executed_node"]] = f"{duration(row['node_latency_us'])} · {slack}"
    return details

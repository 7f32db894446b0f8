"""Timeline of one inference before and after offloading: host, engines, and both directions of the link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from common.graphs.graph import GAP
from common.messages.names import shorten
from common.table_rows import OffloadVerdictRow
from common.view.plan.answer.cases import judgement
from common.view.style import BLACK, BLUE, GREEN, GREY, ORANGE, PALE, PURPLE, SKY, mark, new_figure
from common.view.text import duration, percent

ACTIVITIES = {
    "host": (GREY, "stays on the host"),
    "gap": (PALE, "gap between nodes"),
    "moved": (ORANGE, "moves to the card"),
    "kernel": (GREEN, "kernel on the card"),
    "launch": (PURPLE, "launch"),
    "transfer": (BLUE, "transfer"),
    "conversion": (SKY, "conversion of numbers"),
}
LANES = {"host": "host", "h2d": "to the card", "d2h": "to the host"}
AROUND = {"convert-in": "number format in", "convert-out": "number format out"}
BAR_HEIGHT = 0.62
THINNEST_POINTS = 0.5
JOIN_SHARE = 0.0004  # of the width: bars closer than that are one to the eye


class Bar(NamedTuple):
    """One bar in ms, with the items that it shows."""

    start_ms: float
    length_ms: float
    items: tuple[str, ...]


def draw_timeline(
    schedule: pd.DataFrame, verdicts: Sequence[OffloadVerdictRow] = (), warning: str = ""
) -> Figure | None:
    """Draw the host alone above and the lanes of the plan below; return None where nothing moves to the card."""
    schedule = schedule.assign(activity=schedule["activity"].mask(schedule["item"] == GAP, "gap"))
    before, after = (schedule[schedule["scenario"] == scenario] for scenario in ("before", "after"))
    if not (after["activity"] == "kernel").any():
        return None
    ends_us = float(before["interval_finish_us"].max()), float(after["interval_finish_us"].max())
    lanes = lane_order(after)
    figure = new_figure(warning or _title(*ends_us, verdicts), _subtitle(before, after))
    axes = figure.add_axes((0.17, 0.1, 0.71, 0.7))
    axes.set(xlim=(0, max(ends_us) * 1e-3), xlabel="time since the inference begins (ms)")
    stays = after[after["lane"] == "host"]["item"]
    marked = before.assign(activity=before["activity"].where(before["item"].isin(stays), "moved"))
    places = [0.0, *(1.7 + place for place in range(len(lanes)))]
    _draw_lane(axes, places[0], marked, ends_us[0])
    for place, lane in zip(places[1:], lanes, strict=True):
        _draw_lane(axes, place, after[after["lane"] == lane], ends_us[1])
    _name_lanes(axes, places, lanes)
    for end_us, low, high in ((ends_us[0], 0.0, 0.0), (ends_us[1], places[1], places[-1])):
        axes.plot([end_us * 1e-3] * 2, [low - 0.45, high + 0.45], color=BLACK, linewidth=1.2, clip_on=False)
    shown = {*after["activity"], *marked["activity"]}
    handles = [Patch(color=colour, label=label) for name, (colour, label) in ACTIVITIES.items() if name in shown]
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", bbox_to_anchor=(0.01, 0.89), fontsize=8.5)
    return figure


def lane_order(after: pd.DataFrame) -> list[str]:
    """Return the lanes in order: host, link to the card, engines by falling time, link to the host."""
    busy_us = (after["interval_finish_us"] - after["interval_start_us"]).groupby(after["lane"]).sum()
    known = [*LANES, *AROUND]
    engines = sorted((lane for lane in busy_us.index if lane not in known), key=lambda lane: (-busy_us[lane], lane))
    order = ["host", "h2d", "convert-in", *engines, "convert-out", "d2h"]
    return [lane for lane in order if lane in busy_us.index]


def _title(before_us: float, after_us: float, verdicts: Sequence[OffloadVerdictRow]) -> str:
    """Return the times of the likely case, with the verdict on the latency and its interval."""
    words = [judgement(row).replace(": ", ", ", 1) for row in verdicts if row["objective"] == "latency"]
    verdict = f": {words[0]}" if words else ", likely case"
    times = f"{duration(before_us)} on the host and {duration(after_us)} with the card"
    return f"One inference takes {times}{verdict}"


def _subtitle(before: pd.DataFrame, after: pd.DataFrame) -> str:
    calls = len(after[after["activity"] == "kernel"])
    of_host = before[before["activity"] != "gap"]["item"]
    moved = len(set(of_host) - set(after[after["lane"] == "host"]["item"]))
    steps = f"{moved} of {len(of_host)} steps of the host move to the card, in {calls} call{'s' * (calls > 1)}"
    return f"{steps} · likely case, estimated, not measured"


def join(rows: pd.DataFrame, gap_us: float) -> dict[str, list[Bar]]:
    """Return a lane's bars by activity; bars closer than ``gap_us`` are joined.

    Bars with another activity between them stay apart.
    """
    spans: list[tuple[str, float, float, list[str]]] = []
    times = (rows["interval_start_us"].astype(float), rows["interval_finish_us"].astype(float))
    for start, finish, activity, item in sorted(zip(*times, rows["activity"], rows["item"], strict=True)):
        if spans and spans[-1][0] == activity and start - spans[-1][2] <= gap_us:
            spans[-1] = activity, spans[-1][1], max(spans[-1][2], finish), [*spans[-1][3], item]
        else:
            spans.append((activity, start, finish, [item]))
    bars: dict[str, list[Bar]] = {}
    for activity, start, finish, items in spans:
        bars.setdefault(activity, []).append(Bar(start * 1e-3, (finish - start) * 1e-3, tuple(items)))
    return bars


def _draw_lane(axes: Axes, place: float, rows: pd.DataFrame, end_us: float) -> None:
    width_ms, spot = axes.get_xlim()[1], (place - BAR_HEIGHT / 2, BAR_HEIGHT)
    axes.broken_barh([(0, width_ms)], spot, facecolor="#F6F6F6")
    bars = join(rows, JOIN_SHARE * width_ms * 1e3)
    edge = THINNEST_POINTS if len(bars) == 1 else 0.0  # keeps a lone sliver in sight; beside others it would cover them
    for activity, shown in sorted(bars.items()):
        extents, colour = [(bar.start_ms, bar.length_ms) for bar in shown], ACTIVITIES[activity][0]
        drawn = axes.broken_barh(extents, spot, color=colour, linewidth=edge, snap=False)  # thin bars mix, none wins
        mark(drawn, (bar.items for bar in shown))
    busy_us = float((rows["interval_finish_us"] - rows["interval_start_us"]).sum())
    text = f"{duration(busy_us)}, {percent(busy_us / end_us, 0)}"
    axes.text(width_ms * 1.01, place, text, va="center", fontsize=8.5)


def _name_lanes(axes: Axes, places: Sequence[float], lanes: Sequence[str]) -> None:
    names = [{**LANES, **AROUND}.get(lane, shorten(lane, 24)) for lane in lanes]
    axes.set_yticks(places, ["host alone", *names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(places[-1] + 0.6, 5.0), -0.6)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x")
    axes.axhline(0.85, color=PALE, linewidth=1.0)
    axes.text(axes.get_xlim()[1] * 1.01, 0.85, "busy", va="center", fontsize=8.5, color=GREY)

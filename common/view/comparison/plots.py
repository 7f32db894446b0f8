"""Differences from the baseline with their intervals, and figures over the records with their levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.messages.names import printable, shorten
from common.table_rows import ComparisonRow, HistoryTrendsRow, RunHistoryRow
from common.view.comparison.comparison_tables import LOUD, FigureRow, change_text, figure_text
from common.view.comparison.history_tables import changed_levels, commit_text, commits_text, history_line
from common.view.node_labels import label_nodes, typed_sources
from common.view.style import BLACK, BLUE, GREEN, GREY, ORANGE, PALE, VERMILLION, new_figure
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


PANELS = 4
MOST_LABELS = 24  # runs that are named below the picture
NAME_WIDTH = 30
US_PER_MS = 1000


def draw_history(values: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow]) -> Figure | None:
    """Draw the latency, then the figures that changed most, each over the runs."""
    runs = sorted({row["history_run"] for row in values})
    if len(runs) < 2:
        return None
    how = "lines: levels · dashed: a new level, between two commits · hollow: a disturbed host · +: changed files"
    figure = new_figure(_title_of_history(values, trends), how)
    shown = _shown_trends(values, trends)
    room = {"left": 0.09, "right": 0.985, "bottom": 0.16, "top": 0.86, "hspace": 0.45}
    panels = figure.subplots(len(shown), squeeze=False, gridspec_kw=room)[:, 0]
    for axes, trend in zip(panels, shown, strict=True):
        _draw_figure(axes, [row for row in values if _key(row) == _key(trend)], trend, runs)
    _name_runs(panels[-1], values, runs)
    return figure


def _title_of_history(points: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow]) -> str:
    line, count = history_line(points, trends), len(changed_levels(points))
    return f"{line[0].upper()}{line[1:]}; {count or 'no'} changed level{'' if count == 1 else 's'} before"


def _key(row: FigureRow) -> tuple[str, str, str]:
    return row["compared_kind"], row["compared_figure"], row["compared_subject"]


def _shown_trends(points: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow]) -> list[HistoryTrendsRow]:
    """Return the figures to draw: the latency, then those that moved or changed, and those of single nodes last."""
    changed = {_key(row) for row in points if row["is_change_point"]}

    def rank(row: HistoryTrendsRow) -> tuple[bool, bool, bool, float]:
        is_latency = row["compared_kind"] == "end_to_end" and row["compared_figure"] == "p50_us"
        is_loud = row["comparison_verdict"] in LOUD or _key(row) in changed
        return not is_latency, not is_loud, row["compared_kind"] == "node", -abs(row["difference_share"] or 0.0)

    return sorted(trends, key=rank)[:PANELS]


def _draw_figure(axes: Axes, rows: Sequence[RunHistoryRow], trend: HistoryTrendsRow, runs: Sequence[int]) -> None:
    place = {run: index for index, run in enumerate(runs)}
    scale, unit = _scale(trend["compared_figure"], max(row["figure_value"] for row in rows))
    sound, doubted = ([row for row in rows if bool(row["run_doubt"]) is doubt] for doubt in (False, True))
    for some, face in ((sound, BLUE), (doubted, "none")):
        places = [place[row["history_run"]] for row in some]
        axes.plot(places, [scale * row["figure_value"] for row in some], "o", color=BLUE, markerfacecolor=face, ms=4)
    levels = {place[row["history_run"]]: scale * level for row in sound if (level := row["level_value"]) is not None}
    if levels:
        axes.step([*levels], [*levels.values()], where="mid", color=ORANGE, linewidth=1.5)
    if trend["comparison_verdict"] in LOUD and rows:
        axes.plot(place[rows[-1]["history_run"]], scale * rows[-1]["figure_value"], "D", color=VERMILLION, ms=6)
    for row in (row for row in rows if row["is_change_point"]):
        at = place[row["history_run"]]
        axes.axvline(at - 0.5, color=GREY, linestyle="--", linewidth=1)
        shift, align = (-3, "right") if at > len(runs) / 2 else (3, "left")
        text, where = printable(commits_text(row)), ("data", "axes fraction")
        look: dict[str, Any] = {"fontsize": 7, "color": GREY, "ha": align, "va": "top"}
        axes.annotate(text, (at - 0.5, 1.0), (shift, -2), where, "offset points", **look)
    name = shorten(printable(figure_text(trend)), 3 * NAME_WIDTH)
    axes.set_title(f"{name}{f' ({unit})' if unit else ''}: {trend['comparison_verdict']}", fontsize=9)
    axes.set_xlim(-0.7, len(runs) - 0.3)
    axes.margins(y=0.2)
    axes.set_xticks([])
    axes.grid(visible=True, axis="y")


def _scale(figure: str, largest: float) -> tuple[float, str]:
    if not figure.endswith("_us"):
        return 1.0, ""
    return (1e-3, "ms") if largest >= US_PER_MS else (1.0, "µs")


def _name_runs(axes: Axes, points: Sequence[RunHistoryRow], runs: Sequence[int]) -> None:
    """Name the runs below the last panel by their commits; of many, only some."""
    by_run = {row["history_run"]: row for row in points}
    step = -(-len(runs) // MOST_LABELS)
    named = range((len(runs) - 1) % step, len(runs), step)  # the last one is among them
    labels = [f"{runs[place]}: {shorten(printable(commit_text(by_run[runs[place]])), NAME_WIDTH)}" for place in named]
    axes.set_xticks([*named], labels, rotation=35, ha="right", rotation_mode="anchor", fontsize=7)

"""Figures over the records, with their levels and the commits that changed them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from common.messages.names import printable, shorten
from common.table_rows import HistoryTrendsRow, RunHistoryRow
from common.view.comparison.comparison_tables import LOUD, FigureRow, figure_text
from common.view.comparison.history_tables import changed_levels, commit_text, commits_text, history_line
from common.view.style import BLUE, GREY, ORANGE, VERMILLION, new_figure

PANELS = 4
MOST_LABELS = 24  # runs that are named below the picture
NAME_WIDTH = 30
US_PER_MS = 1000


def draw_history(values: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow]) -> Figure | None:
    """Draw the latency, then the figures that changed most, each over the runs."""
    runs = sorted({row["history_run"] for row in values})
    if len(runs) < 2:
        return None
    figure = new_figure(
        _title(values, trends),
        "lines: levels · dashed: a new level, between two commits · hollow: a disturbed host · +: changed files",
    )
    shown = _shown(values, trends)
    grid = GridSpec(len(shown), 1, figure, left=0.09, right=0.985, bottom=0.16, top=0.86, hspace=0.45)
    panels = [figure.add_subplot(grid[place]) for place in range(len(shown))]
    for axes, trend in zip(panels, shown, strict=True):
        _draw(axes, [row for row in values if _key(row) == _key(trend)], trend, runs)
    _name_runs(panels[-1], values, runs)
    return figure


def _title(points: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow]) -> str:
    line, count = history_line(points, trends), len(changed_levels(points))
    return f"{line[0].upper()}{line[1:]}; {count or 'no'} changed level{'' if count == 1 else 's'} before"


def _key(row: FigureRow) -> tuple[str, str, str]:
    return row["compared_kind"], row["compared_figure"], row["compared_subject"]


def _shown(points: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow]) -> list[HistoryTrendsRow]:
    """Return the figures to draw: the latency, then those that moved or changed, and those of single nodes last."""
    changed = {_key(row) for row in points if row["is_change_point"]}

    def rank(row: HistoryTrendsRow) -> tuple[bool, bool, bool, float]:
        is_latency = row["compared_kind"] == "end_to_end" and row["compared_figure"] == "p50_us"
        is_loud = row["comparison_verdict"] in LOUD or _key(row) in changed
        return not is_latency, not is_loud, row["compared_kind"] == "node", -abs(row["difference_share"] or 0.0)

    return sorted(trends, key=rank)[:PANELS]


def _draw(axes: Axes, rows: Sequence[RunHistoryRow], trend: HistoryTrendsRow, runs: Sequence[int]) -> None:
    place = {run: index for index, run in enumerate(runs)}
    scale, unit = _scale(trend["compared_figure"], max(row["figure_value"] for row in rows))
    sound, doubted = ([row for row in rows if bool(row["run_doubt"]) is doubt] for doubt in (False, True))
    for some, face in ((sound, BLUE), (doubted, "none")):
        places = [place[row["history_run"]] for row in some]
        axes.plot(places, [scale * row["figure_value"] for row in some], "o", color=BLUE, markerfacecolor=face, ms=4)
    levels = [
        (place[row["history_run"]], scale * row["level_value"]) for row in sound if row["level_value"] is not None
    ]
    if levels:
        axes.step([at for at, _ in levels], [level for _, level in levels], where="mid", color=ORANGE, linewidth=1.5)
    if trend["comparison_verdict"] in LOUD and rows:
        axes.plot(place[rows[-1]["history_run"]], scale * rows[-1]["figure_value"], "D", color=VERMILLION, ms=6)
    for row in (row for row in rows if row["is_change_point"]):
        at = place[row["history_run"]]
        axes.axvline(at - 0.5, color=GREY, linestyle="--", linewidth=1)
        is_late = at > len(runs) / 2
        axes.annotate(
            printable(commits_text(row)),
            (at - 0.5, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if is_late else 3, -2),
            textcoords="offset points",
            fontsize=7,
            color=GREY,
            ha="right" if is_late else "left",
            va="top",
        )
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

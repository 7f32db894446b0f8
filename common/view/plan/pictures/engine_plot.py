"""An engine on a board with open tools: its use of the device, and planned beside simulated time of each layer."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from common.table_rows import EngineCallsRow, EngineCellsRow, EngineSummaryDocument
from common.view.plan.engine_text import engine_sentence
from common.view.style import BLACK, BLUE, GREEN, PALE, SKY, new_figure
from common.view.text import duration, percent

NAMES = {"lut": "LUT", "ff": "flip-flops", "block_ram": "block RAM (18 Kb)", "multiplier": "multipliers"}
BAR_HEIGHT = 0.38
MOST_LAYERS = 30  # with bars of their own, those of the longest planned time


def draw_engine(
    calls: Sequence[EngineCallsRow], cells: Sequence[EngineCellsRow], summary: EngineSummaryDocument
) -> Figure:
    """Draw the share of the device that the engine takes, and a pair of bars for each layer."""
    figure = new_figure(engine_sentence(summary), _subtitle(calls))
    grid = GridSpec(1, 2, figure, width_ratios=(2, 3), left=0.11, right=0.97, bottom=0.09, top=0.79, wspace=0.5)
    _draw_cells(figure.add_subplot(grid[0]), cells)
    _draw_calls(figure.add_subplot(grid[1]), calls)
    is_routed, is_simulated = (any(counts) for counts in _found(calls, cells))
    handles = [
        Patch(color=SKY, label="planned"),
        *([Patch(color=GREEN, label="routed")] if is_routed else []),
        *([Patch(color=BLUE, label="simulated")] if is_simulated else []),
        Line2D([], [], color=BLACK, linewidth=1.4, label="limit of the plan"),
    ]
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", bbox_to_anchor=(0.01, 0.89), fontsize=8.5)
    return figure


def _found(
    calls: Sequence[EngineCallsRow], cells: Sequence[EngineCellsRow]
) -> tuple[list[float | None], list[float | None]]:
    """Return what was routed of each kind of cells, and the simulated time of each layer."""
    return [row["routed_count"] for row in cells], [row["simulated_us"] for row in calls]


def _subtitle(calls: Sequence[EngineCallsRow]) -> str:
    planned, simulated = sum(row["planned_us"] for row in calls), sum(row["simulated_us"] or 0 for row in calls)
    clock = "both at the clock that is expected"
    if not simulated:
        return f"{len(calls)} layers, {duration(planned)} planned at the clock that is expected; not simulated"
    error = f"{planned / simulated - 1:+.1%}"
    return f"{len(calls)} layers, {duration(planned)} planned and {duration(simulated)} simulated ({error}), {clock}"


def _draw_cells(axes: Axes, cells: Sequence[EngineCellsRow]) -> None:
    for place, row in enumerate(cells):
        total, routed = row["total_count"], row["routed_count"]
        axes.barh(place, 1, 2 * BAR_HEIGHT, color=PALE)
        axes.barh(place - BAR_HEIGHT / 2, row["planned_count"] / total, BAR_HEIGHT, color=SKY)
        if routed is not None:
            axes.barh(place + BAR_HEIGHT / 2, routed / total, BAR_HEIGHT, color=GREEN)
        budget = row["budget_count"] / total
        axes.plot([budget] * 2, [place - BAR_HEIGHT, place + BAR_HEIGHT], color=BLACK, linewidth=1.4)
        text = f"{row['planned_count']:,.0f} planned" + ("" if routed is None else f", {routed:,.0f} routed")
        axes.text(0.012, place - BAR_HEIGHT - 0.03, text, fontsize=7.5, color=BLACK, va="bottom")
    axes.set(xlim=(0, 1), ylim=(len(cells) - 0.4, -0.8))
    axes.set_yticks(range(len(cells)), [NAMES[row["cell_kind"]] for row in cells])
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], [percent(share, 0) for share in (0, 0.25, 0.5, 0.75, 1)])
    axes.set_title("Share of the device", fontsize=10)
    axes.tick_params(axis="both", length=0, labelsize=8)


def _draw_calls(axes: Axes, calls: Sequence[EngineCallsRow]) -> None:
    longest = sorted(calls, key=lambda row: -row["planned_us"])[:MOST_LAYERS]
    shown = sorted(longest, key=lambda row: row["call_index"])
    for place, row in enumerate(shown):
        axes.barh(place - BAR_HEIGHT / 2, row["planned_us"], BAR_HEIGHT, color=SKY)
        if row["simulated_us"] is not None:
            axes.barh(place + BAR_HEIGHT / 2, row["simulated_us"], BAR_HEIGHT, color=BLUE)
    axes.set(ylim=(len(shown) - 0.4, -0.6), xlabel="time of the layer (µs)")
    axes.set_yticks(range(len(shown)), [_short(row["source_node"]) for row in shown])
    left = f", the {len(shown)} longest" if len(shown) < len(calls) else ""
    axes.set_title(f"Layers{left}", fontsize=10)
    axes.tick_params(axis="both", length=0, labelsize=7)


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"…{name[-27:]}"

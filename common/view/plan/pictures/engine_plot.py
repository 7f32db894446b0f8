"""An engine on a board with open tools: its use of the device, and planned beside simulated time of each layer."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
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
    room = {"left": 0.11, "right": 0.97, "bottom": 0.09, "top": 0.79, "wspace": 0.5}
    left, right = figure.subplots(1, 2, width_ratios=(2, 3), gridspec_kw=room)
    _draw_cells(left, cells)
    _draw_calls(right, calls)
    handles: list[Artist] = [Patch(color=SKY, label="planned")]
    handles += [Patch(color=GREEN, label="routed")] if any(row["routed_count"] for row in cells) else []
    handles += [Patch(color=BLUE, label="simulated")] if any(row["simulated_us"] for row in calls) else []
    handles.append(Line2D([], [], color=BLACK, linewidth=1.4, label="limit of the plan"))
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", bbox_to_anchor=(0.01, 0.89), fontsize=8.5)
    return figure


def _subtitle(calls: Sequence[EngineCallsRow]) -> str:
    planned, simulated = sum(row["planned_us"] for row in calls), sum(row["simulated_us"] or 0 for row in calls)
    text = f"{len(calls)} layers, {duration(planned)} planned"
    if not simulated:
        return f"{text} at the clock that is expected; not simulated"
    error = f"{planned / simulated - 1:+.1%}"
    return f"{text} and {duration(simulated)} simulated ({error}), both at the clock that is expected"


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
    names = [row["source_node"] for row in shown]
    axes.set_yticks(range(len(shown)), [name if len(name) <= 28 else f"…{name[-27:]}" for name in names])
    left = f", the {len(shown)} longest" if len(shown) < len(calls) else ""
    axes.set_title(f"Layers{left}", fontsize=10)
    axes.tick_params(axis="both", length=0, labelsize=7)

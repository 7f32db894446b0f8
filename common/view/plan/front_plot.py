"""The front of plans: latency of a batch against the rate of inferences, with the energy of each beside the picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from common.view.plan.front_text import front_label
from common.view.style import BLUE, GREEN, GREY, ORANGE, PURPLE, list_entries, log_scales, new_figure, with_side_column
from common.view.text import duration, joules, significant

if TYPE_CHECKING:
    from common.table_rows import OffloadFrontRow

# Colour and marker of what a plan was searched for and how it is operated.
KINDS = {
    ("latency", "one by one"): (BLUE, "o"),
    ("latency", "streaming"): (PURPLE, "D"),
    ("throughput", "streaming"): (ORANGE, "^"),
    ("energy", "streaming"): (GREEN, "s"),
}
MOST_LISTED = 10


def draw_front(front: Sequence[OffloadFrontRow], warning: str = "") -> Figure:
    """Draw every plan in the likely case; those that no other one beats are filled, numbered and listed.

    Args:
        front: offload_front.
        warning: the title where the host's times decide nothing.
    """
    figure = new_figure(warning or _title(front), "latency is of a batch alone · estimated, not measured")
    axes, side = with_side_column(figure)
    log_scales(axes)
    axes.set(xlabel="latency of a batch (ms)", ylabel="inferences per second")
    best = sorted((row for row in front if row["is_on_front"]), key=lambda row: row["batch_latency_likely_us"])
    best = best[:MOST_LISTED]
    for row in front:
        colour, marker = KINDS[row["objective"], row["operation"]]
        axes.plot(*_place(row), marker, color=colour, markerfacecolor=colour if row["is_on_front"] else "none")
    numbers: dict[tuple[float, float], list[str]] = {}  # one plan may be the best for several objectives
    for number, row in enumerate(best, start=1):
        numbers.setdefault(_place(row), []).append(str(number))
    for place, at_place in numbers.items():
        axes.annotate(", ".join(at_place), place, (5, 4), textcoords="offset points", fontweight="bold")
    labels = [front_label(row) for row in best]
    list_entries(side, "No plan beats these", labels, [*map(_figures, best)])
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", label=f"best for {objective}, {operation}")
        for (objective, operation), (colour, marker) in KINDS.items()
    ]
    handles.append(Line2D([], [], color=GREY, marker="o", markerfacecolor="none", linestyle="none", label="beaten"))
    axes.legend(handles=handles, loc="lower right")
    return figure


def _place(row: OffloadFrontRow) -> tuple[float, float]:
    return float(row["batch_latency_likely_us"]) * 1e-3, float(row["likely_inferences_per_s"])


def _title(front: Sequence[OffloadFrontRow]) -> str:
    soonest_us = min(row["batch_latency_likely_us"] for row in front)
    fastest = max(row["likely_inferences_per_s"] for row in front)
    energies_uj = [energy_uj for row in front if (energy_uj := row["inference_energy_likely_uj"]) is not None]
    energy = f", or {joules(min(energies_uj))} for each" if energies_uj else ""
    return f"With the card an inference takes {duration(soonest_us)} at least; {significant(fastest)}/s at most{energy}"


def _figures(row: OffloadFrontRow) -> str:
    latency, rate = duration(row["batch_latency_likely_us"]), significant(row["likely_inferences_per_s"])
    return f"{latency}, {rate}/s, {joules(row['inference_energy_likely_uj'])} each"

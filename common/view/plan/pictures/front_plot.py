"""The front of plans: latency of a batch against the rate of inferences, with the energy of each beside the picture."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.table_rows import OffloadFrontRow, OffloadVerdictRow
from common.view.plan.fpga_text import front_label
from common.view.style import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    label_log,
    legend_mark,
    list_entries,
    log_scales,
    new_figure,
    with_side_column,
)
from common.view.text import duration, joules, significant

# Colour and marker of what a plan was searched for and how it is operated.
KINDS = {
    ("latency", "one by one"): (BLUE, "o"),
    ("latency", "streaming"): (PURPLE, "D"),
    ("throughput", "streaming"): (ORANGE, "^"),
    ("energy", "streaming"): (GREEN, "s"),
}
MOST_LISTED, MARK_POINTS = 10, 6.0


def draw_front(
    front: Sequence[OffloadFrontRow], verdicts: Sequence[OffloadVerdictRow] = (), warning: str = ""
) -> Figure:
    """Draw every plan in the likely case; those that no other one beats are filled, numbered and listed.

    ``verdicts`` are on the plan of one inference: the best of the plans may not pay. ``warning`` is the title where the
    host's times decide nothing.
    """
    judged = [] if warning else [f"{row['objective']} {row['verdict']}" for row in verdicts]
    parts = ["likely case", ", ".join(judged), "latency is of a batch alone", "estimated, not measured"]
    figure = new_figure(warning or _title(front), " · ".join(filter(None, parts)))
    axes, side = with_side_column(figure)
    log_scales(axes)
    label_log(axes.yaxis)  # in full: the rates of few plans may differ in the fourth digit
    axes.set(xlabel="latency of a batch (ms)", ylabel="inferences per second")
    best = sorted((row for row in front if row["is_on_front"]), key=lambda row: row["batch_latency_likely_us"])
    best = best[:MOST_LISTED]
    for rank, row in enumerate(front):
        colour, marker = KINDS[row["objective"], row["operation"]]
        above = sum(_place(other) == _place(row) for other in front[rank + 1 :])  # drawn later, at the same place
        face = colour if row["is_on_front"] else "none"
        axes.plot(*_place(row), marker, color=colour, markerfacecolor=face, markersize=MARK_POINTS * (1 + above))
    numbers: dict[tuple[float, float], list[str]] = {}  # one plan may be the best for several objectives
    for number, row in enumerate(best, start=1):
        numbers.setdefault(_place(row), []).append(str(number))
    for place, at_place in numbers.items():
        axes.annotate(", ".join(at_place), place, (5, 4), textcoords="offset points", fontweight="bold")
    labels = [front_label(row) for row in best]
    list_entries(side, "Plans, not judged" if warning else "No plan beats these", labels, [*map(_figures, best)])
    _explain(side, front)
    return figure


def _explain(side: Axes, front: Sequence[OffloadFrontRow]) -> None:
    """Explain the marks that are drawn, each as it is drawn: a plan that another one beats is hollow."""
    looks = dict.fromkeys((row["objective"], row["operation"], row["is_on_front"]) for row in front)
    marks = []
    for objective, operation, is_on_front in looks:
        colour, marker = KINDS[objective, operation]
        label = f"best for {objective}, {operation}{'' if is_on_front else ' (beaten)'}"
        marks.append(legend_mark(marker, label, color=colour, markerfacecolor=colour if is_on_front else "none"))
    side.legend(handles=marks, loc="lower left", fontsize=8, borderpad=0)


def _place(row: OffloadFrontRow) -> tuple[float, float]:
    return float(row["batch_latency_likely_us"]) * 1e-3, float(row["likely_inferences_per_s"])


def _title(front: Sequence[OffloadFrontRow]) -> str:
    """Return the best of each objective and where it runs: they are different plans."""
    soonest = min(front, key=lambda row: row["batch_latency_likely_us"])
    fastest = max(front, key=lambda row: row["likely_inferences_per_s"])
    parts = [
        f"{duration(soonest['batch_latency_likely_us'])} {_side(soonest)}",
        f"{significant(fastest['likely_inferences_per_s'])}/s {_side(fastest)}",
    ]
    known = [(energy_uj, row) for row in front if (energy_uj := row["inference_energy_likely_uj"]) is not None]
    if known:
        energy_uj, least = min(known, key=lambda plan: plan[0])
        parts.append(f"{joules(energy_uj)} each {_side(least)}")
    return f"The best plans, one for each aim: {', '.join(parts)}"


def _side(row: OffloadFrontRow) -> str:
    return "with the card" if row["engines"] else "on the host alone"


def _figures(row: OffloadFrontRow) -> str:
    latency, rate = duration(row["batch_latency_likely_us"]), significant(row["likely_inferences_per_s"])
    return f"{latency}, {rate}/s, {joules(row['inference_energy_likely_uj'])} each"

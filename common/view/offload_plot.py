"""One inference before and after offloading: what each part costs on the way, and the interval of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Patch

from common.view.fpga_text import Terms, judgement, terms_of
from common.view.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, new_figure
from common.view.text import duration, quantity, significant

PARTS = {
    "rest": (GREY, "stays on the host"),
    "moved": (ORANGE, "moves to the card (host time)"),
    "kernels": (GREEN, "kernels on the card"),
    "transfer": (BLUE, "transfer"),
    "launch": (PURPLE, "launches"),
    "idle_card": (SKY, "card idle"),
}
CASES = ("low", "likely", "high")  # of speedup: pessimistic to optimistic
NAMES = {"low": "with the card,\npessimistic", "likely": "with the card,\nlikely", "high": "with the card,\noptimistic"}


def draw_offload(speedup: pd.DataFrame, plan: pd.DataFrame | None) -> Figure | None:
    """Stacked bars for latency and energy; None where no kernel was chosen.

    Args:
        speedup: the terms of Amdahl's law.
        plan: offload_plan, if it stands.
    """
    terms = terms_of(speedup)
    known = [objective for objective in ("latency", "energy") if (objective, "total_speedup") in terms]
    known = [objective for objective in known if pd.notna(terms[objective, "kernel_speedup"]["likely"])]
    if not known:
        return None
    figure = new_figure(_title(terms, known), _subtitle(plan))
    grid = GridSpec(len(known), 1, figure, left=0.13, right=0.9, bottom=0.1, top=0.8, hspace=0.62)
    for row, objective in enumerate(known):
        axes = figure.add_subplot(grid[row])
        _draw(axes, terms, objective)
        axes.set_title(f"{objective}: {judgement(terms, objective)}", fontsize=10)
    _explain(figure)
    return figure


def _title(terms: Terms, objectives: Sequence[str]) -> str:
    gains = {objective: terms[objective, "total_speedup"]["likely"] for objective in objectives}
    return "Offloading is likely to make " + " and ".join(f"{of} {_change(gain)}" for of, gain in gains.items())


def _change(gain: float) -> str:
    factor = significant(max(gain, 1 / gain))
    if factor == significant(1.0):
        return "neither better nor worse"
    return f"{factor} times {'better' if gain > 1 else 'worse'}"


def _subtitle(plan: pd.DataFrame | None) -> str:
    if plan is None or not len(plan):
        return "estimated, not measured"
    kernels = ", ".join(f"{row['kernel']} {row['kernel_class']}" for row in plan.head(4).to_dict("records"))
    more = f" and {len(plan) - 4} more" if len(plan) > 4 else ""
    return f"{kernels}{more} on {plan['board'].iloc[0]} in {plan['precision'].iloc[0]} · estimated, not measured"


def bars(terms: Terms, objective: str) -> dict[str, dict[str, float]]:
    """Label of each bar and its parts, in the unit of the terms; host total × (1 - f) stays, host total × f moves."""
    total = _cell(terms, objective, "host_total", "likely")
    fraction = _cell(terms, objective, "accelerated_fraction", "likely")
    found = {"host alone": {"rest": total * (1 - fraction), "moved": total * fraction}}
    for case in CASES:
        parts = {"rest": total * (1 - fraction)}
        parts["kernels"] = total * fraction / _cell(terms, objective, "kernel_speedup", case)
        parts |= {
            name: _cell(terms, objective, name, case)
            for name in ("transfer", "launch", "idle_card")
            if (objective, name) in terms
        }
        found[NAMES[case]] = parts
    return found


def _cell(terms: Mapping[tuple[str, str], Mapping[str, Any]], objective: str, term: str, case: str) -> float:
    return float(terms[objective, term][case])


def _draw(axes: Axes, terms: Terms, objective: str) -> None:
    scale, unit = (1e-3, "ms") if objective == "latency" else (1e-6, "J")
    found = bars(terms, objective)
    for place, parts in enumerate(found.values()):
        left = 0.0
        for name, value in parts.items():
            colour = PARTS[name][0]
            axes.barh(place, value * scale, 0.62, left, color=colour, edgecolor="white", linewidth=0.5)
            left += value * scale
        total = sum(parts.values())
        text = duration(total) if objective == "latency" else quantity(total * 1e-6, "J")
        clear = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        at = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
        axes.annotate(text, (left, place), (5, 0), bbox=clear, **at)  # type: ignore[arg-type]
    axes.axvline(_cell(terms, objective, "host_total", "likely") * scale, color=BLACK, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(found)), list(found))
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel(f"{objective} of one inference ({unit})", labelpad=2)
    axes.grid(visible=True, axis="x")


def _explain(figure: Figure) -> None:
    handles = [Patch(color=colour, label=label) for colour, label in PARTS.values()]
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", bbox_to_anchor=(0.01, 0.89), fontsize=8.5)

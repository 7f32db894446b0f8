"""Two services alone and together: the latency of each, and how much the other one slows it down."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from common.view.style import BLACK, BLUE, GREY, ORANGE, label_log, new_figure
from common.view.text import distinct

LABEL_WIDTH = 20
PERCENTILES = {"p50": "median", "p99": "p99"}
STATES = {"alone": (BLUE, "o", -0.12), "together": (ORANGE, "D", 0.12)}
FACTORS = {"request_p50_slowdown": "median", "request_p99_slowdown": "p99", "answered_rate": "answers/s"}


def draw_interference(services: pd.DataFrame) -> Figure | None:
    """Draw the percentiles of load_interference, alone and together, and the ratios of both."""
    together: list[Any] = services[services["load_state"] == "together"].to_dict("records")
    if not together:
        return None
    names = _names(together)
    figure = new_figure(_title(together, names), "bars: 95 % limits · both services get the same requests each time")
    grid = GridSpec(1, 2, figure, left=0.205, right=0.975, bottom=0.1, top=0.8, wspace=0.65)
    left, right = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    _draw_latencies(left, services, [row["model_role"] for row in together], names)
    _draw_factors(right, together, names)
    return figure


def _names(together: list[Any]) -> list[str]:
    """Return the name of each service; a model beside itself is named by its role."""
    models = [row["served_model"].removesuffix(".onnx") for row in together]
    short = distinct(models, LABEL_WIDTH)
    if len({*models}) == len(models):
        return [short[model] for model in models]
    return [f"{short[model]} ({row['model_role']})" for model, row in zip(models, together, strict=True)]


def _title(together: list[Any], names: list[str]) -> str:
    parts = [
        f"{name}: p99 x {row['request_p99_slowdown_factor']:.3g}"
        for name, row in zip(names, together, strict=True)
        if pd.notna(row["request_p99_slowdown_factor"])
    ]
    return f"Together over alone: {', '.join(parts)}" if parts else "No p99 to compare: see load_interference.csv"


def _draw_latencies(axes: Axes, services: pd.DataFrame, roles: list[str], names: list[str]) -> None:
    for state, (colour, marker, shift) in STATES.items():
        rows = services[services["load_state"] == state].set_index("model_role").loc[roles]
        places, values, low, high = [], [], [], []
        for place, (percentile, row) in enumerate((name, row) for _, row in rows.iterrows() for name in PERCENTILES):
            value, *limits = (row[f"request_{percentile}{end}_us"] / 1e3 for end in ("", "_low", "_high"))
            places.append(place + shift)
            values.append(value)
            low.append(_reach(value - limits[0]))
            high.append(_reach(limits[1] - value))
        axes.errorbar(values, places, xerr=[low, high], fmt=marker, color=colour, label=state)
    axes.set(xlabel="latency (ms)", title="latency")
    if services["request_p50_us"].notna().any():
        axes.set_xscale("log")
        label_log(axes.xaxis)
    _label_rows(axes, [f"{name}\n{text}" for name in names for text in PERCENTILES.values()])
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)


def _draw_factors(axes: Axes, together: list[Any], names: list[str]) -> None:
    for place, (row, factor) in enumerate((row, factor) for row in together for factor in FACTORS):
        value, low, high = (row[f"{factor}{end}_factor"] for end in ("", "_low", "_high"))
        if pd.isna(value):
            axes.annotate("unknown", (1, place), (6, 0), textcoords="offset points", va="center", color=GREY)
            continue
        axes.errorbar(value, place, xerr=[[_reach(value - low)], [_reach(high - value)]], fmt="o", color=ORANGE)
        axes.annotate(f"{value:.3g}", (value, place), (0, 7), textcoords="offset points", ha="center")
    axes.axvline(1, color=BLACK, linewidth=1)
    axes.set(xlabel="together over alone", title="how much both change it")
    _label_rows(axes, [f"{name}\n{text}" for name in names for text in FACTORS.values()])


def _reach(distance: float) -> float:
    """Return the length of a bar; a limit that is unknown has none."""
    return 0.0 if pd.isna(distance) else max(0.0, float(distance))


def _label_rows(axes: Axes, labels: list[str]) -> None:
    axes.set(ylim=(len(labels) - 0.4, -0.6))
    axes.set_yticks(range(len(labels)), labels)
    axes.grid(visible=True, axis="x")

"""Load tests side by side: the rates and latencies of many models, and two services alone and together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.view.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, label_log, new_figure
from common.view.text import distinct, duration, significant

MOST_MODELS, LABEL_WIDTH, REASON_WIDTH = 24, 34, 60
LIMITS = ("low", "high")
NAME_WIDTH = 20  # of a service
PERCENTILES = {"p50": "median", "p99": "p99"}
STATES = {"alone": (BLUE, "o", -0.12), "together": (ORANGE, "D", 0.12)}
FACTORS = {"request_p50_slowdown": "median", "request_p99_slowdown": "p99", "answered_rate": "answers/s"}


def draw_fleet(models: pd.DataFrame) -> Figure | None:
    """Draw a bar for each row of load_fleet, the fastest first; rows without a valid run come last, with the reason."""
    if models.empty:
        return None
    is_valid = models["validity"] == "valid"
    ordered = models.assign(is_valid=is_valid, rate=models["answered_requests_per_s"].where(is_valid))
    ordered = ordered.sort_values(["is_valid", "rate"], ascending=False, kind="stable")
    shown = ordered.head(MOST_MODELS).reset_index(drop=True)
    figure = new_figure(_title(ordered), _subtitle(models, len(models) - len(shown)))
    room = {"left": 0.24, "right": 0.975, "bottom": 0.09, "top": 0.84, "wspace": 0.06}
    left, right = figure.subplots(1, 2, gridspec_kw=room)
    _draw_rates(left, shown)
    _draw_latencies(right, shown)
    for axes in (left, right):
        axes.set(ylim=(max(len(shown), 4) - 0.4, -0.6), yticks=range(len(shown)))
        axes.grid(visible=True, axis="x")
    left.set_yticklabels(_labels(shown))
    right.set_yticklabels([])
    return figure


def _labels(models: pd.DataFrame) -> list[str]:
    """Return the name of each model; two files may share one."""
    stems = [Path(path).stem for path in models["model_file"]]
    names = [
        f"{Path(path).parent.name}/{stem}" if stems.count(stem) > 1 else stem
        for path, stem in zip(models["model_file"], stems, strict=True)
    ]
    short = distinct(names, LABEL_WIDTH)
    return [short[name] for name in names]


def _draw_rates(axes: Axes, models: pd.DataFrame) -> None:
    """Draw what each model answers; the text beside a bar is what it answers, or why nobody knows."""
    valid = models[models["is_valid"]]
    axes.barh(valid.index, valid["answered_requests_per_s"], color=BLUE, height=0.6)
    widest = float(valid["answered_requests_per_s"].max()) if len(valid) else 1.0
    axes.set(xlabel="answers per second", xlim=(0, 1.2 * widest or 1.0))
    for place, row in models.iterrows():
        if row["is_valid"]:
            text, start, colour = significant(row["answered_requests_per_s"]), row["answered_requests_per_s"], BLUE
        else:
            reason, start, colour = f"{row['validity']}: {row['validity_reason']}", 0.0, VERMILLION
            text = reason if len(reason) <= REASON_WIDTH else f"{reason[: REASON_WIDTH - 1]}…"
        axes.annotate(text, (start, float(str(place))), (4, 0), textcoords="offset points", va="center", color=colour)


def _draw_latencies(axes: Axes, models: pd.DataFrame) -> None:
    for name, colour, marker in (("p50", GREEN, "o"), ("p99", ORANGE, "D")):
        known = models[models[f"request_{name}_us"].notna()]
        values_ms = known[f"request_{name}_us"] / 1e3
        low, high = (known[f"request_{name}_{end}_us"].fillna(known[f"request_{name}_us"]) / 1e3 for end in LIMITS)
        bars = [(values_ms - low).clip(lower=0), (high - values_ms).clip(lower=0)]
        axes.errorbar(values_ms, known.index, xerr=bars, fmt=marker, color=colour, markersize=5, label=name)
    if models["request_p50_us"].notna().any():
        axes.set(xscale="log", xlabel="latency (ms)")
        label_log(axes.xaxis)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    else:
        axes.set_axis_off()


def _title(models: pd.DataFrame) -> str:
    """Name the model that answers most; models come ordered."""
    first, count = models.iloc[0], int(models["is_valid"].sum())
    if not count:
        return f"None of {len(models)} models could be measured"
    slowest = models[models["is_valid"]].iloc[-1]
    rates = f"{significant(first['answered_requests_per_s'])} answers/s by {Path(first['model_file']).stem}"
    if count > 1:
        rates += f" to {significant(slowest['answered_requests_per_s'])} by {Path(slowest['model_file']).stem}"
    return rates


def _subtitle(models: pd.DataFrame, left_out: int) -> str:
    hosts = models["hostname"].nunique()
    p99s = models["request_p99_us"].dropna()
    parts = [f"{len(models)} models on {hosts} host{'s' * (hosts > 1)}", "bars of the latency: 95 % limits"]
    if len(p99s):
        parts.append(f"largest p99: {duration(p99s.max())}")
    if left_out:
        parts.append(f"{left_out} more in load_fleet.csv")
    return " · ".join(parts)


def draw_interference(services: pd.DataFrame) -> Figure | None:
    """Draw the percentiles of load_interference, alone and together, and the ratios of both."""
    together: list[Any] = services[services["load_state"] == "together"].to_dict("records")
    if not together:
        return None
    names = _names_of_pair(together)
    figure = new_figure(
        _title_of_pair(together, names), "bars: 95 % limits · both services get the same requests each time"
    )
    room = {"left": 0.205, "right": 0.975, "bottom": 0.1, "top": 0.8, "wspace": 0.65}
    left, right = figure.subplots(1, 2, gridspec_kw=room)
    _draw_latencies_of_pair(left, services, [row["model_role"] for row in together], names)
    _draw_factors(right, together, names)
    return figure


def _names_of_pair(together: list[Any]) -> list[str]:
    """Return the name of each service; a model beside itself is named by its role."""
    models = [row["served_model"].removesuffix(".onnx") for row in together]
    short = distinct(models, NAME_WIDTH)
    if len({*models}) == len(models):
        return [short[model] for model in models]
    return [f"{short[model]} ({row['model_role']})" for model, row in zip(models, together, strict=True)]


def _title_of_pair(together: list[Any], names: list[str]) -> str:
    parts = [
        f"{name}: p99 x {row['request_p99_slowdown_factor']:.3g}"
        for name, row in zip(names, together, strict=True)
        if pd.notna(row["request_p99_slowdown_factor"])
    ]
    return f"Together over alone: {', '.join(parts)}" if parts else "No p99 to compare: see load_interference.csv"


def _draw_latencies_of_pair(axes: Axes, services: pd.DataFrame, roles: list[str], names: list[str]) -> None:
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

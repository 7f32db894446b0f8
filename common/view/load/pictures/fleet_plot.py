"""Load tests of many models: the rate that each answers, and its latency with the limits of the percentiles."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from common.view.style import BLUE, GREEN, ORANGE, VERMILLION, label_log, new_figure
from common.view.text import distinct, duration, significant

MOST_MODELS, LABEL_WIDTH, REASON_WIDTH = 24, 34, 60
LIMITS = ("low", "high")


def draw_fleet(models: pd.DataFrame) -> Figure | None:
    """Draw a bar for each row of load_fleet, the fastest first; rows without a valid run come last, with the reason."""
    if models.empty:
        return None
    is_valid = models["validity"] == "valid"
    ordered = models.assign(is_valid=is_valid, rate=models["answered_requests_per_s"].where(is_valid))
    ordered = ordered.sort_values(["is_valid", "rate"], ascending=False, kind="stable")
    shown = ordered.head(MOST_MODELS).reset_index(drop=True)
    figure = new_figure(_title(ordered), _subtitle(models, len(models) - len(shown)))
    grid = GridSpec(1, 2, figure, left=0.24, right=0.975, bottom=0.09, top=0.84, wspace=0.06)
    left, right = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
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
            text, start, colour = _shortened(f"{row['validity']}: {row['validity_reason']}"), 0.0, VERMILLION
        axes.annotate(text, (start, float(str(place))), (4, 0), textcoords="offset points", va="center", color=colour)


def _shortened(text: str) -> str:
    return text if len(text) <= REASON_WIDTH else f"{text[: REASON_WIDTH - 1]}…"


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

"""The curve of a service: latency against the rate, measured and predicted, and all configurations that were tried."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from common.table_rows import LoadBestDocument
from common.view.load.search_text import setup_label
from common.view.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, label_log, new_figure
from common.view.text import duration, significant

SESSION_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION)
MARKERS = "osD^vP*X"


def draw_load_curve(trials: pd.DataFrame, best: LoadBestDocument) -> Figure | None:
    """Draw the best configuration's curve, and the rate and p99 of every run of load_search."""
    judged = trials[trials["request_p99_us"].notna()]
    if judged.empty:
        return None
    figure = new_figure(_title(best), "latency counts from the intended start · bars are the limits of each percentile")
    grid = GridSpec(1, 2, figure, width_ratios=(1, 1), left=0.07, right=0.985, bottom=0.1, top=0.84, wspace=0.2)
    curve = judged[judged["trial_kind"] == "curve"].sort_values("offered_requests_per_s")
    left, right = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    if curve.empty:
        left.text(0.5, 0.5, "no valid run of a curve", ha="center", transform=left.transAxes)
    else:
        _draw_curve(left, curve)
    _draw_trials(right, judged)
    for axes in (left, right):
        axes.axhline(best["bound_us"] / 1e3, color=BLACK, linestyle="--", linewidth=1)
        axes.set(xlabel="requests per second", ylabel="latency (ms)", yscale="log")
        axes.annotate(
            "bound", (1, best["bound_us"] / 1e3), (-3, 3), ("axes fraction", "data"), "offset points", ha="right"
        )
        label_log(axes.yaxis)
        axes.grid(visible=True)
        axes.legend(loc="best", fontsize=8)
    left.set_title(f"the best: {setup_label(best['best_by']['rate'])}" if best["best_by"] else "")
    right.set_title("every valid run; filled: no run is better")
    return figure


def _draw_curve(axes: Axes, curve: pd.DataFrame) -> None:
    for name, colour in (("p50", BLUE), ("p99", ORANGE)):
        rates, values = curve["offered_requests_per_s"], curve[f"request_{name}_us"] / 1e3
        low = (values - curve[f"request_{name}_low_us"] / 1e3).fillna(0.0)
        high = (curve[f"request_{name}_high_us"] / 1e3 - values).fillna(0.0)
        axes.errorbar(rates, values, yerr=[low.clip(lower=0), high.clip(lower=0)], fmt="o-", color=colour, label=name)
        axes.plot(rates, curve[f"predicted_{name}_us"] / 1e3, ":", color=colour, label=f"{name}, predicted")
    place = knee(curve)
    axes.axvline(place, color=GREY, linewidth=1)
    side = -1 if place > float(np.mean(axes.get_xlim())) else 1  # where there is room
    axes.annotate(
        f"knee {significant(place)}/s",
        (place, 0),
        (4 * side, 4),
        ("data", "axes fraction"),
        "offset points",
        color=GREY,
        ha="right" if side < 0 else "left",
    )


def knee(curve: pd.DataFrame) -> float:
    """Return the rate at which rate over median latency is largest (Kleinrock 1979, ICC: power of a queue)."""
    rates = curve["offered_requests_per_s"].to_numpy(float)
    return float(rates[np.argmax(rates / curve["request_p50_us"].to_numpy(float))])


def _draw_trials(axes: Axes, judged: pd.DataFrame) -> None:
    """Draw each run; the colour is its sessions, the marker its largest batch."""
    sessions, sizes = sorted(judged["session_count"].unique()), sorted(judged["batch_max_count"].unique())
    labelled = set()
    for row in judged.to_dict("records"):
        colour = SESSION_COLOURS[sessions.index(row["session_count"]) % len(SESSION_COLOURS)]
        marker = MARKERS[sizes.index(row["batch_max_count"]) % len(MARKERS)]
        key = row["session_count"], row["batch_max_count"]
        label = (
            None
            if key in labelled
            else f"{row['session_count']} x {row['threads']} threads, batch {row['batch_max_count']}"
        )
        labelled.add(key)
        face = colour if row["is_on_load_front"] else "none"
        place = row["answered_requests_per_s"], row["request_p99_us"] / 1e3
        axes.plot(*place, marker, color=colour, markerfacecolor=face, label=label, linestyle="none")
    front = judged[judged["is_on_load_front"]].sort_values("answered_requests_per_s")
    axes.step(front["answered_requests_per_s"], front["request_p99_us"] / 1e3, where="pre", color=GREY, linewidth=0.8)


def _title(best: LoadBestDocument) -> str:
    bound = duration(best["bound_us"])
    if best["best_by"]:
        first = best["best_by"]["rate"]
        return f"{significant(first['sustained_requests_per_s'])} requests/s with p99 within {bound}"
    return f"Nothing meets a p99 of {bound}"

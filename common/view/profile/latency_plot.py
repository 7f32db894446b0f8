"""Latency of the runs as a series, with the warm-up shaded, and as a distribution with percentiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from common.view.placing import spread
from common.view.style import BLUE, GREY, ORANGE, PALE, new_figure
from common.view.text import duration, percent

if TYPE_CHECKING:
    from common.table_rows import LatencySummaryDocument

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
SERIES = ((False, "unprofiled", BLUE, "o"), (True, "profiled", ORANGE, "^"))
MARGIN_SHARE = 0.06  # of the range of the measured runs, above and below them
MOST_MARKERS = 10_000  # more of them become one image in an SVG, which would take 100 bytes for each
LABEL_GAP_SHARE = 0.045  # of the height, between two labels


def draw_latency(runs: pd.DataFrame, summary: LatencySummaryDocument | None) -> Figure:
    """Draw the series and the distribution on one latency axis.

    Args:
        runs: run_latency.
        summary: latency_summary, or None.
    """
    low_ms, high_ms = _range(runs)
    hidden = runs[runs["latency_us"] * 1e-3 > high_ms]
    figure = new_figure(_title(runs, summary), _subtitle(runs, hidden, summary))
    grid = GridSpec(1, 2, figure, width_ratios=(6, 5), left=0.075, right=0.88, bottom=0.1, top=0.83, wspace=0.06)
    series = figure.add_subplot(grid[0])
    distribution = figure.add_subplot(grid[1], sharey=series)
    series.set_ylim(low_ms, high_ms)
    _draw_series(series, runs)
    _draw_distribution(distribution, runs)
    if summary:
        _mark_percentiles(distribution, summary)
    series.legend(ncols=3, loc="lower left", bbox_to_anchor=(-0.02, 1.0), borderpad=0, handletextpad=0.3)
    return figure


def _range(runs: pd.DataFrame) -> tuple[float, float]:
    """Return the limits of the latency axis in ms, without the warm-up, which would flatten the rest."""
    measured = runs[~runs["is_warmup"]]
    times_ms = (measured if len(measured) else runs)["latency_us"] * 1e-3
    low, high = float(times_ms.min()), float(times_ms.max())
    margin = MARGIN_SHARE * (high - low) or 0.05 * high
    return max(low - margin, 0.0), high + margin


def _title(runs: pd.DataFrame, summary: LatencySummaryDocument | None) -> str:
    if not summary or summary["p50_us"] is None:
        measured = runs[~runs["is_warmup"]]
        plain = measured[~measured["is_profiled"]]
        kind, shown = ("", plain) if len(plain) else ("profiled ", measured)
        return f"Median of {len(shown)} {kind}runs: {duration(float(shown['latency_us'].median()))}"
    overhead = percent(summary["profiling_overhead_fraction"])
    tail = next((name for name in ("p99_9", "p99", "p95", "p90") if _figure(summary, name) is not None), None)
    tails = f", {_label(tail)} {duration(_figure(summary, tail))}" if tail else ""
    return f"Median latency {duration(summary['p50_us'])}{tails}; profiling adds {overhead}"


def _subtitle(runs: pd.DataFrame, hidden: pd.DataFrame, summary: LatencySummaryDocument | None) -> str:
    warmup = int(runs["is_warmup"].sum())
    text = f"{len(runs)} runs, {warmup} of them warm-up and in no statistic"
    if summary and summary["sample_count"] and summary["steady_start_index"] is None:
        text += "; no steady state"
    if len(hidden):
        text += f"; {len(hidden)} beyond the scale, up to {duration(float(hidden['latency_us'].max()))}"
    absent = [_label(name) for name in PERCENTILES if summary and _figure(summary, name) is None]
    if summary and summary["sample_count"] and absent:
        text += f"; too few for {', '.join(absent)}"
    return text


def _label(name: str) -> str:
    return name.replace("_", ".")


def _draw_series(axes: Axes, runs: pd.DataFrame) -> None:
    for is_profiled, label, colour, marker in SERIES:
        rows = runs[runs["is_profiled"] == is_profiled]
        axes.plot(
            rows["run_index"],
            rows["latency_us"] * 1e-3,
            linestyle="none",
            marker=marker,
            markersize=3,
            color=colour,
            alpha=0.75,
            label=label,
            rasterized=len(rows) > MOST_MARKERS,
        )
    if (warmup := runs[runs["is_warmup"]]).size:
        axes.axvspan(-0.5, float(warmup["run_index"].max()) + 0.5, color=PALE, linewidth=0, zorder=0, label="warm-up")
    axes.set(xlabel="run, in order", ylabel="latency (ms)")
    axes.grid(visible=True, axis="y")
    axes.margins(x=0.01)


def _draw_distribution(axes: Axes, runs: pd.DataFrame) -> None:
    for is_profiled, _, colour, _ in SERIES:
        times = runs[(runs["is_profiled"] == is_profiled) & ~runs["is_warmup"]]["latency_us"].sort_values() * 1e-3
        if len(times):
            shares = [(rank + 1) / len(times) for rank in range(len(times))]
            axes.step(shares, times, where="pre", color=colour, linewidth=1.6)
    axes.set(xlim=(0, 1.0), xlabel="share of runs at or below this latency")
    axes.xaxis.set_major_formatter(lambda value, _: percent(value, 0))
    axes.tick_params(axis="y", labelleft=False)
    axes.grid(visible=True)


def _figure(summary: LatencySummaryDocument, name: str) -> float | None:
    """Return a percentile, or one of its limits, by its name without the unit."""
    return cast("Mapping[str, float | None]", summary)[f"{name}_us"]


def _mark_percentiles(axes: Axes, summary: LatencySummaryDocument) -> None:
    """Mark each percentile on the curve, with its confidence interval and a label to the right."""
    known = {name: value for name in PERCENTILES if (value := _figure(summary, name)) is not None}
    low, high = axes.get_ylim()
    places = spread([value * 1e-3 for value in known.values()], LABEL_GAP_SHARE * (high - low))
    for (name, value_us), place in zip(known.items(), places, strict=True):
        axes.plot([PERCENTILES[name]], [value_us * 1e-3], marker="D", color=BLUE, markersize=5, clip_on=False, zorder=5)
        limits = [_figure(summary, f"{name}_{end}") for end in ("low", "high")]
        if None not in limits:
            axes.plot(
                [PERCENTILES[name]] * 2, [limit * 1e-3 for limit in limits if limit], color=BLUE, linewidth=4, alpha=0.4
            )
        line, text = [PERCENTILES[name], 1.0, 1.04], f"{_label(name)} {duration(value_us)}"
        axes.plot(line, [value_us * 1e-3] * 2 + [place], color=GREY, linewidth=0.6, clip_on=False)
        axes.text(1.05, place, text, va="center", fontsize=8.5)

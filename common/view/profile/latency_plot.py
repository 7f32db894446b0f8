"""Latency of the runs as a series, with the warm-up shaded, and as a distribution with percentiles."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.table_rows import LatencySummaryDocument
from common.view.placing import spread
from common.view.profile.latency_text import percentiles, profiling_text
from common.view.style import BLUE, GREY, ORANGE, PALE, new_figure
from common.view.text import duration, percent

SERIES = ((False, "unprofiled", BLUE, "o"), (True, "profiled", ORANGE, "^"))
MARGIN_SHARE = 0.06  # of the range of the measured runs, above and below them
MOST_MARKERS = 10_000  # more of them become one image in an SVG, which would take 100 bytes for each
LABEL_GAP_SHARE = 0.045  # of the height, between two labels


def draw_latency(runs: pd.DataFrame, summary: LatencySummaryDocument | None) -> Figure:
    """Draw run_latency as a series and as a distribution, on one latency axis."""
    low_ms, high_ms = _range(runs)
    hidden = runs[runs["latency_us"] * 1e-3 > high_ms]
    figure = new_figure(_title(runs, summary), _subtitle(runs, hidden, summary))
    room = {"left": 0.075, "right": 0.88, "bottom": 0.1, "top": 0.83, "wspace": 0.06}
    series, distribution = figure.subplots(1, 2, sharey=True, width_ratios=(6, 5), gridspec_kw=room)
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
    tail, tail_us = [(name, figures[0]) for name, figures in percentiles(summary).items() if figures[0] is not None][-1]
    tails = "" if tail == "p50" else f", {tail} {duration(tail_us)}"
    low_us, high_us = summary["p50_low_us"], summary["p50_high_us"]
    interval = "" if low_us is None else f" ({duration(low_us)} to {duration(high_us)})"
    return f"Median latency {duration(summary['p50_us'])}{interval}{tails}; profiling {profiling_text(summary)}"


def _subtitle(runs: pd.DataFrame, hidden: pd.DataFrame, summary: LatencySummaryDocument | None) -> str:
    warmup = int(runs["is_warmup"].sum())
    text = f"{len(runs)} runs, {warmup} of them warm-up and in no statistic"
    if summary and summary["sample_count"] and summary["steady_start_index"] is None:
        text += "; no steady state"
    if len(hidden):
        text += f"; {len(hidden)} beyond the scale, up to {duration(float(hidden['latency_us'].max()))}"
    absent = [name for name, figures in percentiles(summary).items() if figures[0] is None] if summary else []
    if summary and summary["sample_count"] and absent:
        text += f"; too few for {', '.join(absent)}"
    return text


def _draw_series(axes: Axes, runs: pd.DataFrame) -> None:
    for is_profiled, label, colour, marker in SERIES:
        rows = runs[runs["is_profiled"] == is_profiled]
        look = {"markersize": 3, "alpha": 0.75, "rasterized": len(rows) > MOST_MARKERS}
        axes.plot(rows["run_index"], rows["latency_us"] * 1e-3, marker, color=colour, label=label, **look)  # type: ignore[arg-type]
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


def _mark_percentiles(axes: Axes, summary: LatencySummaryDocument) -> None:
    """Mark each percentile on the curve, with its confidence interval and a label to the right."""
    known = [
        (name, float(name[1:]) / 100, value_us * 1e-3, low_us, high_us)
        for name, (value_us, low_us, high_us) in percentiles(summary).items()
        if value_us is not None
    ]
    low, high = axes.get_ylim()
    places = spread([value_ms for _, _, value_ms, *_ in known], LABEL_GAP_SHARE * (high - low))
    for (name, share, value_ms, low_us, high_us), place in zip(known, places, strict=True):
        axes.plot([share], [value_ms], marker="D", color=BLUE, markersize=5, clip_on=False, zorder=5)
        if low_us is not None and high_us is not None:
            axes.plot([share] * 2, [low_us * 1e-3, high_us * 1e-3], color=BLUE, linewidth=4, alpha=0.4)
        axes.plot([share, 1.0, 1.04], [value_ms] * 2 + [place], color=GREY, linewidth=0.6, clip_on=False)
        axes.text(1.05, place, f"{name} {duration(value_ms * 1e3)}", va="center", fontsize=8.5)

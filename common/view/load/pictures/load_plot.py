"""A load test: requests that wait over time, sizes of batches, and the share of computation that padding wastes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from common.table_rows import LoadSummaryDocument
from common.view.style import BLUE, GREEN, GREY, ORANGE, new_figure
from common.view.text import duration, percent, quantity, significant

MOST_POINTS = 2000
MOST_BARS = 64


def draw_load(requests: pd.DataFrame, batches: pd.DataFrame, summary: LoadSummaryDocument) -> Figure | None:
    """Draw load_requests and load_batches; return None where one of them is empty."""
    if requests.empty or batches.empty:
        return None
    has_padding = bool((batches["padding_share"] > 0).any())
    figure = new_figure(_title(summary), _subtitle(summary))
    widths = (5, 3, 3) if has_padding else (5, 3)
    grid = GridSpec(
        1, len(widths), figure, width_ratios=widths, left=0.065, right=0.985, bottom=0.1, top=0.83, wspace=0.25
    )
    _draw_queue(figure.add_subplot(grid[0]), requests)
    _draw_sizes(figure.add_subplot(grid[1]), batches)
    if has_padding:
        _draw_padding(figure.add_subplot(grid[2]), batches)
    return figure


def _draw_queue(axes: Axes, requests: pd.DataFrame) -> None:
    """Draw the most requests that waited in each slice of time: a thinned line would lose the peaks."""
    times_s, depths = requests["intended_us"].to_numpy(float) / 1e6, requests["queue_depth_count"].to_numpy(float)
    edges = np.linspace(times_s[0], max(times_s[-1], times_s[0] + 1e-9), min(MOST_POINTS, len(times_s)) + 1)
    starts = np.unique(np.searchsorted(times_s, edges[:-1]))
    starts = starts[starts < len(times_s)]
    axes.fill_between(
        times_s[starts], np.maximum.reduceat(depths, starts), color=BLUE, alpha=0.35, step="post", linewidth=0
    )
    axes.plot(times_s[starts], np.maximum.reduceat(depths, starts), color=BLUE, linewidth=0.8, drawstyle="steps-post")
    axes.set(title="requests that wait", xlabel="time (s)", ylabel="requests", ylim=(0, None), xlim=(times_s[0], None))
    axes.grid(visible=True)


def _draw_sizes(axes: Axes, batches: pd.DataFrame) -> None:
    counts = batches["request_count"].value_counts().sort_index()
    axes.bar(counts.index, 100 * counts / counts.sum(), color=GREEN, width=0.8)
    axes.set(title="sizes of batches", xlabel="requests in a batch", ylabel="share of the batches (%)")
    if len(counts) <= MOST_BARS // 4:
        axes.set_xticks(counts.index)
    axes.grid(visible=True, axis="y")


def _draw_padding(axes: Axes, batches: pd.DataFrame) -> None:
    """Draw what share of tokens, and of FLOPs where they are known, nobody asked for, by size of the batch."""
    means = batches.groupby("request_count")[["padding_share", "padding_flops_share"]].mean()
    axes.plot(means.index, 100 * means["padding_share"], "o-", color=ORANGE, label="requests or tokens")
    if means["padding_flops_share"].notna().any():
        axes.plot(means.index, 100 * means["padding_flops_share"], "s--", color=GREY, label="FLOPs")
    axes.set(title="padding", xlabel="requests in a batch", ylabel="wasted computation (%)", ylim=(0, None))
    axes.legend()
    axes.grid(visible=True)


def _title(summary: LoadSummaryDocument) -> str:
    rate = quantity(summary["offered_requests_per_s"], "requests/s")
    if summary["validity"] != "valid":
        return f"{summary['validity']} at {rate}: {summary['validity_reason']}"
    p50, p99 = duration(summary["request_p50_us"]), duration(summary["request_p99_us"])
    return f"{rate}: median {p50}, p99 {p99} from the intended start"


def _subtitle(summary: LoadSummaryDocument) -> str:
    mean, busy = summary["mean_request_count"], summary["utilization_share"]
    parts = [f"workers busy {percent(busy)}"]
    if mean is not None:
        parts.append(f"{significant(mean)} requests in a batch on average")
    parts.append(f"generator late for {percent(summary['generator_late_share'], 2)} of the requests")
    return " · ".join(parts)

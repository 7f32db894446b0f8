"""A load test: batches and padding, the curve over the rate, and of a long one memory, latency and rate over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.table_rows import EnduranceSummaryDocument, LoadBestDocument, LoadSummaryDocument
from common.view.load.compared_loads_text import setup_label
from common.view.load.load_text import leak_text, speed_text
from common.view.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, label_log, new_figure
from common.view.text import duration, percent, quantity, significant

MOST_POINTS = 2000
MOST_BARS = 64
MEGABYTE, US_PER_MIN, S_PER_MIN = 1e6, 6e7, 60.0


def draw_load(requests: pd.DataFrame, batches: pd.DataFrame, summary: LoadSummaryDocument) -> Figure | None:
    """Draw load_requests and load_batches; return None where one of them is empty."""
    if requests.empty or batches.empty:
        return None
    has_padding = bool((batches["padding_share"] > 0).any())
    figure = new_figure(_title(summary), _subtitle(summary))
    widths = (5, 3, 3) if has_padding else (5, 3)
    room = {"left": 0.065, "right": 0.985, "bottom": 0.1, "top": 0.83, "wspace": 0.25}
    queue, sizes, *padding = figure.subplots(1, len(widths), width_ratios=widths, gridspec_kw=room)
    _draw_queue(queue, requests)
    _draw_sizes(sizes, batches)
    if padding:
        _draw_padding(padding[0], batches)
    return figure


def _draw_queue(axes: Axes, requests: pd.DataFrame) -> None:
    """Draw the most requests that waited in each slice of time: a thinned line would lose the peaks."""
    times_s, depths = requests["intended_us"].to_numpy(float) / 1e6, requests["queue_depth_count"].to_numpy(float)
    edges = np.linspace(times_s[0], max(times_s[-1], times_s[0] + 1e-9), min(MOST_POINTS, len(times_s)) + 1)
    starts = np.unique(np.searchsorted(times_s, edges[:-1]))
    starts = starts[starts < len(times_s)]
    shown_s, most = times_s[starts], np.maximum.reduceat(depths, starts)
    axes.fill_between(shown_s, most, color=BLUE, alpha=0.35, step="post", linewidth=0)
    axes.plot(shown_s, most, color=BLUE, linewidth=0.8, drawstyle="steps-post")
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


def draw_endurance(parts: pd.DataFrame, summary: EnduranceSummaryDocument) -> Figure | None:
    """Draw the parts of endurance as panels over one time axis."""
    if len(parts) < 2:
        return None
    figure = new_figure(leak_text(summary), speed_text(summary))
    minutes = (parts["part_start_us"] + parts["part_duration_us"]) / US_PER_MIN
    room = {"left": 0.075, "right": 0.985, "bottom": 0.09, "top": 0.86, "hspace": 0.25}
    memory, latency, rate = panels = figure.subplots(3, gridspec_kw=room)
    memory.plot(minutes, parts["resident_bytes"] / MEGABYTE, "o-", color=BLUE, markersize=3)
    memory.set_ylabel("memory (MB)")
    for name, colour in (("request_p99_us", ORANGE), ("request_p50_us", GREEN), ("call_us", GREY)):
        label = {"call_us": "one call"}.get(name, name.split("_")[1])
        latency.plot(minutes, parts[name] / 1e3, "o-", color=colour, markersize=3, label=label)
    latency.set(ylabel="latency (ms)", ylim=(0, None))
    latency.legend(ncols=3, loc="lower left")
    rate.plot(minutes, parts["answered_requests_per_s"], "o-", color=BLUE, markersize=3)
    rate.set(ylabel="answers per second", ylim=(0, None), xlabel="time (min)")
    for axes in panels:
        axes.grid(visible=True)
        axes.set_xlim(0, float(minutes.max()))
        for change in [*summary["call_levels"]][1:]:
            axes.axvline(float(change) / S_PER_MIN, color=GREY, linestyle=":", linewidth=1)
    return figure


SESSION_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION)
MARKERS = "osD^vP*X"


def draw_load_curve(trials: pd.DataFrame, best: LoadBestDocument) -> Figure | None:
    """Draw the best configuration's curve, and the rate and p99 of every run of load_search."""
    judged = trials[trials["request_p99_us"].notna()]
    if judged.empty:
        return None
    figure = new_figure(
        _title_of_curve(best), "latency counts from the intended start · bars are the limits of each percentile"
    )
    room = {"left": 0.07, "right": 0.985, "bottom": 0.1, "top": 0.84, "wspace": 0.2}
    left, right = figure.subplots(1, 2, gridspec_kw=room)
    curve = judged[judged["trial_kind"] == "curve"].sort_values("offered_requests_per_s")
    if curve.empty:
        left.text(0.5, 0.5, "no valid run of a curve", ha="center", transform=left.transAxes)
    else:
        _draw_curve(left, curve)
    _draw_trials(right, judged)
    bound_ms = best["bound_us"] / 1e3
    for axes in (left, right):
        axes.axhline(bound_ms, color=BLACK, linestyle="--", linewidth=1)
        axes.set(xlabel="requests per second", ylabel="latency (ms)", yscale="log")
        axes.annotate("bound", (1, bound_ms), (-3, 3), ("axes fraction", "data"), "offset points", ha="right")
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
    is_left = place > float(np.mean(axes.get_xlim()))  # where there is room
    spot, align = (-4 if is_left else 4, 4), "right" if is_left else "left"
    text, at = f"knee {significant(place)}/s", ("data", "axes fraction")
    axes.annotate(text, (place, 0), spot, at, "offset points", color=GREY, ha=align)


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
        named = f"{row['session_count']} x {row['threads']} threads, batch {row['batch_max_count']}"
        label = None if key in labelled else named
        labelled.add(key)
        face = colour if row["is_on_load_front"] else "none"
        place = row["answered_requests_per_s"], row["request_p99_us"] / 1e3
        axes.plot(*place, marker, color=colour, markerfacecolor=face, label=label, linestyle="none")
    front = judged[judged["is_on_load_front"]].sort_values("answered_requests_per_s")
    axes.step(front["answered_requests_per_s"], front["request_p99_us"] / 1e3, where="pre", color=GREY, linewidth=0.8)


def _title_of_curve(best: LoadBestDocument) -> str:
    bound = duration(best["bound_us"])
    if best["best_by"]:
        first = best["best_by"]["rate"]
        return f"{significant(first['sustained_requests_per_s'])} requests/s with p99 within {bound}"
    return f"Nothing meets a p99 of {bound}"

"""Latency with its confidence intervals, and the slowest nodes, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from common.view.text import duration, percent, quantity, table

SHOWN_NODES = 10
FIGURES = ("p50", "p90", "p95", "p99", "p99_9", "mean", "jitter")
MEMORY = {"in use": "peak_memory", "arena": "arena", "process": "peak_resident"}


def latency_report(summary: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return percentiles of the unprofiled runs, the cost of profiling, and the slowest nodes."""
    total_us = summary["p50_us"] or summary["mean_us"]
    lines = [
        f"latency of {summary['sample_count']} unprofiled runs at {summary['threads']} threads, {summary['provider']}",
        _steady_line(summary),
        table(("", "value", "low", "high"), [_figure_row(summary, name) for name in FIGURES]),
        f"min {duration(summary['min_us'])}, max {duration(summary['max_us'])}; cold: session "
        f"{duration(summary['session_creation_us'])}, first run {duration(summary['first_run_us'])}",
        f"profiled runs take {duration(summary['profiled_median_us'])}: "
        f"{100 * summary['profiling_overhead_fraction']:+.1f} % compared with unprofiled runs",
        _memory_line(summary),
        "",
        table(("executed node", "op_type", "raw", "corrected", "share"), _node_rows(total_us, nodes), left=(0, 1)),
    ]
    return "\n".join(lines)


def imported_report(summary: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return the text for an imported trace: its runs, and the slowest nodes with their share of the kernel time."""
    nodes = [*map(_with_median, nodes)]
    kernel_us = sum(row["raw_median_us"] for row in nodes)
    runs = "an unknown number of" if summary["profiled_sample_count"] is None else summary["profiled_sample_count"]
    lines = [
        f"imported trace of {runs} profiled runs at {summary['threads']} threads, {summary['provider']}",
        f"median of the profiled runs {duration(summary['profiled_median_us'])}; sum of the nodes' medians "
        f"{duration(kernel_us)}, not corrected",
        _memory_line(summary),
        "",
        table(("executed node", "op_type", "raw", "corrected", "share"), _node_rows(kernel_us, nodes), left=(0, 1)),
    ]
    return "\n".join(lines)


def _with_median(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row of a node; where its profile has a mean only, that stands for the median."""
    kinds = ("raw", "corrected")
    means = {f"{kind}_median_us": row[f"{kind}_mean_us"] for kind in kinds if row[f"{kind}_median_us"] is None}
    return {**row, **means}


def _steady_line(summary: Mapping[str, Any]) -> str:
    warmup = f"the first {summary['warmup_count']} runs are left out"
    if summary["steady_start_index"] is None:
        return f"no steady state: the latency level still changes; {warmup}"
    return f"steady state: {summary['steady_state']}, from run {summary['steady_start_index']}; {warmup}"


def _memory_line(summary: Mapping[str, Any]) -> str:
    peaks = ", ".join(f"{label} {quantity(summary[f'{name}_bytes'], 'B')}" for label, name in MEMORY.items())
    balance = summary["pool_balance_share"]
    return f"peak memory: {peaks}" + ("" if balance is None else f"; pool balance {percent(balance)}")


def _figure_row(summary: Mapping[str, Any], name: str) -> list[str]:
    keys = (f"{name}_us", f"{name}_low_us", f"{name}_high_us")
    return [name.replace("_", "."), *(duration(summary[key], 4) for key in keys)]


def _node_rows(total_us: float, nodes: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    ranked = sorted(
        (row for row in nodes if not row["is_correction_dominated"]), key=lambda row: -row["corrected_median_us"]
    )
    rows = []
    for row in ranked[:SHOWN_NODES]:
        raw, corrected = row["raw_median_us"], row["corrected_median_us"]
        rows.append(
            [row["executed_node"], row["op_type"], duration(raw), duration(corrected), percent(corrected / total_us)]
        )
    return rows

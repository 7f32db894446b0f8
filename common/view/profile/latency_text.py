"""Latency with its confidence intervals, and the slowest nodes, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

from common.table_rows import LatencySummaryDocument
from common.view.tables import Table, TableColumn, table_of_cells
from common.view.text import WIDTH, duration, percent, quantity

SHOWN_NODES = 10
LATER = ", in runs after the others"  # of a large model, whose sessions took no turns
STEADY = {"flat": "flat", "warm-up": "after slower runs", "slowdown": "after faster runs"}  # by kind of series
NOTICED_SAVING = 0.02  # of an unprofiled run: less is how far two medians scatter
FIGURES = table_of_cells("", "latency", "at least", "at most")
Limited = tuple[float | None, float | None, float | None]  # a time in µs, and the limits of its confidence interval


class NodeLatencyRow(TypedDict):
    executed_node: str
    op_type: str
    raw_median_us: float | None
    raw_mean_us: float | None
    corrected_median_us: float | None
    corrected_mean_us: float | None
    is_correction_dominated: bool


def percentiles(summary: LatencySummaryDocument) -> dict[str, Limited]:
    """Return each percentile of the unprofiled runs in µs with its limits; one with too few runs is None."""
    return {name: _with_limits(summary, name.replace(".", "_")) for name in ("p50", "p90", "p95", "p99", "p99.9")}


def _with_limits(summary: LatencySummaryDocument, name: str) -> Limited:
    times_us = cast("Mapping[str, float | None]", summary)
    return times_us[f"{name}_us"], times_us[f"{name}_low_us"], times_us[f"{name}_high_us"]


def profiling_text(summary: LatencySummaryDocument) -> str:
    """Return the cost of profiling as a share of a run; a saving means that the host changed."""
    overhead, later = summary["profiling_overhead_fraction"], "" if summary["is_alternating"] else LATER
    if overhead is None or overhead >= 0:
        return f"adds {percent(overhead)} to a run{later}"
    if overhead > -NOTICED_SAVING:
        return f"costs no time that could be measured{later}"
    return f"unknown: profiled runs took {percent(-overhead)} less than the others, so the host changed between them"


def latency_report(summary: LatencySummaryDocument, nodes: Sequence[NodeLatencyRow], doubts: Sequence[str] = ()) -> str:
    """Return doubts first, percentiles of the unprofiled runs, the cost of profiling, and the slowest nodes."""
    total_us = summary["p50_us"] or summary["mean_us"] or 0.0
    overhead = summary["profiling_overhead_fraction"] or 0.0
    figures = percentiles(summary) | {name: _with_limits(summary, name) for name in ("mean", "jitter")}
    lines = [
        *(line for doubt in doubts for line in textwrap.wrap(doubt, WIDTH)),
        f"latency of {summary['sample_count']} unprofiled runs at {summary['threads']} threads, {summary['provider']}",
        _steady_line(summary),
        FIGURES.text([name, *(duration(time_us, 4) for time_us in times_us)] for name, times_us in figures.items()),
        f"min {duration(summary['min_us'])}, max {duration(summary['max_us'])}; cold: session "
        f"{duration(summary['session_creation_us'])}, first run {duration(summary['first_run_us'])}",
        f"profiled runs take {duration(summary['profiled_median_us'])}: "
        f"{100 * overhead:+.1f} % compared with unprofiled runs{'' if summary['is_alternating'] else ' before them'}",
        _memory_line(summary),
        "",
        _slowest(nodes, total_us),
    ]
    return "\n".join(lines)


def imported_report(summary: LatencySummaryDocument, nodes: Sequence[NodeLatencyRow]) -> str:
    """Return the text for an imported trace: its runs, and the slowest nodes with their share of the kernel time."""
    kernel_us = sum(_raw_us(row) for row in nodes)
    runs = "an unknown number of" if summary["profiled_sample_count"] is None else summary["profiled_sample_count"]
    lines = [
        f"imported trace of {runs} profiled runs at {summary['threads']} threads, {summary['provider']}",
        f"median of the profiled runs {duration(summary['profiled_median_us'])}; sum of the nodes' medians "
        f"{duration(kernel_us)}, not corrected",
        f"names match for {percent(summary['matched_time_share'])} of the time and "
        f"{percent(summary['matched_contraction_share'])} of the model's contractions",
        _memory_line(summary),
        "",
        _slowest(nodes, kernel_us),
    ]
    return "\n".join(lines)


def _raw_us(row: NodeLatencyRow) -> float:
    """Return the median of a node, or its mean where its profile has no other figure."""
    return row["raw_mean_us"] or 0.0 if row["raw_median_us"] is None else row["raw_median_us"]


def _corrected_us(row: NodeLatencyRow) -> float:
    return row["corrected_mean_us"] or 0.0 if row["corrected_median_us"] is None else row["corrected_median_us"]


def _steady_line(summary: LatencySummaryDocument) -> str:
    warmup = f"the first {summary['warmup_count']} runs are left out"
    if summary["steady_start_index"] is None:
        return f"no steady state: the latency level still changes; {warmup}"
    return f"steady state: {steady_text(summary)}; {warmup}"


def steady_text(summary: LatencySummaryDocument) -> str:
    """Return how a series with a steady state began, and the first steady run."""
    return f"{STEADY[summary['steady_state'] or 'flat']}, from run {summary['steady_start_index']}"


def _memory_line(summary: LatencySummaryDocument) -> str:
    peaks = summary["peak_memory_bytes"], summary["arena_bytes"], summary["peak_resident_bytes"]
    used, arena, process = (quantity(peak, "B") for peak in peaks)
    balance = summary["pool_balance_share"]
    shared = "" if balance is None else f"; pool balance {percent(balance)}"
    return f"peak memory: in use {used}, arena {arena}, process {process}{shared}"


def _slowest(nodes: Sequence[NodeLatencyRow], total_us: float) -> str:
    """Return the slowest nodes with their shares of a time; those that the correction dominates are left out."""
    columns: Table[NodeLatencyRow] = Table(
        TableColumn("executed node", lambda row: row["executed_node"]),
        TableColumn("op_type", lambda row: row["op_type"], is_left=True),
        TableColumn("raw", lambda row: duration(_raw_us(row))),
        TableColumn("corrected", lambda row: duration(_corrected_us(row))),
        TableColumn("share", lambda row: percent(_corrected_us(row) / total_us if total_us else None)),
    )
    ranked = sorted((row for row in nodes if not row["is_correction_dominated"]), key=lambda row: -_corrected_us(row))
    return columns.text(ranked[:SHOWN_NODES])

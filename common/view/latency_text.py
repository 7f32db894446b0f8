"""The tables that 01 prints: latency with its limits, and the nodes that take most of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.view.text import duration, percent, table

SHOWN_NODES = 10
PERCENTILES = ("p50", "p90", "p95", "p99", "p99_9")


def latency_report(summary: Mapping[str, Any], nodes: pd.DataFrame) -> str:
    """Percentiles of the unprofiled runs, the cost of profiling, and the slowest nodes."""
    lines = [
        f"latency of {summary['sample_count']} unprofiled runs at {summary['threads']} threads, {summary['provider']}",
        table(("", "value", "low", "high"), [_percentile_row(summary, name) for name in PERCENTILES]),
        f"mean {duration(summary['mean_us'])}, jitter {duration(summary['jitter_us'])}, "
        f"min {duration(summary['min_us'])}, max {duration(summary['max_us'])}, "
        f"first run {duration(summary['first_run_us'])}",
        f"profiled runs take {percent(summary['profiling_overhead_fraction'])} more",
        "",
        table(("executed node", "op_type", "raw", "corrected", "share"), _node_rows(summary, nodes), left=(0, 1)),
    ]
    return "\n".join(lines)


def _percentile_row(summary: Mapping[str, Any], name: str) -> list[str]:
    keys = (f"{name}_us", f"{name}_low_us", f"{name}_high_us")
    return [name.replace("_", "."), *(duration(summary[key], 4) for key in keys)]


def _node_rows(summary: Mapping[str, Any], nodes: pd.DataFrame) -> list[list[str]]:
    ranked = nodes[~nodes["is_correction_dominated"]].nlargest(SHOWN_NODES, "corrected_median_us")
    total = summary["p50_us"] or summary["mean_us"]
    rows = []
    for row in ranked.to_dict("records"):
        raw, corrected = row["raw_median_us"], row["corrected_median_us"]
        rows.append(
            [row["executed_node"], row["op_type"], duration(raw), duration(corrected), percent(corrected / total)]
        )
    return rows

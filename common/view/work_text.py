"""The table that 02 prints: work and traffic by operator type, and the totals."""

from __future__ import annotations

import pandas as pd

from common.view.text import percent, quantity, table

FIGURES = ["macs", "flops", "weight_bytes", "bytes"]


def work_report(metrics: pd.DataFrame) -> str:
    """Counts, MACs, FLOPs and bytes by operator type, the largest first; unknowns are left out of every sum."""
    figures = metrics.groupby("op_type")[FIGURES].sum(min_count=1)
    figures.insert(0, "nodes", metrics.groupby("op_type").size())
    figures = figures.sort_values(["macs", "flops", "nodes"], ascending=False, kind="stable")
    total = metrics[FIGURES].sum(min_count=1)  # an unknown total is empty, never zero
    total_flops = total["flops"]
    rows = [_row(str(name), row, total_flops) for name, row in figures.iterrows()]
    header = ("op_type", "nodes", "MACs", "FLOPs", "share", "weights", "bytes")
    return table(header, [*rows, _row("total", pd.Series({"nodes": len(metrics), **total}), total_flops)])


def _row(name: str, row: pd.Series, total_flops: float) -> list[str]:
    share = None if pd.isna(total_flops) or not total_flops else row["flops"] / total_flops
    sizes = [quantity(row[key], "B") for key in ("weight_bytes", "bytes")]
    return [name, f"{row['nodes']:.0f}", quantity(row["macs"], ""), quantity(row["flops"], ""), percent(share), *sizes]

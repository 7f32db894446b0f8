"""The table that 02 prints: work and traffic by operator type, and the totals."""

from __future__ import annotations

import pandas as pd

from common.view.text import percent, quantity, table


def work_report(metrics: pd.DataFrame) -> str:
    """Counts, MACs, FLOPs and bytes by operator type, the largest first; unknowns are left out of every sum."""
    figures = metrics.groupby("op_type")[["macs", "flops", "weight_bytes", "bytes"]].sum(min_count=1)
    figures.insert(0, "nodes", metrics.groupby("op_type").size())
    figures = figures.sort_values(["macs", "flops", "nodes"], ascending=False, kind="stable")
    total_flops = metrics["flops"].sum()
    rows = [_row(str(name), row, total_flops) for name, row in figures.iterrows()]
    total = pd.Series({"nodes": len(metrics), **metrics[["macs", "flops", "weight_bytes", "bytes"]].sum()})
    header = ("op_type", "nodes", "MACs", "FLOPs", "share", "weights", "bytes")
    return table(header, [*rows, _row("total", total, total_flops)])


def _row(name: str, row: pd.Series, total_flops: float) -> list[str]:
    share = row["flops"] / total_flops if total_flops else None
    sizes = [quantity(row[key], "B") for key in ("weight_bytes", "bytes")]
    return [name, f"{row['nodes']:.0f}", quantity(row["macs"], ""), quantity(row["flops"], ""), percent(share), *sizes]

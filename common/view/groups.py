"""Executed nodes grouped by operator type: time, share of the roof, and bound."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from common.host_doubts import EXPECTED_GAP_SHARE
from common.view.text import percent


@dataclass(frozen=True, slots=True)
class OperatorTypeTotals:
    """Sums over the executed nodes of one operator type.

    ``roof_share`` is the time at the roof divided by the time taken; ``bound`` is the one with most of the time, and
    ``bounds`` are all. Rates and the share hold for all nodes: they are None where the work of a node is unknown, or
    where the profiler's correction dominates every node.
    """

    name: str
    node_count: int
    latency_us: float
    latency_share: float
    flops: float | None
    attained_flop_per_s: float | None
    attained_bytes_per_s: float | None
    roof_share: float | None
    bound: str
    bounds: tuple[str, ...]


def by_op_type(roofline: pd.DataFrame) -> list[OperatorTypeTotals]:
    """Return the totals of each operator type, the slowest first; the gap is left out."""
    nodes = roofline[roofline["row_kind"] != "gap"]
    totals = [_totals(str(op_type), rows) for op_type, rows in nodes.groupby("op_type", sort=True)]
    return sorted(totals, key=lambda row: -row.latency_us)


def _totals(name: str, rows: pd.DataFrame) -> OperatorTypeTotals:
    latency_us = float(rows["node_latency_us"].sum())
    flops = rows["flops"].sum(min_count=1)
    is_known = rows[["flops", "bytes"]].notna().all(axis=None) and not rows["is_correction_dominated"].all()
    per_s = 1e6 / latency_us if is_known and latency_us > 0 else None
    bounds = rows[rows["bound"] != ""].groupby("bound")["node_latency_us"].sum()
    return OperatorTypeTotals(
        name=name,
        node_count=len(rows),
        latency_us=latency_us,
        latency_share=float(rows["latency_share"].sum()),
        flops=None if pd.isna(flops) else float(flops),
        attained_flop_per_s=per_s and float(flops) * per_s,
        attained_bytes_per_s=per_s and float(rows["bytes"].sum()) * per_s,
        roof_share=_mean_roof_share(rows) if per_s else None,
        bound=str(bounds.idxmax()) if len(bounds) else "",
        bounds=tuple(sorted(map(str, bounds.index))),
    )


def _mean_roof_share(rows: pd.DataFrame) -> float | None:
    """Return the roof share of several nodes: Σ time at the roof / Σ time, over the rows whose share is known."""
    known = rows[rows["roof_share"].notna()]
    time_us = float(known["node_latency_us"].sum())
    return float((known["roof_share"] * known["node_latency_us"]).sum()) / time_us if time_us > 0 else None


def gap_share(roofline: pd.DataFrame) -> float:
    """Return the gap's share of the latency; 0 where the table has no gap."""
    return float(roofline.loc[roofline["row_kind"] == "gap", "latency_share"].sum())


def leading_gap(nodes: pd.DataFrame) -> float | None:
    """Return the gap's share of the latency where it comes before any operator; None where it does not.

    It does if it takes more than any operator type. It also does if the node times exceed the latency, which is then
    no whole that they are parts of.
    """
    gap = gap_share(nodes)
    types = nodes[nodes["row_kind"] != "gap"].groupby("op_type")["latency_share"].sum()
    return gap if gap < EXPECTED_GAP_SHARE[0] or gap > max(types, default=0.0) else None


def gap_text(gap: float) -> str:
    """Return what a gap of this share of the latency says."""
    if gap < 0:
        return f"Node times exceed the unprofiled median by {percent(-gap, 0)}"
    return f"The gap between nodes takes {percent(gap, 0)} of the latency"

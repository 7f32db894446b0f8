"""Time, work and place under the roof by operator type as text, with the gap and the coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.table_rows import OpRooflineRow
from common.view.executed_nodes import OperatorTypeTotals, by_op_type
from common.view.tables import Table, TableColumn
from common.view.text import duration, percent, quantity

# Why a node is above its roof, by roof_share_reason: a cache serves traffic, and never computes.
REASONS = {
    "correction": "the profiler's correction",
    "not_executed": "work that was not executed",
    "cache": "operands from a cache",
    "padding": "taps on padding",
    "winograd": "Winograd or FFT multiplies less",
    "ceiling": "a low ceiling",
}
OPERATORS: Table[OperatorTypeTotals] = Table(
    TableColumn("op_type", lambda group: group.name),
    TableColumn("nodes", lambda group: str(group.node_count)),
    TableColumn("time", lambda group: duration(group.latency_us)),
    TableColumn("share", lambda group: percent(group.latency_share)),
    TableColumn("FLOP/s", lambda group: quantity(group.attained_flop_per_s, "")),
    TableColumn("B/s", lambda group: quantity(group.attained_bytes_per_s, "")),
    TableColumn("of roof", lambda group: percent(group.roof_share, 0)),
    TableColumn("bound", lambda group: ", ".join(group.bounds), is_left=True),
)


def roofline_report(
    roofline: Sequence[OpRooflineRow],
    peaks: Mapping[str, float],
    bandwidth: float,
    coverage: float,
    median_us: float | None,
) -> str:
    """Return a line per operator type, the slowest first, and one for the gap; rates hold for all nodes of a type.

    Peaks in FLOP/s that no node is compared with are not shown; the bandwidth is in bytes/s. ``median_us``, of the
    unprofiled runs, is None where it is unknown, and with it the gap.
    """
    nodes = [row for row in roofline if row["row_kind"] != "gap"]
    last = [
        ["(gap)", "", duration(row["node_latency_us"]), percent(row["latency_share"]), *[""] * 4]
        for row in roofline
        if row["row_kind"] == "gap"
    ]
    total_us = sum(row["node_latency_us"] for row in roofline)
    last.append(["total", str(len(nodes)), duration(total_us), percent(total_us / (median_us or total_us)), *[""] * 4])
    roofs = {row["roof"] for row in nodes}
    judging = {name: peak for name, peak in peaks.items() if name in roofs}
    ceilings = [
        f"ceilings{f' {name}' if len(judging) > 1 else ''} {quantity(peak, 'OP/s' if name == 'int8' else 'FLOP/s')}, "
        f"{quantity(bandwidth, 'B/s')}, ridge {peak / bandwidth:.1f} FLOP/byte"
        for name, peak in judging.items()
    ]
    lines = [
        *ceilings,
        OPERATORS.text(by_op_type(roofline), last=last),
        f"coverage {100 * coverage:.2f} % of the traced kernel time has an owner",
    ]
    if any(row["is_correction_dominated"] for row in nodes):
        lines.append("types without rates: each of their nodes takes less than four times what profiling adds to it")
    return "\n".join(lines)


def contraction_report(
    contraction_count: int,
    matched_count: int,
    agreeing_count: int,
    padded_count: int,
    open_count: int,
    single_share: float,
) -> str:
    """Return how many contractions are matched to executed nodes, and how their MACs are known."""
    padded = f", {padded_count} with padded channels" if padded_count else ""
    from_run = f", {open_count} known only by the shapes that ran" if open_count else ""
    return (
        f"contractions: {matched_count} of {contraction_count} matched, "
        f"MACs agree for {agreeing_count}{padded}{from_run}\n"
        f"{100 * single_share:.1f} % of the time is in nodes with at most one convolution or matmul"
    )


def work_line(roofline: Sequence[OpRooflineRow]) -> str:
    """Return how many MACs are counted from the model's shapes, and how many from the shapes that ran."""
    nodes = [row for row in roofline if row["row_kind"] != "gap"]
    whole = sum(row["macs"] or 0 for row in nodes)
    ran = sum(row["macs"] or 0 for row in nodes if row["work_source"] == "executed")
    parts = [f"{whole - ran:,} MACs counted from the model's shapes"]
    parts += [f"{ran:,} ({percent(ran / whole)}) from the shapes that ran"] if ran else []
    if unknown := sum(row["flops"] is None for row in nodes):
        parts.append(f"work unknown for {unknown} of {len(nodes)} nodes")
    return ", ".join(parts)

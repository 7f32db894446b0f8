"""Time, work and place under the roof by operator type as text, with the gap and the coverage."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from common.view.groups import OperatorTypeTotals, by_op_type
from common.view.text import duration, percent, quantity, table


def roofline_report(
    roofline: pd.DataFrame, peaks: Mapping[str, float], bandwidth: float, coverage: float, median_us: float | None
) -> str:
    """Return a line per operator type, the slowest first, and one for the gap; rates hold for all nodes of a type.

    Args:
        roofline: op_roofline.
        peaks: FLOP/s by name of the roof; peaks that no node is compared with are not shown.
        bandwidth: bytes/s.
        coverage: share of the traced time that has an owner.
        median_us: of the unprofiled runs; None where it is unknown, and with it the gap.
    """
    nodes = roofline[roofline["row_kind"] != "gap"]
    rows = [_type_row(group) for group in by_op_type(roofline)]
    for _, gap in roofline.loc[roofline["row_kind"] == "gap"].iterrows():
        rows.append(["(gap)", "", duration(gap["node_latency_us"]), percent(gap["latency_share"]), *[""] * 4])
    total_us = float(roofline["node_latency_us"].sum())
    rows.append(["total", str(len(nodes)), duration(total_us), percent(total_us / (median_us or total_us)), *[""] * 4])
    header = ("op_type", "nodes", "time", "share", "FLOP/s", "B/s", "of roof", "bound")
    lines = [
        *_ceilings({name: peak for name, peak in peaks.items() if (nodes["roof"] == name).any()}, bandwidth),
        table(header, rows, left=(0, 7)),
        f"coverage {100 * coverage:.2f} % of the traced kernel time has an owner",
    ]
    if nodes["is_correction_dominated"].any():
        lines.append("no rates for types of which every node takes less than four times its profiling overhead")
    return "\n".join(lines)


def _ceilings(peaks: Mapping[str, float], bandwidth: float) -> list[str]:
    """Return a line for each peak with its ridge point; the number format is named where there are several."""
    return [
        f"ceilings{f' {name}' if len(peaks) > 1 else ''} {quantity(peak, 'OP/s' if name == 'int8' else 'FLOP/s')}, "
        f"{quantity(bandwidth, 'B/s')}, ridge {peak / bandwidth:.1f} FLOP/byte"
        for name, peak in peaks.items()
    ]


def _type_row(group: OperatorTypeTotals) -> list[str]:
    rates = [quantity(rate, "") for rate in (group.attained_flop_per_s, group.attained_bytes_per_s)]
    time = [duration(group.latency_us), percent(group.latency_share)]
    return [group.name, str(group.node_count), *time, *rates, percent(group.roof_share, 0), ", ".join(group.bounds)]


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


def work_line(roofline: pd.DataFrame) -> str:
    """Return how many MACs are counted from the model's shapes, and how many from the shapes that ran."""
    nodes = roofline[roofline["row_kind"] != "gap"]
    whole, ran = (sum(rows["macs"].dropna().tolist()) for rows in (nodes, nodes[nodes["work_source"] == "executed"]))
    parts = [f"{whole - ran:,} MACs counted from the model's shapes"]
    parts += [f"{ran:,} ({percent(ran / whole)}) from the shapes that ran"] if ran else []
    if unknown := int(nodes["flops"].isna().sum()):
        parts.append(f"work unknown for {unknown} of {len(nodes)} nodes")
    return ", ".join(parts)

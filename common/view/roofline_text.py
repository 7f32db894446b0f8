"""The table that 03 prints: time, work and place under the roof by operator type, the gap, and the coverage."""

from __future__ import annotations

import pandas as pd

from common.view.text import duration, percent, quantity, table


def roofline_report(roofline: pd.DataFrame, peak: float, bandwidth: float, coverage: float, median_us: float) -> str:
    """By operator type, the slowest first; rates are of the whole type, the gap has its own line."""
    nodes = roofline[roofline["row_kind"] != "gap"]
    types = [_type_row(str(name), found, peak, bandwidth) for name, found in nodes.groupby("op_type", sort=False)]
    types.sort(key=lambda row: -row[0])
    gap = roofline.loc[roofline["row_kind"] == "gap"].iloc[0]
    rows = [cells for _, cells in types]
    rows.append(["(gap)", "", duration(gap["node_latency_us"]), percent(gap["latency_share"]), *[""] * 4])
    total_us = float(roofline["node_latency_us"].sum())
    rows.append(["total", str(len(nodes)), duration(total_us), percent(total_us / median_us), *[""] * 4])
    header = ("op_type", "nodes", "time", "share", "FLOP/s", "B/s", "of roof", "bound")
    ceilings = f"{quantity(peak, 'FLOP/s')}, {quantity(bandwidth, 'B/s')}, ridge {peak / bandwidth:.1f} FLOP/byte"
    lines = [
        f"ceilings {ceilings}",
        table(header, rows, left=(0, 7)),
        f"coverage {100 * coverage:.2f} % of the traced kernel time has an owner",
    ]
    if nodes["is_correction_dominated"].any():
        lines.append("no rates for types whose nodes all take less than four times what profiling adds to them")
    return "\n".join(lines)


def _type_row(name: str, found: pd.DataFrame, peak: float, bandwidth: float) -> tuple[float, list[str]]:
    time_us = float(found["node_latency_us"].sum())
    is_known = (
        bool(found[["flops", "bytes"]].notna().all(axis=None))
        and time_us > 0
        and not found["is_correction_dominated"].all()
    )
    flops, moved = float(found["flops"].sum()), float(found["bytes"].sum())
    rates = (flops / time_us * 1e6, moved / time_us * 1e6) if is_known else (None, None)
    roof = min(peak, bandwidth * flops / moved) if is_known and flops and moved else None
    share = rates[0] / roof if roof and rates[0] else rates[1] / bandwidth if rates[1] else None
    bounds = ", ".join(sorted({str(bound) for bound in found["bound"] if bound}))
    texts = [quantity(rates[0], ""), quantity(rates[1], ""), percent(share, 0), bounds]
    return time_us, [name, str(len(found)), duration(time_us), percent(found["latency_share"].sum()), *texts]


def heavy_report(
    heavy_count: int, matched_count: int, agreeing_count: int, padded_count: int, single_share: float
) -> str:
    """Whether every contraction was found again in what ran, with as many multiply-accumulates."""
    padded = f", {padded_count} with padded channels" if padded_count else ""
    return (
        f"heavy operators {matched_count} of {heavy_count} matched, MACs agree for {agreeing_count}{padded}\n"
        f"{100 * single_share:.1f} % of the time is in nodes with at most one of them"
    )

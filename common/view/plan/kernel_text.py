"""A kernel list as text: the list as its source states it, and the corrected list with totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.table_rows import KernelsCorrectedRow, KernelsRow
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, duration, percent, quantity

MB = 1e6


def _whole(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def _intensity(row: KernelsRow | KernelsCorrectedRow) -> str:
    value = row["arithmetic_intensity_flop_per_byte"]
    return "nan" if value is None else f"{value:.2f}"


STATED: Table[KernelsRow] = Table(
    TableColumn("kernel", lambda row: row["kernel"]),
    TableColumn("M", lambda row: _whole(row["m"])),
    TableColumn("K", lambda row: _whole(row["k"])),
    TableColumn("N", lambda row: _whole(row["n"])),
    TableColumn("FLOPs", lambda row: _whole(row["flops"])),
    TableColumn("bytes", lambda row: _whole(row["bytes"])),
    TableColumn("OP/byte", _intensity),
    TableColumn("weight MB", lambda row: f"{(row['weight_bytes'] or 0) / MB:.2f}"),
)
CORRECTED: Table[KernelsCorrectedRow] = Table(
    TableColumn("kernel", lambda row: row["kernel"]),
    TableColumn("calls", lambda row: str(row["call_count"])),
    TableColumn("FLOPs", lambda row: quantity(row["total_flops"], "", 4)),
    TableColumn("bytes", lambda row: quantity(row["total_bytes"], "")),
    TableColumn("fused", lambda row: quantity(row["total_fused_bytes"], "")),
    TableColumn("OP/byte", _intensity),
    TableColumn("bound", lambda row: row["bound"] or MISSING),
    TableColumn("at roof", lambda row: duration(row["roof_us"])),
    TableColumn("fused", lambda row: duration(row["fused_roof_us"])),
)


def kernels_report(
    title: str,
    kernels: Sequence[KernelsRow],
    corrected: Sequence[KernelsCorrectedRow],
    precision: str,
    correction: Mapping[str, float],
) -> str:
    """Return both tables in one number format, and the difference in FLOPs and bytes.

    ``correction`` has projection_flops, attention_flops and row_flops of one inference.
    """
    counted = [row for row in corrected if row["precision"] == precision]
    lines = [
        f"{title}, as stated, one call each, {precision.upper()}",
        STATED.text(row for row in kernels if row["precision"] == precision),
        "",
        f"{title}, corrected, all calls of one inference, {precision.upper()}",
        _corrected(counted),
        "",
        *_arithmetic(counted, correction),
    ]
    return "\n".join(lines)


def _corrected(rows: Sequence[KernelsCorrectedRow]) -> str:
    flops = sum(row["total_flops"] for row in rows)
    moved, fused = sum(row["total_bytes"] for row in rows), sum(row["total_fused_bytes"] for row in rows)
    sums = ["total", str(sum(row["call_count"] for row in rows)), quantity(flops, "", 4)]
    sums += [quantity(moved, ""), quantity(fused, ""), f"{flops / moved:.2f}", ""]
    times_us = sum(row["roof_us"] for row in rows), sum(row["fused_roof_us"] for row in rows)
    return CORRECTED.text(rows, last=[[*sums, *map(duration, times_us)]])


def _arithmetic(rows: Sequence[KernelsCorrectedRow], correction: Mapping[str, float]) -> list[str]:
    attention, projections, others = (int(correction[f"{name}_flops"]) for name in ("attention", "projection", "row"))
    row_wise = [row for row in rows if row["k"] is None]
    moved, left = sum(row["total_bytes"] for row in row_wise), sum(row["total_fused_bytes"] for row in row_wise)
    more = f"{percent(attention / projections)} more" if projections else "nothing else is counted"
    return [
        f"QKᵀ and PV: {attention:,} FLOPs on top of the {projections:,} of projections",
        f"and feed-forward nets: {more}.",
        f"Row-wise operators: {others:,} FLOPs and {quantity(moved, 'B')} of traffic; fused, {quantity(left, 'B')}.",
    ]

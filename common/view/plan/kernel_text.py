"""A kernel list as text: the list as its source states it, and the corrected list with totals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.view.text import MISSING, duration, percent, quantity, table

MB = 1e6


def kernels_report(
    title: str, kernels: pd.DataFrame, corrected: pd.DataFrame, precision: str, correction: Mapping[str, Any]
) -> str:
    """Return both tables in one number format, and the difference in FLOPs and bytes.

    Args:
        title: of the list.
        kernels: the kernels table.
        corrected: kernels_corrected.
        precision: the format to show.
        correction: projection_flops, attention_flops and row_flops of one inference.
    """
    stated, counted = (frame[frame["precision"] == precision] for frame in (kernels, corrected))
    return "\n".join(
        [
            f"{title}, as stated, one call each, {precision.upper()}",
            _stated(stated),
            "",
            f"{title}, corrected, all calls of one inference, {precision.upper()}",
            _corrected(counted),
            "",
            *_arithmetic(counted, correction),
        ]
    )


def _stated(rows: pd.DataFrame) -> str:
    header = ("kernel", "M", "K", "N", "FLOPs", "bytes", "OP/byte", "weight MB")
    cells = [
        [
            row["kernel"],
            *(_whole(row[name]) for name in ("m", "k", "n", "flops", "bytes")),
            f"{row['arithmetic_intensity_flop_per_byte']:.2f}",
            f"{row['weight_bytes'] / MB:.2f}",
        ]
        for row in rows.to_dict("records")
    ]
    return table(header, cells)


def _whole(value: Any) -> str:
    return MISSING if pd.isna(value) else f"{int(value):,}"


def _corrected(rows: pd.DataFrame) -> str:
    header = ("kernel", "calls", "FLOPs", "bytes", "fused", "OP/byte", "bound", "at roof", "fused")
    cells = [
        [
            row["kernel"],
            str(row["call_count"]),
            quantity(row["total_flops"], "", 4),
            quantity(row["total_bytes"], ""),
            quantity(row["total_fused_bytes"], ""),
            f"{row['arithmetic_intensity_flop_per_byte']:.2f}",
            row["bound"] or MISSING,
            duration(row["roof_us"]),
            duration(row["fused_roof_us"]),
        ]
        for row in rows.to_dict("records")
    ]
    totals = [rows[name].sum() for name in ("total_flops", "total_bytes", "total_fused_bytes")]
    times = [rows[name].sum(min_count=1) for name in ("roof_us", "fused_roof_us")]
    flops, *moved = totals
    sums = ["total", str(rows["call_count"].sum()), quantity(flops, "", 4), *(quantity(size, "") for size in moved)]
    cells.append([*sums, f"{flops / moved[0]:.2f}", "", *(duration(time) for time in times)])
    return table(header, cells)


def _arithmetic(rows: pd.DataFrame, correction: Mapping[str, Any]) -> list[str]:
    attention, projections, others = (int(correction[f"{name}_flops"]) for name in ("attention", "projection", "row"))
    moved, left = (quantity(_row_bytes(rows, name), "B") for name in ("total_bytes", "total_fused_bytes"))
    return [
        f"QKᵀ and PV: {attention:,} FLOPs on top of the {projections:,} of projections",
        f"and feed-forward nets: {_more(attention, projections)}.",
        f"Row-wise operators: {others:,} FLOPs and {moved} of traffic; fused, {left}.",
    ]


def _more(added: int, base: int) -> str:
    return f"{percent(added / base)} more" if base else "nothing else is counted"


def _row_bytes(rows: pd.DataFrame, column: str) -> float:
    return float(rows.loc[rows["k"].isna(), column].sum())

"""The best groups of a model on an accelerator as text: a line for each group, and how far from the bound they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from common.view.text import MISSING, percent, quantity, table

MB, KIB = 1e6, 1024


def fusion_report(title: str, groups: Sequence[Mapping[str, Any]], products: Mapping[str, float]) -> str:
    """Return the groups, and the energy-delay products beside their bound.

    Args:
        title: of the accelerator.
        groups: rows of a schedule, in the order in which they run.
        products: ``fused``, ``unfused`` and ``bound`` in pJ · cycles.
    """
    header = ("last layer", "layers", "tile", "halo", "rest", "MB", "work", "cycles", "KiB")
    return "\n".join([title, table(header, [_cells(row) for row in groups]), "", *_products(products)])


def _cells(row: Mapping[str, Any]) -> list[str]:
    is_tiled = row["tile_rows"] is not None
    return [
        row["last_layer"],
        str(row["layer_count"]),
        f"{row['tile_rows']}x{row['tile_columns']}" if is_tiled else MISSING,
        ("kept" if row["keeps_halo"] else "again") if is_tiled else MISSING,
        str(row["resting_count"]),
        f"{row['moved_bytes'] / MB:.2f}",
        f"+{percent(row['recomputed_share'])}",
        quantity(row["cycles"], ""),
        f"{row['peak_bytes'] / KIB:.1f}",
    ]


def _products(products: Mapping[str, float]) -> list[str]:
    fused, unfused, bound = (products[name] for name in ("fused", "unfused", "bound"))
    over = max(0.0, fused / bound - 1)
    return [
        f"EDP {fused:.4g} pJ·cycles, {percent(1 - fused / unfused)} below {unfused:.4g} without fusion",
        f"bound {bound:.4g}: no schedule is better by more than {percent(over / (1 + over))}",
    ]

"""Evaluated accelerators as tables of the report: designs, and the mappings and fused groups of the best one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.view.design.text_tables import KIB, PICO
from common.view.html import html_table
from common.view.text import MISSING, percent, quantity, significant

MOST_ROWS = 60
OPERANDS = ("weight", "input", "output")


def design_tables(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the tables of the design space that are there.

    Args:
        tables: design_points, design_mappings and design_groups.
    """
    if "design_points" not in tables:
        return ""
    points = tables["design_points"].sort_values("edp_pj_cycles", kind="stable", na_position="last")
    best = points.iloc[0]["design"] if len(points) else None
    parts = [point_table(points)]
    if "design_comparison" in tables:
        parts.append(comparison_table(tables["design_comparison"]))
    for name, build in (("design_mappings", mapping_table), ("design_groups", group_table)):
        if name in tables:
            parts.append(build(tables[name][tables[name]["design"] == best]))
    return "\n".join(filter(None, parts))


def point_table(points: pd.DataFrame) -> str:
    """Return a row for each design, the least product first; one in which nothing fits says why."""
    rows = [
        [
            row["design"],
            row["search_engine"],
            *([MISSING] * 6 if pd.isna(row["edp_pj_cycles"]) else _costs(row)),
            "yes" if row["is_pareto"] else "",
            row["problem"] or "",
        ]
        for row in points.head(MOST_ROWS).to_dict("records")
    ]
    header = ("design", "search", "area", "energy", "cycles", "EDP, pJ·cycles", "bound", "gap", "front", "problem")
    more = f"{MOST_ROWS} of {len(points)} designs; all of them in design_points.csv" if len(points) > MOST_ROWS else ""
    return html_table(header, rows, more)


def _costs(row: Mapping[Any, Any]) -> list[str]:
    return [
        MISSING if pd.isna(row["chip_mm2"]) else f"{significant(row['chip_mm2'])} mm²",
        quantity(row["modelled_energy_pj"] * PICO, "J"),
        quantity(row["modelled_cycles"], ""),
        f"{row['edp_pj_cycles']:.4e}",
        f"{row['bound_edp_pj_cycles']:.4e}",
        percent(row["gap_share"]),
    ]


def comparison_table(compared: pd.DataFrame) -> str:
    """Return a row for each algorithm on each design; nothing where there is one search in all."""
    rows = [
        [
            row["design"],
            row["algorithm"],
            str(row["seed"]),
            f"{row['edp_pj_cycles']:.4e}",
            MISSING if pd.isna(row["evaluation_count"]) else f"{row['evaluation_count']:,.0f}",
            f"{significant(row['search_s'])} s",
            MISSING if pd.isna(row["gap_share"]) else percent(row["gap_share"]),
            "yes" if row["is_complete"] else "stopped",
        ]
        for row in compared.head(MOST_ROWS).to_dict("records")
    ]
    header = ("design", "algorithm", "seed", "EDP, pJ·cycles", "evaluations", "time", "gap", "complete")
    return html_table(header, rows) if compared["algorithm"].nunique() > 1 else ""


def mapping_table(mappings: pd.DataFrame) -> str:
    """Return a row for each contraction of a design, in the order of computation."""
    rows = [
        [
            row["source_node"] + (f" [{row['nest_index']}]" if row["nest_index"] else ""),
            str(row["execution_count"]),
            quantity(row["modelled_energy_pj"] * PICO, "J"),
            quantity(row["modelled_cycles"], ""),
            percent(row["array_use_share"]),
            *(quantity(row[f"dram_{operand}_bytes"], "B") for operand in OPERANDS),
            row["mapping"],
        ]
        for row in mappings.head(MOST_ROWS).to_dict("records")
    ]
    header = (
        "contraction",
        "runs",
        "energy",
        "cycles",
        "array",
        *(f"DRAM, {operand}" for operand in OPERANDS),
        "mapping",
    )
    count = len(mappings)
    more = f"{MOST_ROWS} of {count} contractions; all of them in design_mappings.csv" if count > MOST_ROWS else ""
    return html_table(header, rows, more)


def group_table(groups: pd.DataFrame) -> str:
    """Return a row for each fused group of a design, in the order of computation."""
    rows = [
        [
            row["first_layer"],
            row["last_layer"],
            str(row["layer_count"]),
            MISSING if pd.isna(row["tile_row_count"]) else f"{row['tile_row_count']}x{row['tile_column_count']}",
            MISSING if pd.isna(row["halo"]) else row["halo"],
            str(row["resting_count"]),
            quantity(row["dram_bytes"], "B"),
            f"+{percent(row['recomputed_share'])}",
            quantity(row["modelled_energy_pj"] * PICO, "J"),
            quantity(row["modelled_cycles"], ""),
            f"{row['buffer_peak_bytes'] / KIB:.1f} KiB",
        ]
        for row in groups.head(MOST_ROWS).to_dict("records")
    ]
    header = (
        *("first layer", "last layer", "layers", "tile", "halo", "resident"),
        *("DRAM", "work", "energy", "cycles", "peak"),
    )
    more = f"{MOST_ROWS} of {len(groups)} groups; all of them in design_groups.csv" if len(groups) > MOST_ROWS else ""
    return html_table(header, rows, more)

"""Evaluated accelerators as tables of the report: designs, and the mappings and fused groups of the best one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from common.table_rows import DesignComparisonRow, DesignGroupsRow, DesignMappingsRow, DesignPointsRow, Tables
from common.view.design.text_tables import (
    CYCLES,
    DRAM,
    LAST_LAYER,
    LAYERS,
    RESIDENT,
    TILE,
    WORK,
    contraction_name,
    joules,
    product,
)
from common.view.design.text_tables import PEAK_KIB as KIB_NUMBER
from common.view.tables import Table, TableColumn, rows_left_out
from common.view.text import MISSING, percent, quantity, significant

MOST_ROWS = 60
Row = TypeVar("Row")


def _area(point: DesignPointsRow) -> str:
    """Return the area; a design in which nothing fits has none."""
    area = None if point["edp_pj_cycles"] is None else point["chip_mm2"]
    return MISSING if area is None else f"{significant(area)} mm²"


POINTS: Table[DesignPointsRow] = Table(
    TableColumn("design", lambda row: row["design"]),
    TableColumn("search", lambda row: row["search_engine"]),
    TableColumn("area", _area),
    TableColumn("energy", lambda row: joules(row["modelled_energy_pj"])),
    TableColumn("cycles", lambda row: quantity(row["modelled_cycles"], "")),
    TableColumn("EDP, pJ·cycles", lambda row: product(row["edp_pj_cycles"])),
    TableColumn("physical floor", lambda row: product(row["bound_edp_pj_cycles"])),
    TableColumn("over floor", lambda row: percent(row["gap_share"])),
    TableColumn("front", lambda row: "yes" if row["is_pareto"] else ""),
    TableColumn("problem", lambda row: row["problem"]),
)
SEARCHES: Table[DesignComparisonRow] = Table(
    TableColumn("design", lambda row: row["design"]),
    TableColumn("algorithm", lambda row: row["algorithm"]),
    TableColumn("seed", lambda row: str(row["seed"])),
    TableColumn("EDP, pJ·cycles", lambda row: product(row["edp_pj_cycles"])),
    TableColumn("evaluations", lambda row: MISSING if (count := row["evaluation_count"]) is None else f"{count:,}"),
    TableColumn("time", lambda row: f"{significant(row['search_s'])} s"),
    TableColumn("gap", lambda row: percent(row["space_gap_share"])),
    TableColumn("over floor", lambda row: percent(row["gap_share"])),
    TableColumn("complete", lambda row: "yes" if row["is_complete"] else "stopped"),
)
MAPPINGS: Table[DesignMappingsRow] = Table(
    TableColumn("contraction", contraction_name),
    TableColumn("runs", lambda row: str(row["execution_count"])),
    TableColumn("energy", lambda row: joules(row["modelled_energy_pj"])),
    TableColumn("cycles", lambda row: quantity(row["modelled_cycles"], "")),
    TableColumn("array", lambda row: percent(row["array_use_share"])),
    TableColumn("DRAM, weight", lambda row: quantity(row["dram_weight_bytes"], "B")),
    TableColumn("DRAM, input", lambda row: quantity(row["dram_input_bytes"], "B")),
    TableColumn("DRAM, output", lambda row: quantity(row["dram_output_bytes"], "B")),
    TableColumn("mapping", lambda row: row["mapping"]),
)
GROUPS: Table[DesignGroupsRow] = Table(
    TableColumn("first layer", lambda row: row["first_layer"]),
    *(LAST_LAYER, LAYERS, TILE),
    TableColumn("halo", lambda row: row["halo"] or MISSING),
    *(RESIDENT, DRAM, WORK),
    TableColumn("energy", lambda row: joules(row["modelled_energy_pj"])),
    CYCLES,
    TableColumn("peak", lambda row: f"{KIB_NUMBER.cell(row)} KiB"),
)


def design_tables(tables: Tables) -> str:
    if "design_points" not in tables:
        return ""
    points = sorted(tables["design_points"], key=_product_or_last)
    best = points[0]["design"] if points else None
    parts = [_first_rows(POINTS, points, "design_points.csv")]
    searches = tables.get("design_comparison", [])
    if len({row["algorithm"] for row in searches}) > 1:
        parts.append(SEARCHES.html(searches[:MOST_ROWS]))
    mappings = [row for row in tables.get("design_mappings", ()) if row["design"] == best]
    parts.append(_first_rows(MAPPINGS, mappings, "design_mappings.csv"))
    groups = [row for row in tables.get("design_groups", ()) if row["design"] == best]
    parts.append(_first_rows(GROUPS, groups, "design_groups.csv"))
    return "\n".join(filter(None, parts))


def _first_rows(table: Table[Row], rows: Sequence[Row], file: str) -> str:
    return table.html(rows[:MOST_ROWS], rows_left_out(rows[:MOST_ROWS], rows, file))


def _product_or_last(point: DesignPointsRow) -> float:
    """Return the energy-delay product; designs in which nothing fits come last."""
    return math.inf if (edp := point["edp_pj_cycles"]) is None else edp

"""Evaluated accelerators as text and in the report: the best one and its bounds, the others, its mappings or groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from common.table_rows import (
    DesignBudgetsRow,
    DesignComparisonRow,
    DesignGroupsRow,
    DesignMappingsRow,
    DesignPointsRow,
    DesignSummaryDocument,
    Tables,
)
from common.view.tables import Table, TableColumn, rows_left_out
from common.view.text import MISSING, percent, quantity, significant

if TYPE_CHECKING:
    import pandas as pd


Row = TypeVar("Row")
KIB, PICO = 1024, 1e-12
MOST_ROWS, MOST_IN_PAGE = 12, 60
MOST_POINTS = 32  # of a larger sweep, only the front is shown


def joules(energy_pj: float | None) -> str:
    """Write an energy given in pJ, in the unit that reads best."""
    return quantity(None if energy_pj is None else energy_pj * PICO, "J")


def product(edp_pj_cycles: float | None, digits: int = 4) -> str:
    return MISSING if edp_pj_cycles is None else f"{edp_pj_cycles:.{digits}e}"


def short_name(design: str, hardware: str) -> str:
    """Return the sizes that a sweep gives a design; its whole name where there is no sweep."""
    return design.removeprefix(f"{hardware} ")


class DesignNames(NamedTuple):
    """Names by design, and what the sizes in them are; empty where the names say so themselves."""

    of: dict[str, str]
    explanation: str


def design_names(points: pd.DataFrame) -> DesignNames:
    """Return ``128, 64, 32x32`` for ``gemmini scratchpad_kib=128 accumulator_kib=64 array=32x32``."""
    designs = zip(points["design"], points["hardware"], strict=True)
    names = {name: short_name(name, hardware) for name, hardware in designs}
    sizes = {design: dict(word.partition("=")[::2] for word in name.split()) for design, name in names.items()}
    keys = {tuple(sized) for sized in sizes.values()}
    if len(keys) != 1 or len(only := keys.pop()) < 2:
        return DesignNames(names, "")
    return DesignNames({design: ", ".join(sized.values()) for design, sized in sizes.items()}, ", ".join(only))


def _interrupted(row: DesignPointsRow | DesignComparisonRow | DesignSummaryDocument) -> str:
    """Return a mark for a search that Ctrl-C ended."""
    return "" if row["is_complete"] else " (interrupted: the best so far)"


def contraction_name(row: DesignMappingsRow) -> str:
    """Return the node of a loop nest, with the number of the nest where the node has several."""
    return row["source_node"] + (f" [{row['nest_index']}]" if row["nest_index"] else "")


def _tile(row: DesignGroupsRow) -> str:
    return MISSING if row["tile_row_count"] is None else f"{row['tile_row_count']}x{row['tile_column_count']}"


def _kib(row: DesignGroupsRow) -> str:
    return MISSING if (peak := row["buffer_peak_bytes"]) is None else f"{peak / KIB:.1f}"


POINTS: Table[DesignPointsRow] = Table(
    TableColumn("design", lambda row: short_name(row["design"], row["hardware"])),
    TableColumn("mm²", lambda row: significant(row["chip_mm2"])),
    TableColumn("energy", lambda row: joules(row["modelled_energy_pj"])),
    TableColumn("cycles", lambda row: quantity(row["modelled_cycles"], "")),
    TableColumn("EDP, pJ·cycles", lambda row: product(row["edp_pj_cycles"], 3)),
    TableColumn("over floor", lambda row: percent(row["gap_share"])),
    TableColumn("front", lambda row: "yes" if row["is_pareto"] else ""),
)
SEARCHES: Table[DesignComparisonRow] = Table(
    TableColumn("algorithm", lambda row: row["algorithm"] + _interrupted(row)),
    TableColumn("EDP, pJ·cycles", lambda row: product(row["edp_pj_cycles"])),
    TableColumn("cycles", lambda row: quantity(row["modelled_cycles"], "")),
    TableColumn("energy", lambda row: joules(row["modelled_energy_pj"])),
    TableColumn("evaluations", lambda row: MISSING if (count := row["evaluation_count"]) is None else f"{count:,}"),
    TableColumn("seconds", lambda row: f"{row['search_s']:.1f}"),
    TableColumn("over floor", lambda row: percent(row["gap_share"])),
)
BUDGETS: Table[DesignBudgetsRow] = Table(
    TableColumn("best within", lambda row: f"{significant(row['area_budget_mm2'])} mm²"),
    TableColumn("design", lambda row: row["design"], is_left=True),
    TableColumn("EDP, pJ·cycles", lambda row: product(row["edp_pj_cycles"], 3)),
    TableColumn("over floor", lambda row: percent(row["gap_share"])),
)
LAST_LAYER: TableColumn[DesignGroupsRow] = TableColumn("last layer", lambda row: row["last_layer"])
LAYERS: TableColumn[DesignGroupsRow] = TableColumn("layers", lambda row: str(row["layer_count"]))
TILE: TableColumn[DesignGroupsRow] = TableColumn("tile", _tile)
RESIDENT: TableColumn[DesignGroupsRow] = TableColumn("resident", lambda row: str(row["resident_tensor_count"]))
DRAM: TableColumn[DesignGroupsRow] = TableColumn("DRAM", lambda row: quantity(row["dram_bytes"], "B"))
WORK: TableColumn[DesignGroupsRow] = TableColumn("work", lambda row: f"+{percent(row['recomputed_share'])}")
CYCLES: TableColumn[DesignGroupsRow] = TableColumn("cycles", lambda row: quantity(row["modelled_cycles"], ""))
PEAK_KIB: TableColumn[DesignGroupsRow] = TableColumn("KiB", _kib)
GROUPS: Table[DesignGroupsRow] = Table(
    LAST_LAYER,
    LAYERS,
    TILE,
    TableColumn("halo", lambda row: {"kept": "kept", "recomputed": "again"}.get(row["halo"], MISSING)),
    *(RESIDENT, DRAM, WORK, CYCLES, PEAK_KIB),
)
ROW_TILES: Table[DesignGroupsRow] = Table(
    LAST_LAYER,
    LAYERS,
    TableColumn("row tile", lambda row: MISSING if row["tile_row_count"] is None else str(row["tile_row_count"])),
    *(RESIDENT, DRAM, CYCLES, PEAK_KIB),
)


def design_report(
    best: DesignPointsRow,
    points: Sequence[DesignPointsRow],
    compared: Sequence[DesignComparisonRow],
    budgets: Sequence[DesignBudgetsRow],
    mappings: Sequence[DesignMappingsRow],
    groups: Sequence[DesignGroupsRow],
) -> str:
    """Return the best design with its bound, then the tables; ``budgets`` are the best design within each area."""
    parts = [verdict_lines(best)]
    if len({point["design"] for point in points}) > 1:
        parts.append(_points_table(points))
    if len({row["algorithm"] for row in compared}) > 1:  # the designs are named where there are several
        designs = dict.fromkeys(row["design"] for row in compared)
        for design in designs:
            searches = SEARCHES.text(row for row in compared if row["design"] == design)
            parts.append(f"{design}\n{searches}" if len(designs) > 1 else searches)
    if 0 < len(budgets) < len({point["design"] for point in points if not point["problem"]}):
        parts.append(BUDGETS.text(budgets))
    groups_of_best = [row for row in groups if row["design"] == best["design"]]
    if mappings_of_best := [row for row in mappings if row["design"] == best["design"]]:
        resident = [row for row in groups_of_best if row["resident_tensor_count"]]
        parts += [_mappings_table(mappings_of_best)]
        parts += [ROW_TILES.text(resident) if resident else "no map is resident on the chip"]
    elif groups_of_best:
        parts.append(GROUPS.text(groups_of_best))
    return "\n\n".join(parts)


def verdict_lines(best: DesignPointsRow | DesignSummaryDocument) -> str:
    """Return the best design, how far it is above the best of its space and the floor, and what fusion saves."""
    edp = best["edp_pj_cycles"] or 0.0
    accounting = ", accounting once" if best["accounting"] == "once" else ""
    lines = [
        f"{best['design']}, {best['search_engine']}{accounting}{_interrupted(best)}: EDP {product(edp)} pJ·cycles "
        f"({joules(best['modelled_energy_pj'])}, {quantity(best['modelled_cycles'], '')} cycles)",
        *_rtl_line(best),
        *_distances(best),
    ]
    if (staying := best["staying_weight_bytes"]) is not None:
        lines.append(f"{quantity(staying, 'B')} of weights stay on the chip from one inference to the next")
    if (alone := best["contraction_edp_pj_cycles"]) is not None:
        lines.append(f"contractions alone, layer by layer: {product(alone)}")
    if (unfused := best["unfused_edp_pj_cycles"]) is not None:
        share = 1 - edp / unfused if unfused else 0.0
        saves = "fusion saves" if staying is None else "fusion and weights that stay save"
        lines.append(f"without fusion {product(unfused)}: {saves} {percent(share)}")
    return "\n".join(lines)


def _rtl_line(best: DesignPointsRow | DesignSummaryDocument) -> Iterator[str]:
    """Yield the cycles by the costs of the RTL with their interval, and how to search with them."""
    low, likely, high = best["rtl_low_cycles"], best["rtl_cycles"], best["rtl_high_cycles"]
    if low is None or likely is None or high is None:
        return
    hint = "" if best["cycle_model"] == "rtl" else "; the cycle model rtl searches with these"
    yield f"on the RTL {quantity(likely, '')} cycles, {quantity(low, '')} to {quantity(high, '')}{hint}"


def _distances(best: DesignPointsRow | DesignSummaryDocument) -> Iterator[str]:
    """Yield how far a design is above the best of its space and above the physical floor, where these are known."""
    if (gap := best["space_gap_share"]) is not None and best["search_engine"] == "exact":
        floor = product(best["space_best_edp_pj_cycles"])
        yield f"the search stopped at its limit: no schedule of this space is below {floor};"
        yield f"the one found is at most {percent(gap)} above that"
    elif gap is not None:
        yield f"best of this space {product(best['space_best_edp_pj_cycles'])}, gap {percent(gap)}"
    elif best["space_best_edp_pj_cycles"] is not None:
        yield "best of this space: no schedule of it has a lower product"
    if (above := best["gap_share"]) is not None:
        yield f"physical floor {product(best['bound_edp_pj_cycles'])}: the product is {percent(above)} above it"


def _points_table(points: Sequence[DesignPointsRow]) -> str:
    """Return the designs on which a schedule fits, those of a large sweep's front alone, and why others have none."""
    fitting = [point for point in points if not point["problem"]]
    shown = fitting if len(fitting) <= MOST_POINTS else [point for point in fitting if point["is_pareto"]]
    lines = [POINTS.text(shown)]
    if len(shown) < len(fitting):
        lines.append(f"the front of {len(fitting)} designs")
    if misfits := [point for point in points if point["problem"]]:
        lines.append(f"nothing fits in {len(misfits)} of {len(points)} designs:")
        lines += [f"{short_name(row['design'], row['hardware'])}: {row['problem']}" for row in misfits[:MOST_ROWS]]
        lines += ["…"] if len(misfits) > MOST_ROWS else []
    return "\n".join(lines)


def _mappings_table(rows: Sequence[DesignMappingsRow]) -> str:
    """Return the contractions that cost most, all runs together."""

    def energy_pj(row: DesignMappingsRow) -> float:
        return (row["execution_count"] or 0) * (row["modelled_energy_pj"] or 0.0)

    def cycles(row: DesignMappingsRow) -> float:
        return (row["execution_count"] or 0) * (row["modelled_cycles"] or 0.0)

    def dram_bytes(row: DesignMappingsRow) -> float:
        operands = row["dram_weight_bytes"] + row["dram_input_bytes"] + row["dram_output_bytes"]
        return (row["execution_count"] or 0) * (operands + row["dram_beside_bytes"])

    total_pj, total_cycles = sum(map(energy_pj, rows)), sum(map(cycles, rows))
    columns: Table[DesignMappingsRow] = Table(
        TableColumn("contraction", contraction_name),
        TableColumn("energy", lambda row: percent(energy_pj(row) / total_pj)),
        TableColumn("cycles", lambda row: percent(cycles(row) / total_cycles)),
        TableColumn("array", lambda row: percent(row["array_use_share"])),
        TableColumn("bound by", lambda row: row["bound_by"], is_left=True),
        TableColumn("DRAM", lambda row: quantity(dram_bytes(row), "B")),
    )
    costliest = sorted(rows, key=lambda row: -energy_pj(row))[:MOST_ROWS]
    more = f"\n… and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else ""
    nest = f"the first, from DRAM to the registers (X is in space):\n{costliest[0]['mapping']}"
    return f"{columns.text(costliest)}{more}\n\n{nest}"


def _area(point: DesignPointsRow) -> str:
    """Return the area; a design in which nothing fits has none."""
    area = None if point["edp_pj_cycles"] is None else point["chip_mm2"]
    return MISSING if area is None else f"{significant(area)} mm²"


POINTS_OF_PAGE: Table[DesignPointsRow] = Table(
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
SEARCHES_OF_PAGE: Table[DesignComparisonRow] = Table(
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
MAPPINGS_OF_PAGE: Table[DesignMappingsRow] = Table(
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
GROUPS_OF_PAGE: Table[DesignGroupsRow] = Table(
    TableColumn("first layer", lambda row: row["first_layer"]),
    *(LAST_LAYER, LAYERS, TILE),
    TableColumn("halo", lambda row: row["halo"] or MISSING),
    *(RESIDENT, DRAM, WORK),
    TableColumn("energy", lambda row: joules(row["modelled_energy_pj"])),
    CYCLES,
    TableColumn("peak", lambda row: f"{_kib(row)} KiB"),
)


def design_tables(tables: Tables) -> str:
    if "design_points" not in tables:
        return ""
    last = math.inf  # where nothing fits, there is no product
    points = sorted(tables["design_points"], key=lambda point: last if (edp := point["edp_pj_cycles"]) is None else edp)
    best = points[0]["design"] if points else None
    parts = [_first_rows(POINTS_OF_PAGE, points, "design_points.csv")]
    searches = tables.get("design_comparison", [])
    if len({row["algorithm"] for row in searches}) > 1:
        parts.append(SEARCHES_OF_PAGE.html(searches[:MOST_IN_PAGE]))
    mappings = [row for row in tables.get("design_mappings", ()) if row["design"] == best]
    parts.append(_first_rows(MAPPINGS_OF_PAGE, mappings, "design_mappings.csv"))
    groups = [row for row in tables.get("design_groups", ()) if row["design"] == best]
    parts.append(_first_rows(GROUPS_OF_PAGE, groups, "design_groups.csv"))
    return "\n".join(filter(None, parts))


def _first_rows(table: Table[Row], rows: Sequence[Row], file: str) -> str:
    return table.html(rows[:MOST_IN_PAGE], rows_left_out(rows[:MOST_IN_PAGE], rows, file))

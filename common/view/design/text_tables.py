"""Evaluated accelerators as text: the best one and its bound, the others, and the best one's mappings or groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from common.view.text import MISSING, percent, quantity, significant, table

KIB, PICO = 1024, 1e-12
MOST_ROWS = 12
DRAM_STREAMS = ("weight", "input", "output", "beside")
MOST_POINTS = 32  # of a larger sweep, only the front is shown

Row = Mapping[str, Any]


def design_report(
    best: Row,
    points: Sequence[Row],
    compared: Sequence[Row],
    budgets: Sequence[Row],
    mappings: Sequence[Row],
    groups: Sequence[Row],
) -> str:
    """Return the best design with its bound, then the tables.

    Args:
        best: the best design.
        points: every design.
        compared: every search.
        budgets: the best design within each area.
        mappings: contractions of all designs.
        groups: fused groups of all designs.
    """
    parts = [verdict_lines(best)]
    if len({point["design"] for point in points}) > 1:
        parts.append(_points_table(points))
    if len({row["algorithm"] for row in compared}) > 1:
        parts.append(_comparison_table(compared))
    if 0 < len(budgets) < len({point["design"] for point in points if not point["problem"]}):
        parts.append(_budgets_table(budgets))
    own_groups = [row for row in groups if row["design"] == best["design"]]
    if own := [row for row in mappings if row["design"] == best["design"]]:
        parts += [_mappings_table(own), _resting_table(own_groups)]
    elif own_groups:
        parts.append(_groups_table(own_groups))
    return "\n\n".join(parts)


def verdict_lines(best: Row) -> str:
    """Return the best design, its bound and the gap between both, and what fusion saves."""
    costs = f"{quantity(best['modelled_energy_pj'] * PICO, 'J')}, {quantity(best['modelled_cycles'], '')} cycles"
    gap = best["gap_share"]
    lines = [
        f"{best['design']}, {best['search_engine']}{_accounting(best)}{_interrupted(best)}: "
        f"EDP {best['edp_pj_cycles']:.4e} pJ·cycles ({costs})",
        f"bound {best['bound_edp_pj_cycles']:.4e}, gap {percent(gap)}: no schedule of the space is better by more than "
        f"{percent(gap / (1 + gap))}",
    ]
    if (alone := best["contraction_edp_pj_cycles"]) is not None:
        lines.append(f"contractions alone, layer by layer: {alone:.4e}")
    if (unfused := best["unfused_edp_pj_cycles"]) is not None:
        share = 1 - best["edp_pj_cycles"] / unfused if unfused else 0.0
        lines.append(f"without fusion {unfused:.4e}: fusion saves {percent(share)}")
    return "\n".join(lines)


def _points_table(points: Sequence[Row]) -> str:
    """Return the designs on which a schedule fits, those of a large sweep's front alone, and why others have none."""
    fitting = [point for point in points if not point["problem"]]
    shown = fitting if len(fitting) <= MOST_POINTS else [point for point in fitting if point["is_pareto"]]
    header = ("design", "mm²", "energy", "cycles", "EDP, pJ·cycles", "gap", "front")
    lines = [table(header, [_point_cells(point) for point in shown])]
    if len(shown) < len(fitting):
        lines.append(f"the front of {len(fitting)} designs")
    misfits = [f"{short_name(point)}: {point['problem']}" for point in points if point["problem"]]
    if misfits:
        lines.append(f"nothing fits in {len(misfits)} of {len(points)} designs:")
        lines += [*misfits[:MOST_ROWS], *(["…"] if len(misfits) > MOST_ROWS else [])]
    return "\n".join(lines)


def short_name(point: Mapping[Any, Any]) -> str:
    """Return the sizes that a sweep gives a design; its whole name where there is no sweep."""
    return str(point["design"]).removeprefix(f"{point['hardware']} ")


def _point_cells(point: Row) -> tuple[str, ...]:
    return (
        short_name(point),
        MISSING if point["chip_mm2"] is None else significant(point["chip_mm2"]),
        quantity(point["modelled_energy_pj"] * PICO, "J"),
        quantity(point["modelled_cycles"], ""),
        f"{point['edp_pj_cycles']:.3e}",
        percent(point["gap_share"]),
        "yes" if point["is_pareto"] else "",
    )


def _comparison_table(rows: Sequence[Row]) -> str:
    """Return every search of every design, the designs named where there are several."""
    designs = dict.fromkeys(row["design"] for row in rows)
    tables = []
    for design in designs:
        own = [_comparison_cells(row) for row in rows if row["design"] == design]
        header = ("algorithm", "EDP, pJ·cycles", "cycles", "energy", "evaluations", "seconds", "gap")
        tables.append((f"{design}\n" if len(designs) > 1 else "") + table(header, own))
    return "\n\n".join(tables)


def _accounting(best: Row) -> str:
    return ", accounting seed" if best["accounting"] == "seed" else ""


def _interrupted(row: Row) -> str:
    """Return a mark for a search that Ctrl-C ended."""
    return "" if row["is_complete"] else " (interrupted: the best so far)"


def _comparison_cells(row: Row) -> tuple[str, ...]:
    return (
        row["algorithm"] + _interrupted(row),
        f"{row['edp_pj_cycles']:.4e}",
        quantity(row["modelled_cycles"], ""),
        quantity(row["modelled_energy_pj"] * PICO, "J"),
        MISSING if row["evaluation_count"] is None else f"{row['evaluation_count']:,}",
        f"{row['search_s']:.1f}",
        percent(row["gap_share"]),
    )


def _budgets_table(budgets: Sequence[Row]) -> str:
    header = ("best within", "design", "EDP, pJ·cycles", "gap")
    rows = [
        (
            f"{significant(budget['area_budget_mm2'])} mm²",
            budget["design"],
            f"{budget['edp_pj_cycles']:.3e}",
            percent(budget["gap_share"]),
        )
        for budget in budgets
    ]
    return table(header, rows, left=(0, 1))


def _mappings_table(rows: Sequence[Row]) -> str:
    """Return the contractions that cost most, all runs together."""
    energy = sum(row["execution_count"] * row["modelled_energy_pj"] for row in rows)
    cycles = sum(row["execution_count"] * row["modelled_cycles"] for row in rows)
    costliest = sorted(rows, key=lambda row: -row["execution_count"] * row["modelled_energy_pj"])[:MOST_ROWS]
    header = ("contraction", "energy", "cycles", "array", "DRAM")
    text = table(
        header,
        [
            (
                row["source_node"] + (f" [{row['nest_index']}]" if row["nest_index"] else ""),
                percent(row["execution_count"] * row["modelled_energy_pj"] / energy),
                percent(row["execution_count"] * row["modelled_cycles"] / cycles),
                percent(row["array_use_share"]),
                quantity(row["execution_count"] * sum(row[f"dram_{name}_bytes"] for name in DRAM_STREAMS), "B"),
            )
            for row in costliest
        ],
    )
    more = f"\n… and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else ""
    return f"{text}{more}\n\nthe first, from DRAM to the registers (X is in space):\n{costliest[0]['mapping']}"


def _groups_table(rows: Sequence[Row]) -> str:
    header = ("last layer", "layers", "tile", "halo", "resident", "DRAM", "work", "cycles", "KiB")
    return table(header, [_group_cells(row) for row in rows])


def _resting_table(rows: Sequence[Row]) -> str:
    """Return the groups that keep a map on the chip."""
    header = ("last layer", "layers", "row tile", "resident", "DRAM", "cycles", "KiB")
    cells = [_resting_cells(row) for row in rows if row["resting_count"]]
    return table(header, cells) if cells else "no map is resident on the chip"


def _resting_cells(row: Row) -> tuple[str, ...]:
    return (
        row["last_layer"],
        str(row["layer_count"]),
        MISSING if row["tile_row_count"] is None else str(row["tile_row_count"]),
        str(row["resting_count"]),
        quantity(row["dram_bytes"], "B"),
        quantity(row["modelled_cycles"], ""),
        f"{row['buffer_peak_bytes'] / KIB:.1f}",
    )


def _group_cells(row: Row) -> tuple[str, ...]:
    is_tiled = row["tile_row_count"] is not None
    return (
        row["last_layer"],
        str(row["layer_count"]),
        f"{row['tile_row_count']}x{row['tile_column_count']}" if is_tiled else MISSING,
        {"kept": "kept", "recomputed": "again"}.get(row["halo"], MISSING),
        str(row["resting_count"]),
        quantity(row["dram_bytes"], "B"),
        f"+{percent(row['recomputed_share'])}",
        quantity(row["modelled_cycles"], ""),
        MISSING if row["buffer_peak_bytes"] is None else f"{row['buffer_peak_bytes'] / KIB:.1f}",
    )

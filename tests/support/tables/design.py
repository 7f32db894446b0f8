"""Synthetic tables of the design space: a sweep of two sizes, with energies by part that add up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd

from common.artifacts.checks.schema import conform
from tests.support.tables.fpga import frame

PARTS = ("multipliers", "dram", "scratchpad", "accumulator", "registers")
NEST = "L3[WIO] K8 P7 - L2[WI] N1 K4X - L1[O] R3 S3 Q28 C2 C16X - L0[W] P4"


def point(design: str, **columns: Any) -> dict[str, Any]:
    """A design of a gemmini; its bound is a third below what was found."""
    edp = columns.get("modelled_cycles", 700.0) * columns.get("modelled_energy_pj", 11e6)
    return {
        "design": design,
        "hardware": "gemmini",
        "search_engine": "exact",
        "accounting": "tiled",
        "array_row_count": 16,
        "array_column_count": 16,
        "memory_sizes_kib": {"scratchpad": 128.0, "accumulator": 32.0},
        "chip_mm2": 0.5,
        "cycle_model": "analytic",
        "modelled_cycles": 700.0,
        **dict.fromkeys(("rtl_low_cycles", "rtl_cycles", "rtl_high_cycles")),
        "modelled_energy_pj": 11e6,
        "edp_pj_cycles": edp,
        "bound_edp_pj_cycles": edp / 1.5,
        "gap_share": 0.5,
        "space_best_edp_pj_cycles": edp,
        "space_gap_share": None,
        "contraction_edp_pj_cycles": edp / 2,
        "unfused_edp_pj_cycles": None,
        "staying_weight_bytes": None,
        "seed": 0,
        "evaluation_count": 23,
        "is_complete": True,
        "problem": None,
        "is_pareto": True,
    } | columns


def misfit(design: str) -> dict[str, Any]:
    """A design in which nothing fits."""
    costs = (
        "modelled_cycles",
        "modelled_energy_pj",
        "edp_pj_cycles",
        "bound_edp_pj_cycles",
        "gap_share",
        "space_best_edp_pj_cycles",
    )
    return point(design) | dict.fromkeys((*costs, "evaluation_count")) | {"problem": "too small", "is_pareto": False}


def layer(design: str, node: str, energy_pj: float, runs: int = 1, **columns: Any) -> dict[str, Any]:
    """A mapped contraction; a third of its energy is DRAM's."""
    return {
        "design": design,
        "source_node": node,
        "nest_index": 0,
        "nest_row_count": 56,
        "execution_count": runs,
        "macs": 13,
        "mapping": NEST,
        "array_element_count": 64,
        "array_use_share": 0.25,
        "bound_by": "dram",
        "dram_weight_bytes": 1021.0,
        "dram_input_bytes": 2039.0,
        "dram_output_bytes": 4093.0,
        "moved_words": {"dram weight": 1021.0, "dram input": 2039.0, "dram output": 4093.0, "registers weight": 8191.0},
        "dram_beside_bytes": 0.0,
        "resident_operands": None,
        "resident_level": None,
        "resident_tensor_bytes": 0.0,
        "modelled_cycles": 17.0,
        **dict.fromkeys(("rtl_low_cycles", "rtl_cycles", "rtl_high_cycles")),
        "modelled_energy_pj": energy_pj,
        "energy_parts_pj": parts_of(energy_pj),
    } | columns


def parts_of(energy_pj: float) -> dict[str, float]:
    """An energy by part, a third of it DRAM's."""
    return dict.fromkeys(PARTS, energy_pj / 6) | {"dram": energy_pj / 3}


def group(design: str, index: int, name: str, energy_pj: float, layers: int = 1) -> dict[str, Any]:
    """A group of layers, one after the other."""
    return {
        "design": design,
        "group_index": index,
        "first_layer": name,
        "last_layer": name,
        "layer_count": layers,
        "tile_row_count": None,
        "tile_column_count": None,
        "halo": None,
        "resident_weight_count": None,
        "resident_tensor_count": 0,
        "dram_bytes": 1021.0,
        "recomputed_share": 0.0,
        "modelled_cycles": 17.0,
        "modelled_energy_pj": energy_pj,
        "energy_parts_pj": parts_of(energy_pj),
        "buffer_peak_bytes": 127.0,
    }


def points(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """design_points of some rows."""
    return conform("design_points", frame("design_points", rows))


def mappings(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """design_mappings of some rows."""
    return conform("design_mappings", frame("design_mappings", rows))


def groups(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """design_groups of some rows."""
    return conform("design_groups", frame("design_groups", rows))


def swept(scratchpads: Sequence[int] = (32, 64, 128), arrays: Sequence[int] = (8, 16)) -> list[dict[str, Any]]:
    """Designs of a sweep: a larger array takes fewer cycles, a larger scratchpad less energy, both more area."""
    return [
        point(
            f"gemmini scratchpad_kib={kib} array={side}x{side}",
            array_row_count=side,
            array_column_count=side,
            memory_sizes_kib={"scratchpad": float(kib), "accumulator": 2.0 * side},
            modelled_cycles=1e9 / side**2,
            modelled_energy_pj=1e9 / kib,
            unfused_edp_pj_cycles=1.25 * 1e18 / side**2 / kib,
            chip_mm2=side**2 / 512 + kib / 128,
        )
        for side, kib in product(arrays, scratchpads)
    ]


def design_tables() -> dict[str, Any]:
    """All tables and the document of a sweep that 06 reads."""
    rows = swept()
    best = min(rows, key=lambda row: row["edp_pj_cycles"])
    nodes = {"/conv1/Conv": 0.5, "/layer1/conv/Conv": 0.3, "/fc/Gemm": 0.2}
    shares = [(row["design"], node, share * row["modelled_energy_pj"]) for row in rows for node, share in nodes.items()]
    return {
        "design_points": points(rows),
        "design_mappings": mappings([layer(*share) for share in shares]),
        "design_groups": groups([group(design, index, *share) for index, (design, *share) in enumerate(shares)]),
        "design_convergence": improvements(convergence(best["design"], "exact", [3e14, 5e13, best["edp_pj_cycles"]])),
        "design_comparison": compared(rows),
        "design_summary": best | {"design_objective": "edp", "design_count": len(rows)},
    }


def convergence(design: str, engine: str, best: Sequence[float]) -> list[dict[str, Any]]:
    """How a search improved: the best product after 1, 10, 100 … evaluations."""
    return [
        {
            "design": design,
            "search_engine": engine,
            "seed": 0,
            "improvement_index": index,
            "evaluation_count": 10**index,
            "best_edp_pj_cycles": value,
        }
        for index, value in enumerate(best)
    ]


def improvements(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """design_convergence of some rows."""
    return conform("design_convergence", frame("design_convergence", rows))


def compared(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """design_comparison of some searches, from their rows of design_points."""
    own = [row | {"algorithm": row["search_engine"], "search_s": 0.7} for row in rows]
    return conform("design_comparison", frame("design_comparison", own))

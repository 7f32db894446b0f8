"""The groups of a schedule as rows of plain values."""

from __future__ import annotations

from typing import Any

from common.design_space.accelerator.single_buffer import SingleBuffer
from common.design_space.search.fronts import SupportedPoint
from common.design_space.single_buffer.fusion import GroupPlan, Schedule
from common.design_space.single_buffer.group_tiles import GroupTiling
from common.workload.map_layers import LayerGraph


def group_rows(graph: LayerGraph, schedule: SupportedPoint[Schedule], buffer: SingleBuffer) -> list[dict[str, Any]]:
    """Return one row for each group, in the order in which they run.

    Args:
        graph: the layers of the model.
        schedule: the groups, and what they cost together.
        buffer: the accelerator.
    """
    return [_row(graph, plan, buffer) for plan in schedule.choice]


def _row(graph: LayerGraph, plan: GroupPlan, buffer: SingleBuffer) -> dict[str, Any]:
    layers = [graph.layers[index] for index in plan.members]
    fused = next((tiling for tiling in plan.tilings if isinstance(tiling, GroupTiling)), None)
    macs = sum(layer.macs for layer in layers)
    return {
        "first_layer": layers[0].name,
        "last_layer": layers[-1].name,
        "layer_count": len(layers),
        "tile_row_count": fused.rows if fused else None,
        "tile_column_count": fused.columns if fused else None,
        "halo": ("kept" if fused.keeps_halo else "recomputed") if fused else None,
        "resident_weight_count": sum(fused.resident_weights) if fused else None,
        "resting_count": len(plan.resident),
        "dram_bytes": plan.moved_bytes,
        "recomputed_share": plan.macs / macs - 1 if macs else 0.0,
        "modelled_cycles": buffer.cycles(plan.macs, plan.moved_bytes),
        "modelled_energy_pj": buffer.energy_pj(plan.macs, plan.moved_bytes),
        "energy_parts_pj": buffer.energy_parts_pj(plan.macs, plan.moved_bytes),
        "buffer_peak_bytes": max((tiling.peak_bits / 8 for tiling in plan.tilings), default=0.0),
    }

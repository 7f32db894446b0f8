"""Rows of ``design_engines``: designs of a board with their costs, and the designs that such rows describe."""

from __future__ import annotations

from collections.abc import Sequence

from common.board_designs.board_search import BoardDesign
from common.fpga.array_designs import ArrayBuilder
from common.table_rows import DesignEnginesRow


def engine_rows(designs: Sequence[BoardDesign], builder: ArrayBuilder) -> list[DesignEnginesRow]:
    return [_row(design, builder) for design in designs]


def _row(found: BoardDesign, builder: ArrayBuilder) -> DesignEnginesRow:
    design, array, needed = found.design, found.array, found.array.resources
    time_us = builder.time_us(array)
    rows, columns, simd = design.size
    return {
        "array_design": design.name,
        "board": builder.board.name,
        "precision": builder.precision,
        "array_row_count": rows,
        "array_column_count": columns,
        "simd_count": simd,
        "row_fold_count": design.row_folds,
        "column_fold_count": design.column_folds,
        "tile_step_count": design.step_count,
        "memory_port_count": design.port_count,
        "spans_regions": design.spans_regions,
        "clock_mhz": array.clock_mhz,
        "lut_count": needed.lut,
        "ff_count": needed.ff,
        "bram36_count": needed.bram36,
        "uram_count": needed.uram,
        "dsp_count": needed.dsp,
        "memory_channel_count": needed.memory_channels,
        "board_share": found.board_share,
        "modelled_cycles": found.cycles,
        "compute_cycles": found.compute_cycles,
        "modelled_latency_us": found.latency_us,
        "modelled_energy_pj": found.energy_pj,
        "kernel_latency_pessimistic_us": time_us.pessimistic if time_us else None,
        "kernel_latency_likely_us": time_us.likely if time_us else None,
        "kernel_latency_optimistic_us": time_us.optimistic if time_us else None,
    }

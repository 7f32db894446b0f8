"""Synthesis by yosys for UltraScale+: the number of cells of each type in one array."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common.fpga.rtl.generate import Design
from common.fpga.rtl.programs import call

LUT_CELLS = ("LUT1", "LUT2", "LUT3", "LUT4", "LUT5", "LUT6", "INV", "SRL16E", "SRLC32E")
FLIP_FLOPS = ("FDRE", "FDSE", "FDCE", "FDPE")


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells after synthesis, by type."""

    by_type: Mapping[str, int]

    @property
    def lut(self) -> int:
        """LUTs without packing two functions into one; inverters and shift-register LUTs count as one each."""
        return sum(self.by_type.get(name, 0) for name in LUT_CELLS)

    @property
    def ff(self) -> int:
        """Flip-flops."""
        return sum(self.by_type.get(name, 0) for name in FLIP_FLOPS)

    @property
    def dsp(self) -> int:
        """DSP48E2 slices."""
        return self.by_type.get("DSP48E2", 0)


def synthesize(design: Design) -> Cells:
    """Return the cells of the flattened array, without I/O buffers.

    Raises:
        PipelineError: yosys is missing or failed.
    """
    script = (
        f"read_verilog array.v; synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {design.name}; "
        "tee -q -o cells.json stat -json"
    )
    with tempfile.TemporaryDirectory(prefix="systolic-") as name:
        folder = Path(name)
        (folder / "array.v").write_text(design.verilog(), encoding="utf-8")
        call(["yosys", "-q", "-p", script], folder)
        statistics = json.loads((folder / "cells.json").read_text(encoding="utf-8"))
    return Cells(statistics["design"]["num_cells_by_type"])

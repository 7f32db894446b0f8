"""Synthesis by yosys for UltraScale+: the number of cells of each type in one array, or in one module."""

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
    by_type: Mapping[str, int]

    @property
    def lut(self) -> int:
        """LUTs without packing two functions into one; inverters and shift-register LUTs count as one each.

        A LUT RAM of 64 words of 7 bits takes the eight LUTs of a slice.
        """
        return sum(self.by_type.get(name, 0) for name in LUT_CELLS) + 8 * self.by_type.get("RAM64M8", 0)

    @property
    def ff(self) -> int:
        return sum(self.by_type.get(name, 0) for name in FLIP_FLOPS)

    @property
    def dsp(self) -> int:
        return self.by_type.get("DSP48E2", 0)

    @property
    def bram36(self) -> float:
        """Blocks of 36 Kb; one of 18 Kb is half of one."""
        return self.by_type.get("RAMB36E2", 0) + self.by_type.get("RAMB18E2", 0) / 2


def synthesize(design: Design) -> Cells:
    """Return the cells of the flattened array, without I/O buffers; PipelineError if Yosys is missing or fails."""
    return synthesize_module(design.verilog(), design.name)


def synthesize_by_block(design: Design) -> Cells:
    """Return the cells of an array of a planned size in a minute: equal blocks are synthesised once, each by itself.

    LUTs are upper bounds: nothing is simplified across the border of a block. Errors are those of :func:`synthesize`.
    """
    return synthesize_module(design.verilog(), design.name, kept="*systolic_block*")


def synthesize_module(verilog: str, top: str, kept: str = "") -> Cells:
    """Return the cells of one module, flattened, without I/O buffers; modules named ``kept`` are flattened last.

    Raises:
        PipelineError: yosys is missing or failed.
    """
    keep = f"hierarchy -top {top}; setattr -mod -set keep_hierarchy 1 {kept}; " if kept else ""
    flatten = f"setattr -mod -unset keep_hierarchy {kept}; flatten; " if kept else ""
    script = (
        f"read_verilog module.v; {keep}synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {top}; {flatten}"
        "tee -q -o cells.json stat -json"
    )
    with tempfile.TemporaryDirectory(prefix="synthesis-") as name:
        folder = Path(name)
        (folder / "module.v").write_text(verilog, encoding="utf-8")
        call(["yosys", "-q", "-p", script], folder)
        statistics = json.loads((folder / "cells.json").read_text(encoding="utf-8"))
    return Cells(statistics["design"]["num_cells_by_type"])

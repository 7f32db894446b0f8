"""The engine by Verilator, cycle by cycle, with a host that gives descriptors and a memory that stalls."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.network import Bytes
from common.fpga.rtl.engine.program import Program
from common.fpga.rtl.programs import call

QUEUES = {"load": 0x40, "compute": 0x44, "store": 0x48}  # addresses on the host bus
CAUSES = ("computing", "load", "store", "gather", "drain", "descriptor", "rows")


@dataclass(frozen=True, slots=True)
class Spent:
    """Cycles of a call, and how they were spent: the array took operands, waited for something, or rows were worked."""

    cycles: int
    by_cause: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EngineRun:
    """What a simulation leaves."""

    tensors: Mapping[str, Bytes]  # what the engine wrote, by name: (channels, height, width)
    calls: tuple[Spent, ...]  # cycles of each layer, from the end of the one before to the end of its last store
    row_miss_cycles: int  # in which memory opened a row
    refresh_cycles: int  # in which it refreshed while a burst waited


class EngineSimulator:
    """A design that Verilator translated once, for any number of programs; a context manager.

    Raises:
        PipelineError: Verilator is missing, or failed.
    """

    def __init__(self, design: EngineDesign) -> None:
        self.design = design
        self._folder = tempfile.TemporaryDirectory(prefix="engine-")
        folder = Path(self._folder.name)
        (folder / "engine.v").write_text(design.verilog(), encoding="utf-8")
        command = ["verilator", "--cc", "--exe", "--build", "--prefix", "Vengine", "--top-module", design.name]
        flags = ["-Wno-fatal", "-O3", "-CFLAGS", "-O1", "--Mdir", "obj_dir", "-j", str(os.cpu_count() or 1)]
        call([*command, *flags, "engine.v", str(Path(__file__).resolve().parent / "main.cpp")], folder)

    def __enter__(self) -> EngineSimulator:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(self, program: Program, inputs: Mapping[str, Bytes], timing: MemoryTiming, limit: int) -> EngineRun:
        """Run a program on inputs: (channels, height, width) of int8 by name.

        Raises:
            PipelineError: it is not over after ``limit`` cycles, or the simulation failed.
        """
        folder = Path(self._folder.name)
        program.filled(inputs).tofile(folder / "before.bin")
        words = [(QUEUES[each.unit], word) for each in program.descriptors for word in each.words]
        np.array(words, np.uint32).tofile(folder / "script.bin")
        numbers = [str(value) for value in (self.design.word_bytes, limit, *astuple(timing))]
        call([str(folder / "obj_dir" / "Vengine"), "before.bin", "script.bin", *numbers], folder)
        lines = [line.split() for line in (folder / "log.txt").read_text(encoding="ascii").splitlines()]
        after = np.fromfile(folder / "after.bin", np.uint8)
        *stores, (_, _, row_miss, refresh) = lines
        return EngineRun(
            {y.name: program.read(after, y) for y in (layer.y.whole for layer in program.network.layers)},
            tuple(_calls(program, np.array([list(map(int, line[1:])) for line in stores]))),
            int(row_miss),
            int(refresh),
        )


def _calls(program: Program, seen: NDArray[np.int64]) -> list[Spent]:
    """Return the cycles of each layer: the counters when its last store was over, less those of the layer before."""
    ends = np.searchsorted(seen[:, 0], program.last_stores)
    totals = np.vstack([np.zeros(seen.shape[1] - 1, np.int64), seen[ends, 1:]])
    return [Spent(int(row[0]), dict(zip(CAUSES, map(int, row[1:]), strict=True))) for row in np.diff(totals, axis=0)]

"""Compare the steps that the cost of mappings counts with cycles of the generated Verilog (needs Verilator).

The arrays are those whose Verilog 07 hands off: an element keeps the sum of its output. The accelerator that describes
them lays output pixels over the rows of the array, and output channels over its columns. Tiles of layers are mapped on
it, and run on the Verilog with random int8 operands.

The array computes a tile in F folds of T steps: F*T is what the cost counts. An array of R rows and C columns, from
which the sums of a column leave in D cycles, takes longer by

    sums that leave at the end    F * ((R - 1) + (C - 1) + R)
    sums that leave meanwhile     (R - 1) + (C - 1) + D + (F - 1) * max(0, D - T)

Operands enter the last row R - 1 cycles after the first row, and the last column C - 1 cycles after the first column.
Then the sums of a column leave. Where they leave while the next fold is computed, only the last fold waits for them,
but a fold that is shorter than D waits for the sums of the one before. Nothing of this is fitted. The exit code is 1
where sums differ from numpy's, or cycles from the equation.

    array  sums leave    tile                        steps  Verilog   more  of steps
    16x16  meanwhile     3x3, 16 to 32, 2 x 56       2,304    2,350     46    +2.0 %
    16x16  at the end    3x3, 16 to 32, 2 x 56       2,304    3,040    736   +31.9 %
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from benchmarks.process import ROOT
from common.design_space.accelerator.hardware import Fanout, Hardware, Level
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.cost import cost
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.traffic import Nests
from common.fpga.rtl.generate import Design
from common.fpga.rtl.programs import is_there
from common.fpga.rtl.simulate import ArrayProduct, Matrix, simulate
from common.messages.errors import PipelineError
from common.view.text import percent, text_table
from common.workload.loop_nests import LoopNest

PRECISION, HALF = "int8", 128
DESIGNS = (
    Design(16, 16, PRECISION, overlap=True),
    Design(16, 16, PRECISION, overlap=True, sums_per_cycle=4),
    Design(8, 12, PRECISION, overlap=True),
    Design(5, 3, PRECISION, overlap=True),
    Design(16, 16, PRECISION),
    Design(5, 3, PRECISION),
)
# Of ResNet-18, of MobileNet (a channel by itself: fewer steps than the array has rows), of a transformer; and primes.
TILES = (
    LoopNest(k=32, c=16, p=2, q=56, r=3, s=3),
    LoopNest(k=64, c=3, p=1, q=16, r=7, s=7, stride_p=2, stride_q=2),
    LoopNest(k=1, c=1, p=14, q=14, r=3, s=3),
    LoopNest(k=40, c=96, p=33),
    LoopNest(k=7, c=11, p=13),
)
HEADER = ("array", "sums leave", "tile", "steps", "Verilog", "more", "of steps")


@dataclass(frozen=True, slots=True)
class TileRun:
    """A tile of a layer on an array: its layer, and its operands as random numbers."""

    design: Design
    nest: LoopNest
    image: Matrix  # input elements, by channel, row and column
    weights: Matrix  # by output channel, input channel, row and column of the window

    @classmethod
    def drawn(cls, design: Design, nest: LoopNest, seed: int = 0) -> TileRun:
        random = np.random.default_rng(seed)
        image = random.integers(-HALF, HALF, (nest.c, nest.stored_height, nest.stored_width))
        return cls(design, nest, image, random.integers(-HALF, HALF, (nest.k, nest.c, nest.r, nest.s)))

    @property
    def is_product(self) -> bool:
        """Whether the rows of the output, not its columns, lie along the rows of the array."""
        return self.nest.q == 1

    def mapping(self) -> str:
        """Return how the tile is mapped: a fold is all steps of its sums."""
        nest, rows, columns = self.nest, self.design.rows, self.design.cols
        loop = "P" if self.is_product else "Q"
        outer = {"P": nest.p, "Q": nest.q, "K": ceil(nest.k / columns)}
        outer[loop] = ceil(outer[loop] / rows)
        folds = " ".join(f"{name}{steps}" for name, steps in outer.items())
        return (
            f"L3[WIO] {folds} - L2[WIO] N1 K{columns}X - L1[W] N1 {loop}{rows}X - L0[O] C{nest.c} R{nest.r} S{nest.s}"
        )

    def steps(self) -> int:
        """Return the array's cycles as the cost of mappings counts them."""
        hardware = output_stationary(self.design.rows, self.design.cols)
        mappings = parse_mappings([self.mapping()], hardware)
        steps = cost(mappings, Nests.of([self.nest]), hardware).compute_cycles
        return int(np.asarray(steps)[0])

    def windows(self) -> Matrix:
        """Return the elements that each output reads: (rows of the output, columns of the output, steps)."""
        nest = self.nest
        reach = (nest.r - 1) * nest.dilation_r + 1, (nest.s - 1) * nest.dilation_s + 1
        seen = np.lib.stride_tricks.sliding_window_view(self.image, reach, axis=(1, 2))
        taken = seen[:, :: nest.stride_p, :: nest.stride_q, :: nest.dilation_r, :: nest.dilation_s]
        return taken.transpose(1, 2, 0, 3, 4).reshape(nest.p, nest.q, -1)

    def product(self) -> ArrayProduct:
        """Return the tile as the array computes it: each row of the output starts a fold of its own."""
        windows = self.windows()
        if not self.is_product:
            rest = -self.nest.q % self.design.rows
            windows = np.pad(windows, ((0, 0), (0, rest), (0, 0)))
        return ArrayProduct(
            self.design, windows.reshape(-1, windows.shape[-1]), self.weights.reshape(self.nest.k, -1).T
        )

    def outputs(self) -> Matrix:
        """Return the output by numpy, (rows, columns, channels), from the definition of the layer: tap by tap."""
        nest = self.nest
        total = np.zeros((nest.p, nest.q, nest.k), dtype=np.int64)
        for r, s in np.ndindex(nest.r, nest.s):
            rows = np.arange(nest.p) * nest.stride_p + r * nest.dilation_r
            columns = np.arange(nest.q) * nest.stride_q + s * nest.dilation_s
            total += np.einsum("cpq,kc->pqk", self.image[:, rows][:, :, columns], self.weights[:, :, r, s])
        return total

    def sums_of(self, result: Matrix) -> Matrix:
        """Return what the array gave as (rows, columns, channels) of the output."""
        return result.reshape(self.nest.p, -1, self.nest.k)[:, : self.nest.q]


def output_stationary(rows: int, columns: int) -> Hardware:
    """Return the accelerator whose array 07 hands off: a weight enters each column, a sum stays in each element."""
    gemmini = load_hardware("gemmini", ROOT / "configs" / "hardware")
    dram, scratchpad, _, registers = gemmini.levels
    levels: tuple[Level, ...] = (
        dram,
        replace(scratchpad, holds=dram.holds, fanouts=(Fanout(("K",), "columns"),)),
        replace(registers, name="ports", copies="column", fanouts=(Fanout(("P", "Q"), "rows"),)),
        replace(registers, name="sums", holds=frozenset({"output"}), word_bytes=4, capacity_kib=4 / 1024),
    )
    array = replace(gemmini.array, rows=rows, columns=columns)
    return replace(gemmini, name="output-stationary", array=array, levels=levels, rtl=None)


def fill_and_drain(design: Design, fold_steps: int, folds: int) -> int:
    """Return the cycles that the array takes beside its steps."""
    skew = design.rows - 1 + design.cols - 1
    if not design.overlap:
        return folds * (skew + design.rows)
    return skew + design.drain + (folds - 1) * max(0, design.drain - fold_steps)


def tile_text(nest: LoopNest) -> str:
    """Return a tile in words: ``3x3, 64 to 32, 2 x 56``."""
    stride = f" by {nest.stride_p}" if nest.stride_p > 1 else ""
    return f"{nest.r}x{nest.s}{stride}, {nest.c} to {nest.k}, {nest.p} x {nest.q}"


def compared(runs: Sequence[TileRun]) -> tuple[list[list[str]], list[str]]:
    """Return a line of the table for each run, and what is not as expected."""
    lines, problems = [], list[str]()
    products = [run.product() for run in runs]
    for run, product, outcome in zip(runs, products, simulate(products), strict=True):
        steps, name = run.steps(), f"{run.design.name}, {tile_text(run.nest)}"
        expected = steps + fill_and_drain(run.design, steps // product.folds, product.folds)
        if outcome.cycles != expected:
            problems.append(f"{name}: {outcome.cycles} cycles, not {expected}")
        if not np.array_equal(run.sums_of(outcome.product), run.outputs()):
            problems.append(f"{name}: sums differ from numpy's")
        lines.append(_line(run, steps, outcome.cycles))
    return lines, problems


def _line(run: TileRun, steps: int, cycles: int) -> list[str]:
    design = run.design
    leaving = f"meanwhile, {design.sums_per_cycle}" if design.sums_per_cycle > 1 else "meanwhile"
    array = [f"{design.rows}x{design.cols}", leaving if design.overlap else "at the end", tile_text(run.nest)]
    return [*array, f"{steps:,}", f"{cycles:,}", f"{cycles - steps:,}", f"+{percent(cycles / steps - 1)}"]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 1 where sums or cycles differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the operands (default: 0)")
    given = parser.parse_args(argv)
    if not is_there("verilator"):
        print("design_verilog: skipped: no verilator; make rtl-tools installs it", file=sys.stderr)
        return 0
    try:
        lines, problems = compared([TileRun.drawn(design, nest, given.seed) for design in DESIGNS for nest in TILES])
    except PipelineError as problem:
        print(f"design_verilog: error: {problem}", file=sys.stderr)
        return problem.exit_code
    print(text_table(HEADER, lines, left=(0, 1, 2)))
    print("\n".join(problems) or f"all {len(lines)} runs: sums equal numpy's, cycles equal the equation's")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())

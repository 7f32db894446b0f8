"""Cycle-accurate simulation by Verilator: the results of the array, and the cycles that it takes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import PipelineError
from common.fpga.rtl.generate import COUNT_WIDTH, FOLDER, Design, connect, modules
from common.fpga.rtl.programs import call

Matrix = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ArrayProduct:
    """One product ``a`` (m x k) by ``b`` (k x n) on an array; larger results are computed in several folds."""

    design: Design
    a: Matrix
    b: Matrix

    @property
    def row_tiles(self) -> int:
        """Folds along the rows of the result."""
        return ceil(int(self.a.shape[0]) / self.design.rows)

    @property
    def col_tiles(self) -> int:
        """Folds along the columns of the result."""
        return ceil(int(self.b.shape[1]) / self.design.cols)

    @property
    def folds(self) -> int:
        """Number of folds."""
        return self.row_tiles * self.col_tiles


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the array, and the cycles from the first operand in to the last sum out, both included."""

    product: Matrix
    cycles: int


def simulate(products: Sequence[ArrayProduct]) -> list[Outcome]:
    """Simulate all products in one program, each on an array of its own.

    Raises:
        PipelineError: Verilator is missing or failed, or a product does not fit the hardware's counters and operands.
    """
    for product in products:
        _check(product)
    with tempfile.TemporaryDirectory(prefix="systolic-") as name:
        folder = Path(name)
        _write(products, folder)
        _build(max(_limit_cycles(product) for product in products), folder)
        call([str(folder / "obj_dir" / "Vbenches")], folder)
        return [
            _outcome(product, (folder / f"out{i}.txt").read_text(encoding="ascii"))
            for i, product in enumerate(products)
        ]


def _check(product: ArrayProduct) -> None:
    k, half = product.a.shape[1], 1 << (product.design.format.bits - 1)
    if not 1 <= k < 1 << COUNT_WIDTH or product.folds >= 1 << COUNT_WIDTH or product.b.shape[0] != k:
        raise PipelineError(product.design.name, f"{product.a.shape} by {product.b.shape} does not fit its counters")
    if any(operand.min() < -half or operand.max() >= half for operand in (product.a, product.b)):
        raise PipelineError(product.design.name, f"an operand is outside {product.design.precision}")


def _limit_cycles(product: ArrayProduct) -> int:
    """Return more cycles than any correct schedule takes."""
    rows, cols = product.design.rows, product.design.cols
    return (product.folds + 2) * (int(product.a.shape[1]) + 4 * (rows + cols))


def _build(limit_cycles: int, folder: Path) -> None:
    command = ["verilator", "--cc", "--exe", "--build", "--top-module", "benches", "-Wno-fatal", "-O1"]
    flags = ["-CFLAGS", f"-O0 -DLIMIT_CYCLES={limit_cycles}", "--Mdir", "obj_dir"]
    call([*command, *flags, "benches.v", str(FOLDER / "main.cpp")], folder)


def _write(products: Sequence[ArrayProduct], folder: Path) -> None:
    instances = []
    for i, product in enumerate(products):
        (folder / f"a{i}.hex").write_text(_words(_a_tiles(product), product.design.format.bits), encoding="ascii")
        (folder / f"b{i}.hex").write_text(_words(_b_tiles(product), product.design.format.bits), encoding="ascii")
        numbers = connect({**product.design.parameters, "K": product.a.shape[1], "FOLDS": product.folds})
        files = f'.A_FILE("a{i}.hex"), .B_FILE("b{i}.hex"), .OUT_FILE("out{i}.txt")'
        instances.append(f"systolic_bench #({numbers}, {files}) bench{i} (.clk(clk), .done(finished[{i}]));")
    head = (
        f"module benches (input clk, output done);\nwire [{len(products) - 1}:0] finished;\nassign done = &finished;\n"
    )
    bench = (FOLDER / "bench.v").read_text(encoding="utf-8")
    (folder / "benches.v").write_text(modules() + bench + head + "\n".join(instances) + "\nendmodule\n")


def _a_tiles(product: ArrayProduct) -> Matrix:
    """Return the operands that enter the rows in each cycle: shape (folds * k, rows), row tiles outermost."""
    (m, k), rows = product.a.shape, product.design.rows
    padded = np.pad(product.a, ((0, product.row_tiles * rows - m), (0, 0))).reshape(product.row_tiles, rows, k)
    return np.repeat(padded.transpose(0, 2, 1), product.col_tiles, axis=0).reshape(-1, rows)


def _b_tiles(product: ArrayProduct) -> Matrix:
    """Return the operands that enter the columns in each cycle: shape (folds * k, cols)."""
    (k, n), cols = product.b.shape, product.design.cols
    padded = np.pad(product.b, ((0, 0), (0, product.col_tiles * cols - n))).reshape(k, product.col_tiles, cols)
    return np.tile(padded.transpose(1, 0, 2), (product.row_tiles, 1, 1)).reshape(-1, cols)


def _words(values: Matrix, bits: int) -> str:
    """Return one hexadecimal word per line, with the first operand in the lowest bits."""
    digits = bits // 4
    return "\n".join("".join(f"{int(v) & ((1 << bits) - 1):0{digits}x}" for v in row[::-1]) for row in values) + "\n"


def _outcome(product: ArrayProduct, text: str) -> Outcome:
    rows, cols, bits = product.design.rows, product.design.cols, product.design.format.accumulator_bits
    sums: list[list[int]] = [[] for _ in range(cols)]
    cycles = 0
    for line in text.splitlines():
        cycle, column, value = line.split()
        number = int(value, 16)
        sums[int(column)].append(number - (1 << bits) if number >> (bits - 1) else number)
        cycles = max(cycles, int(cycle) + 1)
    # The last row leaves first.
    folds = np.array(sums).T.reshape(product.row_tiles, product.col_tiles, rows, cols)[:, :, ::-1]
    whole = folds.transpose(0, 2, 1, 3).reshape(product.row_tiles * rows, product.col_tiles * cols)
    return Outcome(whole[: product.a.shape[0], : product.b.shape[1]], cycles)

"""Cycle-accurate simulation by Verilator: the results of the array, and the cycles that it takes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.fpga.rtl.generate import COUNT_WIDTH, FOLDER, Design, connect, modules
from common.fpga.rtl.programs import call
from common.messages.errors import PipelineError

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
    def steps(self) -> int:
        """Cycles in which a fold takes operands."""
        return ceil(int(self.a.shape[1]) / self.design.simd)

    @property
    def folds(self) -> int:
        return self.row_tiles * self.col_tiles

    @property
    def limit_cycles(self) -> int:
        return (self.folds + 2) * (self.steps + 4 * (self.design.rows + self.design.cols))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the array, and the cycles from the first operand in to the last sum out, both included."""

    product: Matrix
    cycles: int


def simulate(products: Sequence[ArrayProduct]) -> list[Outcome]:
    """Simulate all products in one program; those of one design follow each other on one array.

    Raises:
        PipelineError: Verilator is missing or failed, or a product does not fit the hardware's counters and operands.
    """
    runs: dict[Design, list[int]] = {}
    for index, product in enumerate(products):
        _check(product)
        runs.setdefault(product.design, []).append(index)
    with tempfile.TemporaryDirectory(prefix="systolic-") as name:
        folder = Path(name)
        for number, indices in enumerate(runs.values()):
            _write_operands([products[index] for index in indices], folder, number)
        _write_benches([(design, [products[index] for index in indices]) for design, indices in runs.items()], folder)
        _build(max(sum(products[index].limit_cycles for index in indices) for indices in runs.values()), folder)
        call([str(folder / "obj_dir" / "Vbenches")], folder)
        outcomes: dict[int, Outcome] = {}
        for number, indices in enumerate(runs.values()):
            lines = _lines_by_run(folder / f"out{number}.txt", len(indices))
            outcomes |= {index: _outcome(products[index], of) for index, of in zip(indices, lines, strict=True)}
    return [outcomes[index] for index in range(len(products))]


def _check(product: ArrayProduct) -> None:
    k, half = product.a.shape[1], 1 << (product.design.format.bits - 1)
    if not 1 <= product.steps < 1 << COUNT_WIDTH or product.folds >= 1 << COUNT_WIDTH or product.b.shape[0] != k:
        raise PipelineError(product.design.name, f"{product.a.shape} by {product.b.shape} does not fit its counters")
    if any(operand.min() < -half or operand.max() >= half for operand in (product.a, product.b)):
        raise PipelineError(product.design.name, f"an operand is outside {product.design.precision}")


def _build(limit_cycles: int, folder: Path) -> None:
    command = ["verilator", "--cc", "--exe", "--build", "--top-module", "benches", "-Wno-fatal", "-O1"]
    flags = ["-CFLAGS", f"-O0 -DLIMIT_CYCLES={limit_cycles}", "--Mdir", "obj_dir"]
    call([*command, *flags, "benches.v", str(FOLDER / "main.cpp")], folder)


def _write_operands(products: Sequence[ArrayProduct], folder: Path, number: int) -> None:
    """Write what the bench of one design reads: its runs, and the operands of each step of each fold."""
    bits = products[0].design.format.bits
    runs = "".join(f"{product.steps:04x}{product.folds:04x}\n" for product in products)
    (folder / f"runs{number}.hex").write_text(runs, encoding="ascii")
    for operand in ("a", "b"):
        with (folder / f"{operand}{number}.hex").open("w", encoding="ascii") as file:
            for product in products:
                file.write(_words(_entering(operand, product), bits))


def _write_benches(runs: Sequence[tuple[Design, Sequence[ArrayProduct]]], folder: Path) -> None:
    instances = []
    for i, (design, products) in enumerate(runs):
        words = sum(product.steps * product.folds for product in products)
        numbers = connect({**design.parameters, "RUNS": len(products), "WORDS": words})
        files = ", ".join(f'.{name.upper()}_FILE("{name}{i}.hex")' for name in ("runs", "a", "b"))
        files += f', .OUT_FILE("out{i}.txt")'
        instances.append(f"systolic_bench #({numbers}, {files}) bench{i} (.clk(clk), .done(finished[{i}]));")
    head = f"module benches (input clk, output done);\nwire [{len(runs) - 1}:0] finished;\nassign done = &finished;\n"
    bench = (FOLDER / "bench.v").read_text(encoding="utf-8")
    (folder / "benches.v").write_text(modules() + bench + head + "\n".join(instances) + "\nendmodule\n")


def _entering(operand: str, product: ArrayProduct) -> Matrix:
    """Return what enters the rows or the columns in each cycle, row tiles outermost: (folds * steps, side * simd)."""
    if operand == "a":
        tiles = np.repeat(_tiles(product.a, product.design.rows, product), product.col_tiles, axis=0)
    else:
        tiles = np.tile(_tiles(product.b.T, product.design.cols, product), (product.row_tiles, 1, 1))
    return tiles.reshape(-1, tiles.shape[-1])


def _tiles(operand: Matrix, side: int, product: ArrayProduct) -> Matrix:
    """Return (lines, k) as (tiles, steps, side * simd), padded with zeros."""
    (lines, k), simd = operand.shape, product.design.simd
    tiles = ceil(lines / side)
    padded = np.pad(operand, ((0, tiles * side - lines), (0, product.steps * simd - k)))
    parted = padded.reshape(tiles, side, product.steps, simd)
    return parted.transpose(0, 2, 1, 3).reshape(tiles, product.steps, side * simd)


def _words(values: Matrix, bits: int) -> str:
    """Return one hexadecimal word per line, with the first operand in the lowest bits."""
    digits = np.array(list("0123456789abcdef"))
    nibbles = np.stack([(values >> shift) & 15 for shift in range(0, bits, 4)], axis=-1)
    words = nibbles.reshape(len(values), -1)[:, ::-1]
    return "\n".join("".join(line) for line in digits[words]) + "\n"


def _lines_by_run(path: Path, count: int) -> list[list[str]]:
    """Return the lines that a bench wrote, by run, each without the run's number."""
    runs: list[list[str]] = [[] for _ in range(count)]
    with path.open(encoding="ascii") as file:
        for line in file:
            run, _, rest = line.partition(" ")
            runs[int(run)].append(rest)
    return runs


def _outcome(product: ArrayProduct, lines: Sequence[str]) -> Outcome:
    """Put the sums in their places: each segment of each column gives out its rows from the lowest up, fold by fold."""
    design = product.design
    bits = design.format.accumulator_bits
    parts = [line.split() for line in lines]
    by_lane: list[list[int]] = [[] for _ in range(design.segments * design.cols)]
    for _, lane, value in parts:
        number = int(value, 16)
        by_lane[int(lane)].append(number - (1 << bits) if number >> (bits - 1) else number)
    folds = np.zeros((product.folds, design.rows, design.cols), dtype=np.int64)
    for place, sums in enumerate(by_lane):
        segment, column = divmod(place, design.cols)
        bottom = design.rows - (design.segments - 1 - segment) * design.drain
        top = max(0, bottom - design.drain)
        folds[:, top:bottom, column] = np.array(sums).reshape(product.folds, bottom - top)[:, ::-1]
    grid = folds.reshape(product.row_tiles, product.col_tiles, design.rows, design.cols).transpose(0, 2, 1, 3)
    whole = grid.reshape(product.row_tiles * design.rows, product.col_tiles * design.cols)
    return Outcome(whole[: product.a.shape[0], : product.b.shape[1]], max(int(part[0]) for part in parts) + 1)

"""Synthesise and pack engines of many sizes with open tools, route some of them, and fit their cells.

    python -m benchmarks.kernels.routed_engines measure --board ulx3s --tools .venv-bitstream/bin [--size 4x4x1x4 ...]
    python -m benchmarks.kernels.routed_engines [fit | check]

`measure` adds a row to routed_engines.csv for each size that is not in it: LUTs, flip-flops, blocks of RAM and
multipliers as nextpnr counts them, and with --route the clock that closed. `fit` prints the coefficients of
configs/engine_cells.yaml by least squares of the relative error over the sizes that are marked so; `check`, the
default, compares all sizes with the configuration, and prints how far those kept back are off.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.plans.engine_networks import FABRICS
from benchmarks.process import ROOT
from common.files.configuration import Section
from common.fpga.rtl.engine.cells import EngineCells, delay_bits, read_engine_cells, terms
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.fabric import load_fabric
from common.fpga.rtl.open_device import CELL_NAMES, LogicCells
from common.fpga.rtl.routing import OpenTools, route
from common.messages.errors import PipelineError
from common.view.text import text_table

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ["family", "board", "rows", "cols", "simd", "word_bytes", *CELL_NAMES, "clock_mhz"]
# Rows, columns, products per element, bytes of a word. The first ones are fitted, the others kept back.
FITTED = ("2x4x1x4", "8x4x1x4", "4x4x2x4", "8x8x1x8")
KEPT_BACK = ("4x4x1x4", "4x8x1x4", "4x8x1x8", "6x4x1x4", "2x8x2x8", "8x4x2x4", "4x8x2x8", "6x8x1x8", "2x8x4x8")
MOST_OFF = 0.10


@dataclass(frozen=True, slots=True)
class MeasuredEngine:
    family: str
    board: str
    design: EngineDesign
    cells: LogicCells
    clock_mhz: float | None
    is_fitted: bool


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=("measure", "fit", "check"), default="check")
    parser.add_argument("--board", default="ulx3s", help="of configs/fabrics (default: ulx3s)")
    parser.add_argument("--tools", type=Path, help="folder of YoWASP's commands (default: the system's tools)")
    parser.add_argument("--size", nargs="+", help="measure these only, such as 4x4x1x4")
    parser.add_argument("--route", action="store_true", help="measure: route each design as well")
    given = parser.parse_args(argv)
    try:
        if given.action == "measure":
            return measure(given.board, OpenTools(given.tools), given.size, is_routed=given.route)
        measured = read_table(TABLE)
        return fit(measured) if given.action == "fit" else check(measured)
    except PipelineError as problem:
        print(f"routed_engines: error: {problem}", file=sys.stderr)
        return problem.exit_code


def engine_of(size: str) -> EngineDesign:
    numbers = size.split("x")
    if len(numbers) != 4 or not all(map(str.isdecimal, numbers)):
        raise PipelineError(size, "no size of an engine", "write rows, columns, products and bytes of a word: 4x4x1x4")
    rows, cols, simd, word_bytes = map(int, numbers)
    return EngineDesign(rows, cols, simd, word_bytes, has_row_work=False)


def measure(board: str, tools: OpenTools, only: Sequence[str] | None, *, is_routed: bool) -> int:
    device = load_fabric(board, FABRICS).device
    there = {(each.board, each.design) for each in read_table(TABLE) if each.clock_mhz or not is_routed}
    for size in only or [*FITTED, *KEPT_BACK]:
        design = engine_of(size)
        if (board, design) in there:
            continue
        with tempfile.TemporaryDirectory(prefix="routed-engine-") as name:
            found = route(design.verilog(), design.name, device, tools, Path(name), packs_only=not is_routed)
        values = (*size.split("x"), *(f"{count:g}" for count in found.cells.by_name.values()))
        row = [device.family, board, *values, found.clock_mhz or ""]
        with TABLE.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(row)
        print(*row, flush=True)
    return 0


def read_table(path: Path) -> list[MeasuredEngine]:
    """Return the measured engines; of one that was packed and later routed, the routed one."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[tuple[str, EngineDesign], MeasuredEngine] = {}
    for row in rows:
        size = "x".join(row[name] for name in ("rows", "cols", "simd", "word_bytes"))
        design = engine_of(size)
        cells = LogicCells(*(float(row[name]) for name in CELL_NAMES))
        clock = float(row["clock_mhz"]) if row["clock_mhz"] else None
        is_fitted = size in FITTED
        found[row["board"], design] = MeasuredEngine(row["family"], row["board"], design, cells, clock, is_fitted)
    return list(found.values())


def fit(measured: Sequence[MeasuredEngine]) -> int:
    """Print the coefficients of each family, and the clocks that closed."""
    for family in dict.fromkeys(each.family for each in measured):
        used = [each for each in measured if each.family == family and each.is_fitted]
        print(f"{family}:")
        for kind in ("lut", "ff"):
            print(
                f"  {kind}: {{{', '.join(f'{name}: {value:.2f}' for name, value in coefficients(used, kind).items())}}}"
            )
        clocks = sorted(each.clock_mhz for each in measured if each.family == family and each.clock_mhz)
        print(f"  # {len(used)} engines; clocks that closed: {', '.join(map(str, clocks)) or 'none'} MHz")
    return 0


def coefficients(measured: Sequence[MeasuredEngine], kind: str) -> dict[str, float]:
    """Return the coefficients with the least squares of relative errors; none is negative."""
    from scipy.optimize import nnls

    sizes = [terms(each.design) for each in measured]
    delays = [delay_bits(each.design) if kind == "ff" else 0 for each in measured]
    counts = np.array([each.cells.by_name[kind] - delay for each, delay in zip(measured, delays, strict=True)])
    table = np.array([list(each.values()) for each in sizes]) / counts[:, None]
    found, _ = nnls(table, np.ones(len(counts)))
    return dict(zip(sizes[0], map(float, found), strict=True))


def check(measured: Sequence[MeasuredEngine]) -> int:
    """Print each engine beside its plan; exit code 1 where one is more than 10 % off, or a clock outside."""
    known = read_engine_cells(Section.of_file(ROOT / "configs" / "engine_cells.yaml"))
    rows, is_right = [], True
    for each in measured:
        row, right = compared(each, known[each.family])
        rows.append(row)
        is_right &= right
    print(text_table(["board", "engine", *CELL_NAMES, "MHz", "expected", "use"], rows))
    return int(not is_right)


def compared(each: MeasuredEngine, known: EngineCells) -> tuple[list[str], bool]:
    """Return a row of the table, with the errors of the plan, and whether they are small."""
    planned, clock = known.planned(each.design).by_name, known.clock_mhz
    errors = {name: planned[name] / count - 1 if count else 0.0 for name, count in each.cells.by_name.items()}
    is_inside = each.clock_mhz is None or clock.pessimistic <= each.clock_mhz <= clock.optimistic
    row = [
        each.board,
        each.design.name.removeprefix("engine_"),
        *(f"{each.cells.by_name[name]:,.0f} ({error:+.1%})" for name, error in errors.items()),
        f"{each.clock_mhz:g}" if each.clock_mhz else "",
        f"{clock.pessimistic:g} to {clock.optimistic:g}",
        "fitted" if each.is_fitted else "kept back",
    ]
    return row, is_inside and all(abs(error) <= MOST_OFF for error in errors.values())


if __name__ == "__main__":
    sys.exit(main())

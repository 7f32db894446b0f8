"""Synthesise and pack engines of many sizes with open tools, route some of them, and fit their cells.

    python -m benchmarks.kernels.routed_engines measure --board ulx3s --tools .venv-bitstream/bin [--size 4x4x1x4 ...]
    python -m benchmarks.kernels.routed_engines array --board ulx3s --tools .venv-bitstream/bin
    python -m benchmarks.kernels.routed_engines [fit | check]

`measure` adds a row to routed_engines.csv for each size that is not in it: LUTs, flip-flops, blocks of RAM and
multipliers as nextpnr counts them, and with --route the clock that closed. `array` routes an array of 8 x 8 alone, and
fails below 100 MHz. `fit` prints the coefficients of configs/engine_cells.yaml by least squares of the relative error
over the sizes that are marked so, and the interval of clocks. `check`, the default, compares all sizes with the
configuration: for each family it prints how far those kept back are off, and whether each clock is inside the interval
that the other designs alone would give.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.plans.engine_networks import FABRICS
from benchmarks.process import ROOT
from common.files.configuration import Section
from common.fpga.rtl.engine.cells import CLOCK_COLUMNS, EngineCells, delay_bits, read_engine_cells, terms
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.fabric import load_fabric
from common.fpga.rtl.generate import Design
from common.fpga.rtl.open_device import CELL_NAMES, LogicCells
from common.fpga.rtl.routing import OpenTools, route
from common.intervals import ThreePoint
from common.messages.errors import PipelineError
from common.view.text import text_table

TABLE = Path(__file__).with_suffix(".csv")
SIZE = ("rows", "cols", "simd", "word_bytes", "weight_depth")
UNITS = {"rows": "has_row_work", "products": "has_products"}  # that an engine may be without, in the words of a size
COLUMNS = ["family", "board", *SIZE, *UNITS.values(), *CELL_NAMES, "clock_mhz"]
# By family: rows, columns, products per element, bytes of a word, the depth of the weights where it is not 4096, and
# the units that the engine has besides.
FITTED: Mapping[str, Sequence[str]] = {
    "ecp5": (
        *("2x4x1x4", "8x4x1x4", "4x4x2x4", "8x8x1x8", "4x8x1x4", "4x4x4x4"),
        *("2x4x1x4+rows", "2x8x1x8+rows", "2x4x1x4+products"),
    ),
    "nexus": ("2x4x1x4", "5x4x1x4", "2x4x2x4", "2x4x1x4x16384"),
}
KEPT_BACK: Mapping[str, Sequence[str]] = {
    "ecp5": (
        *("4x4x1x4", "6x4x1x4", "5x4x1x4", "3x4x2x4", "2x4x4x4", "8x4x2x4"),
        *("2x8x1x8", "2x8x2x8", "4x8x1x8", "2x4x1x4x16384", "4x4x1x4+rows+products"),
    ),
    "nexus": ("4x4x1x4", "3x4x1x4", "3x4x1x4x8192", "4x4x1x4x8192"),
}
CONFIDENCE = 0.9  # of the interval of clocks
LEAST_MHZ = 100.0  # at which the array alone has to close
MOST_OFF = 0.10
IMPROBABLE = 0.05


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
    parser.add_argument("action", nargs="?", choices=("measure", "array", "fit", "check"), default="check")
    parser.add_argument("--board", default="ulx3s", help="of configs/fabrics (default: ulx3s)")
    parser.add_argument("--tools", type=Path, help="folder of YoWASP's commands (default: the system's tools)")
    parser.add_argument("--size", nargs="+", help="measure these only, such as 4x4x1x4")
    parser.add_argument("--route", action="store_true", help="measure: route each design as well")
    given = parser.parse_args(argv)
    try:
        if given.action == "measure":
            return measure(given.board, OpenTools(given.tools), given.size, is_routed=given.route)
        if given.action == "array":
            return route_array(given.board, OpenTools(given.tools))
        measured = read_table(TABLE)
        return fit(measured) if given.action == "fit" else check(measured)
    except PipelineError as problem:
        print(f"routed_engines: error: {problem}", file=sys.stderr)
        return problem.exit_code


def engine_of(size: str) -> EngineDesign:
    sizes, *units = size.split("+")
    numbers = sizes.split("x")
    if len(numbers) not in (4, 5) or not all(map(str.isdecimal, numbers)) or not set(units) <= set(UNITS):
        text = "write rows, columns, products and bytes of a word: 4x4x1x4 or 4x4x1x4+rows+products"
        raise PipelineError(size, "no size of an engine", text)
    rows, cols, simd, word_bytes, *depth = map(int, numbers)
    design = EngineDesign(rows, cols, simd, word_bytes, **{flag: unit in units for unit, flag in UNITS.items()})
    return replace(design, weight_depth=depth[0]) if depth else design


def size_of(design: EngineDesign) -> str:
    units = [f"+{unit}" for unit, flag in UNITS.items() if getattr(design, flag)]
    return "x".join(str(getattr(design, name)) for name in SIZE) + "".join(units)


def measure(board: str, tools: OpenTools, only: Sequence[str] | None, *, is_routed: bool) -> int:
    device = load_fabric(board, FABRICS).device
    there = {(each.board, each.design) for each in read_table(TABLE) if each.clock_mhz or not is_routed}
    for size in only or [*FITTED[device.family], *KEPT_BACK[device.family]]:
        design = engine_of(size)
        if (board, design) in there:
            continue
        with tempfile.TemporaryDirectory(prefix="routed-engine-") as name:
            found = route(design.verilog(), design.name, device, tools, Path(name), packs_only=not is_routed)
        values = [int(getattr(design, name)) for name in (*SIZE, *UNITS.values())]
        values += [int(count) for count in found.cells.by_name.values()]
        row = [device.family, board, *values, found.clock_mhz or ""]
        with TABLE.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(row)
        print(*row, flush=True)
    return 0


def route_array(board: str, tools: OpenTools) -> int:
    """Route an array of 8 x 8 alone, print its cells and its clock, and return 1 where it closes below 100 MHz."""
    device = load_fabric(board, FABRICS).device
    design = Design(8, 8, "int8", overlap=True, is_pipelined=True, has_wide_multipliers=False)
    with tempfile.TemporaryDirectory(prefix="routed-array-") as name:
        found = route(design.verilog(), design.name, device, tools, Path(name), target_mhz=LEAST_MHZ)
    cells = ", ".join(f"{count:,.0f} {kind}" for kind, count in found.cells.by_name.items())
    print(f"{design.name} on {board} ({device.part}), with its pins: {cells}; {found.clock_mhz:g} MHz closed")
    return int((found.clock_mhz or 0) < LEAST_MHZ)


def read_table(path: Path) -> list[MeasuredEngine]:
    """Return the measured engines; of one that was packed and later routed, the routed one."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[tuple[str, EngineDesign], MeasuredEngine] = {}
    for row in rows:
        units = [unit for unit, flag in UNITS.items() if row[flag] == "1"]
        design, family = engine_of("+".join(["x".join(row[name] for name in SIZE), *units])), row["family"]
        cells = LogicCells(*(float(row[name]) for name in CELL_NAMES))
        clock = float(row["clock_mhz"]) if row["clock_mhz"] else None
        is_fitted = design in map(engine_of, FITTED[family])
        found[row["board"], design] = MeasuredEngine(family, row["board"], design, cells, clock, is_fitted)
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
        print(f"  # {len(used)} engines")
    if (clocks := ClockFit.of(measured)) is not None:
        for family in clocks.families:
            low, likely, high = clocks.interval(family, CLOCK_COLUMNS).cases
            print(f"{family}: clock_mhz: {{low: {low:.1f}, likely: {likely:.1f}, high: {high:.1f}}}")
        print(f"clock_ratio_per_column: {exp(clocks.coefficients[-1]):.4f}")
    return 0


@dataclass(frozen=True, slots=True)
class ClockFit:
    """Clocks that closed: log-normal around the mean of a family, less a part for each column, with one scatter."""

    families: tuple[str, ...]  # that have a clock
    # Logarithm of the clock of a family at :data:`CLOCK_COLUMNS`, in their order, and that of a column
    coefficients: NDArray[np.float64]
    spread: NDArray[np.float64]  # of the coefficients, for a scatter of one
    scatter: float
    freedom: int  # engines less coefficients

    @classmethod
    def of(cls, measured: Iterable[MeasuredEngine]) -> ClockFit | None:
        """Return the fit with the least squares; None where there are too few clocks."""
        routed = [each for each in measured if each.clock_mhz]
        families = tuple(dict.fromkeys(each.family for each in routed))
        known = np.array([_clock_terms(families, each.family, each.design.cols) for each in routed])
        logs = np.log([each.clock_mhz or 0.0 for each in routed])
        if not routed or (freedom := len(routed) - int(np.linalg.matrix_rank(known))) < 1:
            return None
        found, *_ = np.linalg.lstsq(known, logs)
        scatter = sqrt(float(((logs - known @ found) ** 2).sum()) / freedom)
        return cls(families, found, np.linalg.pinv(known.T @ known), scatter, freedom)

    def interval(self, family: str, cols: int) -> ThreePoint:
        """Return the interval of a further engine's clock, by Student's law.

        Source: regression's prediction interval (Law 2015, Simulation Modeling and Analysis, 4.5).
        """
        from scipy.stats import t

        terms_of = np.array(_clock_terms(self.families, family, cols))
        middle, quantile = float(terms_of @ self.coefficients), float(t.ppf((1 + CONFIDENCE) / 2, self.freedom))
        half = quantile * self.scatter * sqrt(1 + float(terms_of @ self.spread @ terms_of))
        return ThreePoint(exp(middle - half), exp(middle), exp(middle + half))


def _clock_terms(families: Sequence[str], family: str, cols: int) -> list[float]:
    return [*(float(each == family) for each in families), float(cols - CLOCK_COLUMNS)]


def coefficients(measured: Sequence[MeasuredEngine], kind: str) -> dict[str, float]:
    """Return the coefficients with the least squares of relative errors; none is negative.

    A term that grows as an earlier one does over all sizes says nothing, and is 0. One of a unit that none of them has
    is left out.
    """
    from scipy.optimize import nnls

    every = [terms(each.design) for each in measured]
    names = [name for name in every[0] if any(size[name] for size in every)]
    sizes = [{name: size[name] for name in names} for size in every]
    delays = [delay_bits(each.design) if kind == "ff" else 0 for each in measured]
    counts = np.array([each.cells.by_name[kind] - delay for each, delay in zip(measured, delays, strict=True)])
    kept: dict[str, NDArray[np.float64]] = {}
    for name in sizes[0]:
        column = np.array([size[name] for size in sizes])
        if np.linalg.matrix_rank(np.array([*kept.values(), column])) > len(kept):
            kept[name] = column
    found, _ = nnls(np.array([*kept.values()]).T / counts[:, None], np.ones(len(counts)))
    return {**dict.fromkeys(sizes[0], 0.0), **dict(zip(kept, map(float, found), strict=True))}


def check(measured: Sequence[MeasuredEngine]) -> int:
    """Print each engine beside its plan; exit code 1 where one is over 10 % off, or too many clocks are outside."""
    known = read_engine_cells(Section.of_file(ROOT / "configs" / "engine_cells.yaml"))
    rows, is_right = [], True
    for each in measured:
        row, right = compared(each, known[each.family])
        rows.append(row)
        is_right &= right
    print(text_table(["board", "engine", *CELL_NAMES, "MHz", "expected", "use"], rows))
    for family in dict.fromkeys(each.family for each in measured):
        print(_kept_back(family, measured, known[family]))
    inside = [is_inside for family in known for is_inside in clocks_left_out(family, measured)]
    print(f"{sum(inside)} of {len(inside)} clocks are inside the intervals of {CONFIDENCE:.0%} that the others give")
    return int(not is_right or are_too_few(sum(inside), len(inside)))


def are_too_few(inside: int, count: int) -> bool:
    """Whether intervals of :data:`CONFIDENCE` would hold so few of their cases once in twenty times at most."""
    from scipy.stats import binom

    return bool(binom.cdf(inside, count, CONFIDENCE) < IMPROBABLE)


def _kept_back(family: str, measured: Sequence[MeasuredEngine], known: EngineCells) -> str:
    """Return how far a family's engines are off that took no part, cells and clocks."""
    others = [each for each in measured if each.family == family and not each.is_fitted]
    worst = {
        name: max(abs(known.planned(each.design).by_name[name] / each.cells.by_name[name] - 1) for each in others)
        for name in CELL_NAMES
    }
    errors = ", ".join(f"{name} {error:.1%}" for name, error in worst.items())
    judged = clocks_left_out(family, measured)
    clocks = f"{sum(judged)} of {len(judged)} clocks inside that were left out" if judged else "too few clocks to judge"
    return f"{family}: {len(others)} kept back, at most off: {errors}; {clocks}"


def clocks_left_out(family: str, measured: Sequence[MeasuredEngine]) -> list[bool]:
    """Return whether each clock is inside the interval that the other designs alone give."""
    judged = []
    for each in (each for each in measured if each.clock_mhz and each.family == family):
        others = ClockFit.of(one for one in measured if one is not each)
        if others is not None and family in others.families:
            interval = others.interval(family, each.design.cols)
            judged.append(interval.pessimistic <= (each.clock_mhz or 0) <= interval.optimistic)
    return judged


def compared(each: MeasuredEngine, known: EngineCells) -> tuple[list[str], bool]:
    """Return a row of the table, with the errors of the plan's cells, and whether they are small."""
    planned, clock = known.planned(each.design).by_name, known.clock_of(each.design)
    errors = {name: planned[name] / count - 1 if count else 0.0 for name, count in each.cells.by_name.items()}
    row = [
        each.board,
        size_of(each.design),
        *(f"{each.cells.by_name[name]:,.0f} ({error:+.1%})" for name, error in errors.items()),
        f"{each.clock_mhz:g}" if each.clock_mhz else "",
        f"{clock.pessimistic:.1f} to {clock.optimistic:.1f}",
        "fitted" if each.is_fitted else "kept back",
    ]
    return row, all(abs(error) <= MOST_OFF for error in errors.values())


if __name__ == "__main__":
    sys.exit(main())

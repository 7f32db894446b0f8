"""Generate the Verilog of one array: the modules of this folder, and a top module with the sizes filled in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from string import Template

from common.messages.errors import PipelineError

FOLDER = Path(__file__).resolve().parent
MODULES = ("array.v", "control.v", "block.v", "tree.v", "accumulator.v", "pack.v", "delay.v")
COUNT_WIDTH = 16  # bits of the run-time K and fold counts


@dataclass(frozen=True, slots=True)
class Format:
    """A number format on the 27 x 18 bit multiplier, which ``pack_rows`` x ``pack_cols`` products share."""

    bits: int
    accumulator_bits: int
    pack_rows: int
    pack_cols: int


# The accumulators hold 2^16 products of the two most negative operands: 2^30, 2^14 and 2^6 each.
FORMATS = {"int16": Format(16, 48, 1, 1), "int8": Format(8, 32, 1, 2), "int4": Format(4, 24, 2, 2)}


@dataclass(frozen=True, slots=True)
class Design:
    """An output-stationary array."""

    rows: int  # R, rows of the result
    cols: int  # C, columns of the result
    precision: str
    overlap: bool = False  # whether sums leave while the next fold is computed
    simd: int = 1  # s, products that an element adds per cycle
    sums_per_cycle: int = 1  # d, sums that leave a column per cycle; without overlap one
    # Whether there are registers before and behind the products and behind each level of their tree
    is_pipelined: bool = False
    # Of 27 x 18 bits, which several products share; one of 18 x 18 bits takes one product
    has_wide_multipliers: bool = True

    def __post_init__(self) -> None:
        if self.precision not in FORMATS:
            raise PipelineError(self.precision, "no Verilog for this format", f"there is {', '.join(FORMATS)}")
        if min(self.rows, self.cols) < 2:
            raise PipelineError(f"{self.rows}x{self.cols}", "an array needs two rows and two columns")
        if self.sums_per_cycle > 1 and not self.overlap:
            raise PipelineError(self.name, "without overlap, one sum leaves a column per cycle")
        if self.segments > 1 and (self.rows % self.format.pack_rows or self.drain % self.format.pack_rows):
            raise PipelineError(
                self.name, f"{self.sums_per_cycle} sums per cycle would part rows that share a multiplier"
            )

    @property
    def format(self) -> Format:
        """Number format, with the packing of its operands."""
        wide = FORMATS[self.precision]
        return wide if self.has_wide_multipliers else replace(wide, pack_rows=1, pack_cols=1)

    @property
    def pipeline_cycles(self) -> int:
        """Cycles by which sums leave later, once per call: before and behind the product, and in the tree."""
        return 4 + (self.simd - 1).bit_length() if self.is_pipelined else 0

    @property
    def name(self) -> str:
        """Name of the top module, a Verilog identifier."""
        size = f"{self.rows}x{self.cols}" + (f"x{self.simd}" if self.simd > 1 else "")
        kinds = {"overlap": self.overlap, "pipelined": self.is_pipelined, "narrow": not self.has_wide_multipliers}
        return "_".join([f"systolic_{size}_{self.precision}", *(kind for kind, is_so in kinds.items() if is_so)])

    @property
    def drain(self) -> int:
        """Rows of a segment of a column, which leave one after the other."""
        return ceil(self.rows / self.sums_per_cycle)

    @property
    def segments(self) -> int:
        """Segments of a column, which leave at the same time; the topmost one has the rest of the rows."""
        return ceil(self.rows / self.drain)

    @property
    def parameters(self) -> dict[str, int]:
        return {
            "ROWS": self.rows,
            "COLS": self.cols,
            "WIDTH": self.format.bits,
            "ACC_WIDTH": self.format.accumulator_bits,
            "PACK_ROWS": self.format.pack_rows,
            "PACK_COLS": self.format.pack_cols,
            "OVERLAP": int(self.overlap),
            "SIMD": self.simd,
            "DRAIN": self.drain,
            "PIPELINED": 2 if self.is_pipelined else 0,
        }

    def verilog(self) -> str:
        """Return the whole text; the top module is called :attr:`name`."""
        bits, result_bits = self.format.bits, self.format.accumulator_bits
        top = Template((FOLDER / "top.v").read_text(encoding="utf-8")).substitute(
            name=self.name,
            parameters=connect(self.parameters),
            count_width=COUNT_WIDTH,
            count_msb=COUNT_WIDTH - 1,
            a_msb=self.rows * self.simd * bits - 1,
            b_msb=self.cols * self.simd * bits - 1,
            valid_msb=self.segments * self.cols - 1,
            result_msb=self.segments * self.cols * result_bits - 1,
        )
        return "// verilator lint_off DECLFILENAME\n" + modules() + top


def modules() -> str:
    """Return the modules below the top, with their parameters open."""
    return "\n".join((FOLDER / file).read_text(encoding="utf-8") for file in MODULES) + "\n"


def connect(values: dict[str, int]) -> str:
    return ", ".join(f".{name}({value})" for name, value in values.items())

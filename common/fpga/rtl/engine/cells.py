"""The cells that an engine takes on a device with open tools, before it is synthesised; and the clock to expect.

Multipliers, block RAM and the registers that only delay follow from the sizes. LUTs and the other flip-flops are fitted
to packed engines (`python -m benchmarks.kernels.routed_engines`), as sums of the parts that grow with a size:

    per engine, per column (a lane of the epilogue), per byte of a word of memory, per element, per further product of
    an element, and per doubling of the products of an element; for the unit for row-wise work, and per byte of its
    words; for products of two tensors, per column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, log2

from common.files.configuration import Section
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.open_device import LogicCells
from common.intervals import ThreePoint, combine
from common.messages.errors import PipelineError

BLOCK_SHAPES = ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))  # bits x words of 18 Kb
QUEUES, QUEUE_WORDS, QUEUE_BITS = 3, 512, 32
SUM_BITS, CONSTANT_BITS = 32, 64
UNITS = {"row_work": "row-wise work", "row_work_byte": "row-wise work", "product_col": "products of two tensors"}
UNIT_MULTIPLIERS = ("row_byte_multipliers", "row_multipliers", "product_lane_multipliers")
TABLE_BYTES = 1024  # 256 entries of 32 bits
CLOCK_COLUMNS = 4  # of the engines whose clocks are the most


@dataclass(frozen=True, slots=True)
class EngineCells:
    """What is known of engines on a family."""

    family: str
    lut: Mapping[str, float]  # cells per unit of each term of :func:`terms`; those of :data:`UNITS` may be missing
    ff: Mapping[str, float]
    product: int  # multipliers of a product of two int8
    lane: int  # multipliers of a lane of the epilogue
    once: int  # multipliers of an engine of any size
    row_byte: int  # multipliers of the unit for row-wise work, of a byte of its words and besides
    row_once: int
    product_lane: int  # multipliers of a lane that multiplies two tensors element by element, besides its own
    clock_mhz: ThreePoint  # to expect after routing, of an engine of :data:`CLOCK_COLUMNS`
    clock_ratio_per_column: float  # of the clock with one column more

    def clock_of(self, design: EngineDesign) -> ThreePoint:
        """Return the clock in MHz to expect of an engine after routing: wider engines close at lower ones."""
        ratio = self.clock_ratio_per_column ** (design.cols - CLOCK_COLUMNS)
        return combine(lambda mhz: mhz * ratio, self.clock_mhz)

    def planned(self, design: EngineDesign) -> LogicCells:
        """Return the cells of an engine with its pins.

        Raises:
            PipelineError: it has a unit that was not measured on this family.
        """
        sizes = {name: size for name, size in terms(design).items() if size}
        if unknown := [UNITS[name] for name in sizes if name not in self.lut]:
            reason = f"has the unit for {unknown[0]}, whose cells were not measured on {self.family}"
            raise PipelineError(design.name, reason, "choose a board of another family")
        return LogicCells(
            lut=sum(self.lut[name] * size for name, size in sizes.items()),
            ff=delay_bits(design) + sum(self.ff[name] * size for name, size in sizes.items()),
            block_ram=block_rams(design),
            multiplier=self.multipliers(design),
        )

    def multipliers(self, design: EngineDesign) -> int:
        lane = self.lane + design.has_products * self.product_lane
        row_work = design.has_row_work * (design.word_bytes * self.row_byte + self.row_once)
        return design.rows * design.cols * design.simd * self.product + design.cols * lane + row_work + self.once


def read_engine_cells(file: Section) -> dict[str, EngineCells]:
    """Read ``configs/engine_cells.yaml``: what is known, by family. Errors are those of :class:`Section`."""
    found = {}
    for family in file:
        below = file.section(family)
        below.origin()
        lut, ff = (below.section(kind) for kind in ("lut", "ff"))
        names = [name for name in terms(EngineDesign(8, 8)) if name not in UNITS or name in lut]
        row_byte, row_once, product_lane = (below.count(name) if name in below else 0 for name in UNIT_MULTIPLIERS)
        found[family] = EngineCells(
            family,
            {name: lut.number(name) for name in names},
            {name: ff.number(name) for name in names},
            below.count("product_multipliers"),
            below.count("lane_multipliers"),
            below.count("engine_multipliers", positive=False),
            row_byte,
            row_once,
            product_lane,
            below.constant("clock_mhz").as_rate(),
            below.number("clock_ratio_per_column"),
        )
    file.close()
    return found


def cells_of_family(known: Mapping[str, EngineCells], family: str) -> EngineCells:
    """Return what is known of a family; PipelineError if no engine was measured on it."""
    if family not in known:
        raise PipelineError(family, "no engine was measured on this family", f"choose a board of {', '.join(known)}")
    return known[family]


def terms(design: EngineDesign) -> dict[str, float]:
    rows, cols = design.rows, design.cols
    return {
        "engine": 1.0,
        "col": float(cols),
        "word_byte": float(design.word_bytes),
        "element": float(rows * cols),
        "further_product": float(rows * cols * (design.simd - 1)),
        "doubling": log2(design.simd),
        "row_work": float(design.has_row_work),
        "row_work_byte": float(design.has_row_work * design.word_bytes),
        "product_col": float(design.has_products * cols),
    }


def delay_bits(design: EngineDesign) -> int:
    """Return the registers that delay operands row by row and column by column, and sums until the last column's."""
    operand_bits = 9 if design.pack_cols == 1 else 8  # a byte less its zero point has nine
    skew = (design.rows * (design.rows - 1) + design.cols * (design.cols - 1)) // 2 * operand_bits * design.simd
    return skew + design.cols * (design.cols - 1) // 2 * SUM_BITS


def block_rams(design: EngineDesign) -> int:
    """Return the blocks of all buffers, each in its best shape, and of the queues."""
    return sum(count * _blocks(bits, depth) for count, bits, depth in _memories(design))


def _memories(design: EngineDesign) -> Iterator[tuple[int, int, int]]:
    """Yield how many memories of so many bits and words there are."""
    word, cols = 8 * design.word_bytes, design.cols
    yield 1, word, design.input_depth
    yield design.rows, word, 2 * design.window_depth
    yield cols * design.simd, 8, design.weight_depth
    yield cols * CONSTANT_BITS // word, word, design.channel_depth
    yield 2 * cols * 8 // word, word, design.result_depth
    yield 1, cols * SUM_BITS, design.partial_depth
    yield QUEUES, QUEUE_BITS, QUEUE_WORDS
    if design.has_row_work:  # a table for each byte of a word
        yield design.word_bytes, word, TABLE_BYTES // design.word_bytes


def _blocks(bits: int, depth: int) -> int:
    return min(ceil(bits / width) * ceil(depth / words) for width, words in BLOCK_SHAPES)

"""Accelerators: an array of multipliers under a hierarchy of memories.

Levels are ordered from the outermost (DRAM) to the innermost (registers). A level holds some of the three operands of a
layer; the others bypass it. Below a level, loops may be laid out in space over the rows or the columns of the array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from common.errors import UnusableValueError

Axis = Literal["rows", "columns"]
Copies = Literal["one", "column", "element"]
BandwidthOf = Literal["copy", "column"]

KIB = 1024


class NothingFitsError(UnusableValueError):
    """Sizes of an accelerator in which no schedule of a model fits. Other sizes may do."""


@dataclass(frozen=True, slots=True)
class Fanout:
    """Loops that are laid out in space below a level, and their axis of the array."""

    loops: tuple[str, ...]
    axis: Axis


@dataclass(frozen=True, slots=True)
class Level:
    """One memory of the hierarchy.

    Attributes:
        name: ``dram``, ``scratchpad`` …
        holds: the operands that stay here; the others pass by.
        copies: whether there is one such memory, one per column or one per element of the array.
        capacity_kib: of one copy; None where nothing limits it.
        word_bytes: of one element of an operand, as it is kept here.
        block_words: words that one access moves; energy is paid for whole blocks.
        bytes_per_cycle: what the memory moves in a cycle, reads and writes together; None where it never limits.
        bandwidth_of: whether that rate is of one copy in use, or comes once per column of the array.
        base_pj_per_byte: energy of a byte that is read or written, in a memory of no size.
        slope_pj_per_byte_per_kib: what each KiB of a copy adds to it.
        area_mm2_per_kib: silicon; None where it is not on the chip, or nobody gives it.
        fanout: loops that may be spatial below this level; None where none may.
    """

    name: str
    holds: frozenset[str]
    copies: Copies
    capacity_kib: float | None
    word_bytes: int
    block_words: int
    bytes_per_cycle: float | None
    bandwidth_of: BandwidthOf
    base_pj_per_byte: float
    slope_pj_per_byte_per_kib: float
    area_mm2_per_kib: float | None
    fanout: Fanout | None

    @property
    def capacity_words(self) -> float:
        """Words that one copy holds; infinite where nothing limits it."""
        return float("inf") if self.capacity_kib is None else self.capacity_kib * KIB / self.word_bytes

    @property
    def pj_per_word(self) -> float:
        """Energy of a word that is read or written."""
        size = self.slope_pj_per_byte_per_kib * (self.capacity_kib or 0)
        return self.word_bytes * (self.base_pj_per_byte + size)


@dataclass(frozen=True, slots=True)
class MultiplierArray:
    """The multipliers: an array of rows and columns, in which an element does one multiply-accumulate per cycle.

    Attributes:
        mac_pj: energy of one multiply-accumulate.
        element_mm2: area of one element; None where nobody gives it.
        column_mm2: area that a column has beside its elements and memories; None where nobody gives it.
    """

    rows: int
    columns: int
    mac_pj: float
    element_mm2: float | None
    column_mm2: float | None

    @property
    def elements(self) -> int:
        """Multiply-accumulates per cycle when every element is used."""
        return self.rows * self.columns


@dataclass(frozen=True, slots=True)
class RtlCosts:
    """Cycles of the parts of a tile in Gemmini's RTL, as :mod:`common.design_space.mapping.gemmini_rtl` counts them.

    Attributes:
        window_command_cycles: commands of a tile of a convolution.
        product_command_cycles: commands of a tile of a matrix product.
        row_cycles: a request to memory, of at most 64 bytes.
        byte_cycles: a byte from memory.
        block_cycles: an instruction of the array.
        pixel_cycles: a row of inputs into the array.
        weight_row_cycles: a row of weights into the array.
    """

    window_command_cycles: float
    product_command_cycles: float
    row_cycles: float
    byte_cycles: float
    block_cycles: float
    pixel_cycles: float
    weight_row_cycles: float


@dataclass(frozen=True, slots=True)
class Hardware:
    """An accelerator.

    Attributes:
        name: of its file.
        title: in one line.
        clock_mhz: cycles per µs.
        levels: the memories, from the outermost to the innermost.
        rtl: costs of a tile in its RTL; None where nobody measured it.
    """

    name: str
    title: str
    clock_mhz: float
    array: MultiplierArray
    levels: tuple[Level, ...]
    rtl: RtlCosts | None = None

    def level(self, name: str) -> Level:
        """Return a level by its name.

        Raises:
            UnusableValueError: there is no such level.
        """
        for level in self.levels:
            if level.name == name:
                return level
        known = ", ".join(level.name for level in self.levels)
        raise UnusableValueError("level", f"{self.name} has no level {name}", f"known: {known}")

    def copies(self, level: Level) -> int:
        return {"one": 1, "column": self.array.columns, "element": self.array.elements}[level.copies]

    @property
    def area_mm2(self) -> float | None:
        """Silicon of the array and the memories whose areas are given; None where none is."""
        array, parts = self.array, []
        if array.element_mm2 is not None:
            parts.append(array.elements * array.element_mm2)
        if array.column_mm2 is not None:
            parts.append(array.columns * array.column_mm2)
        for level in self.levels:
            if level.capacity_kib is not None and level.area_mm2_per_kib is not None:
                parts.append(self.copies(level) * level.capacity_kib * level.area_mm2_per_kib)
        return sum(parts) if parts else None

    def resized(
        self, rows: int | None = None, columns: int | None = None, capacity_kib: Mapping[str, float] | None = None
    ) -> Hardware:
        """Return the accelerator with another array or other memories.

        Args:
            rows: of the array; None to keep them.
            columns: of the array; None to keep them.
            capacity_kib: KiB of all copies of a level together, by the level's name. A memory that is not named keeps
                the size of a copy.

        Raises:
            UnusableValueError: a level is not known.
            NothingFitsError: a level cannot hold one word of each of its operands.
        """
        other = self.sized(rows, columns, capacity_kib)
        other.require_room()
        return other

    def sized(self, rows: int | None, columns: int | None, capacity_kib: Mapping[str, float] | None) -> Hardware:
        """Return the accelerator with sizes as :meth:`resized` takes them, in which a tile may or may not fit.

        Raises:
            UnusableValueError: a level is not known.
        """
        array = replace(self.array, rows=rows or self.array.rows, columns=columns or self.array.columns)
        other = replace(self, array=array)
        sizes = {self.level(name): kib for name, kib in (capacity_kib or {}).items()}
        levels = [
            replace(level, capacity_kib=sizes[level] / other.copies(level)) if level in sizes else level
            for level in self.levels
        ]
        return replace(other, levels=tuple(levels))

    def require_room(self) -> None:
        """Refuse memories that are too small for any schedule.

        Raises:
            NothingFitsError: a level cannot hold one word of each of its operands.
        """
        for level in self.levels:
            if problem := capacity_problem(level):
                raise NothingFitsError(f"{level.name}_kib", problem, "give a larger memory")


def capacity_problem(level: Level) -> str:
    """Return why a memory is too small to work with; empty where it is not."""
    if level.capacity_words >= len(level.holds):
        return ""
    return f"holds {level.capacity_words:g} words of {level.word_bytes} bytes, which is below one tile"

"""Accelerators as configs/hardware describes them: an array of multipliers under a hierarchy of memories.

The levels stand from the outermost (DRAM) to the innermost (registers). A level holds some of the three operands of a
layer; the others bypass it. Below a level, loops may be laid out in space over the rows or the columns of the array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

from common.configuration import Constant, Section, find_file
from common.errors import UnusableValueError
from common.workload.loop_nests import LOOPS, RELEVANT_LOOPS

Axis = Literal["rows", "columns"]
Copies = Literal["one", "column", "element"]
BandwidthOf = Literal["copy", "column"]

OPERANDS = tuple(RELEVANT_LOOPS)
KIB = 1024


@dataclass(frozen=True, slots=True)
class Fanout:
    """Loops that are laid out in space below a level, and the axis of the array that they lie along."""

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
class Array:
    """The multipliers: an array of rows and columns, in which an element does one multiply-accumulate per cycle.

    Attributes:
        rows: number of rows.
        columns: number of columns.
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
class Hardware:
    """An accelerator.

    Attributes:
        name: of its file.
        title: in one line.
        clock_mhz: cycles per µs.
        array: the multipliers.
        levels: the memories, from the outermost to the innermost.
    """

    name: str
    title: str
    clock_mhz: float
    array: Array
    levels: tuple[Level, ...]

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
        """Return how many copies of a memory there are."""
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
            UnusableValueError: a size is not positive, a level is not known, or it cannot hold one word of each of its
                operands.
        """
        array = replace(self.array, rows=rows or self.array.rows, columns=columns or self.array.columns)
        other = replace(self, array=array)
        sizes = {self.level(name): kib for name, kib in (capacity_kib or {}).items()}
        levels = [
            replace(level, capacity_kib=sizes[level] / other.copies(level)) if level in sizes else level
            for level in self.levels
        ]
        for level in levels:
            if problem := capacity_problem(level):
                raise UnusableValueError(f"{level.name}_kib", problem, "give a larger memory")
        return replace(other, levels=tuple(levels))


def capacity_problem(level: Level) -> str:
    """Return why a memory is too small to work with; empty where it is not."""
    if level.capacity_words >= len(level.holds):
        return ""
    return f"holds {level.capacity_words:g} words of {level.word_bytes} bytes, which is below one tile"


def load_hardware(name: str, folder: Path) -> Hardware:
    """Read an accelerator's file, given by its name in ``folder`` or by its path.

    Raises:
        UnusableValueError: there is no such file.
        ConfigurationError: as :func:`read_hardware`.
    """
    return read_hardware(Section.of_file(find_file("hardware", name, folder)))


def read_hardware(file: Section) -> Hardware:
    """Make an accelerator from its YAML file, whose name is the accelerator's.

    Raises:
        ConfigurationError: a key is missing or unknown, a number is unusable or has no source, a level cannot hold one
            word of each of its operands, or the outermost level does not hold all of them.
    """
    hardware = Hardware(
        name=file.path.stem,
        title=file.text("title"),
        clock_mhz=file.constant("clock_mhz").likely,
        array=_array(file.section("array")),
        levels=tuple(_level(section) for section in file.sections("levels")),
    )
    file.close()
    _check(file, hardware)
    return hardware


def _check(file: Section, hardware: Hardware) -> None:
    """Refuse a hierarchy on which no layer can run."""
    names = [level.name for level in hardware.levels]
    if len(set(names)) < len(names):
        raise file.error("levels", "has two levels of one name")
    if hardware.levels[0].holds != set(OPERANDS) or hardware.levels[0].capacity_kib is not None:
        raise file.error("levels[0]", "is the outermost level", "it holds all operands and has no capacity_kib")
    axes = [level.fanout.axis for level in hardware.levels if level.fanout]
    if len(set(axes)) < len(axes):
        raise file.error("levels", "use one axis of the array twice")
    for index, level in enumerate(hardware.levels):
        if problem := capacity_problem(level):
            raise file.error(f"levels[{index}].capacity_kib", f"{problem}", "give a larger memory")


def _array(section: Section) -> Array:
    """Read the array."""
    return Array(
        rows=section.count("rows"),
        columns=section.count("columns"),
        mac_pj=section.constant("mac_pj", positive=False).likely,
        element_mm2=_optional(section, "element_mm2"),
        column_mm2=_optional(section, "column_mm2"),
    )


def _level(section: Section) -> Level:
    """Read one level of the hierarchy."""
    energy = section.section("energy")
    return Level(
        name=section.text("name"),
        holds=frozenset(_words(section, "holds", OPERANDS)),
        copies=cast(Copies, section.choice("copies", get_args(Copies))) if "copies" in section else "one",
        capacity_kib=_optional(section, "capacity_kib"),
        word_bytes=section.count("word_bytes"),
        block_words=section.count("block_words") if "block_words" in section else 1,
        bytes_per_cycle=_optional(section, "bytes_per_cycle"),
        bandwidth_of=_bandwidth_of(section),
        base_pj_per_byte=energy.constant("base_pj_per_byte", positive=False).likely,
        slope_pj_per_byte_per_kib=_optional(energy, "slope_pj_per_byte_per_kib") or 0.0,
        area_mm2_per_kib=_optional(section, "area_mm2_per_kib"),
        fanout=_fanout(section.section("spatial")) if "spatial" in section else None,
    )


def _bandwidth_of(section: Section) -> BandwidthOf:
    """Return what a level's bandwidth is given for: a copy in use, where the file does not say."""
    if "bandwidth_of" not in section:
        return "copy"
    return cast(BandwidthOf, section.choice("bandwidth_of", get_args(BandwidthOf)))


def _fanout(section: Section) -> Fanout:
    """Read which loops may lie along which axis."""
    return Fanout(tuple(_words(section, "loops", LOOPS)), cast(Axis, section.choice("axis", get_args(Axis))))


def _words(section: Section, key: str, allowed: tuple[str, ...]) -> list[str]:
    """Return a list of distinct words, each of them allowed."""
    words = section.entries(key)
    if any(word not in allowed for word in words) or len(set(words)) < len(words):
        raise section.error(key, "has a word that is not known, or one twice", f"it takes {', '.join(allowed)}")
    return words


def _optional(section: Section, key: str) -> float | None:
    """Return a positive figure, or None where the file does not give it."""
    if key not in section:
        return None
    figure: Constant = section.constant(key)
    return figure.likely

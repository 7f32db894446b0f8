"""Accelerators: an array of multipliers under a hierarchy of memories.

Levels are ordered from the outermost (DRAM) to the innermost (registers). A level holds some of the three operands of a
layer; the others bypass it. Below a level, loops may be laid out in space over the rows or the columns of the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Literal

from common.messages.errors import UnusableValueError

Axis = Literal["rows", "columns"]
Copies = Literal["one", "column", "element"]
BandwidthOf = Literal["copy", "column"]

KIB = 1024


class NothingFitsError(UnusableValueError):
    """Sizes of an accelerator in which no schedule of a model fits. Other sizes may do."""


@dataclass(frozen=True, slots=True)
class Fanout:
    """Loops that are laid out in space below a level, and their axis of the array.

    ``most`` limits the copies of single loops, where the wires of the array do not allow as many as the axis has.
    """

    loops: tuple[str, ...]
    axis: Axis
    most: tuple[tuple[str, int], ...] = ()

    def room(self, loop: str, array: MultiplierArray) -> int:
        """Return the most copies of a loop."""
        size: int = getattr(array, self.axis)
        return min(size, dict(self.most).get(loop, size)) if loop in self.loops else 1


@dataclass(frozen=True, slots=True)
class Network:
    """What carries words between a level and the copies below its fan-out.

    A word reaches its first copy over ``hops`` links, and each further copy of a multicast over one link more. The sums
    of several copies come back over the same links. Without a network in the file, both cost nothing.
    """

    hop_pj_per_byte: float  # energy of a byte over one link
    hops: float = 1.0  # links between the level and one copy
    addition_pj: float = 0.0  # energy of one addition of two partial sums on their way
    is_multicast: bool = True  # whether a word for several copies is read once; else once for each of them
    # Whether partial sums of several copies are added on their way; else each is written at the level
    is_reducing: bool = True

    def shares(self, operand: str) -> bool:
        """Return whether several copies of an operand's word are one word at the level."""
        return self.is_reducing if operand == "output" else self.is_multicast


@dataclass(frozen=True, slots=True)
class Level:
    """One memory of the hierarchy."""

    name: str  # ``dram``, ``scratchpad`` …
    holds: frozenset[str]  # the operands that a mapping may keep here; the others bypass the level
    copies: Copies  # whether there is one such memory, one per column or one per element of the array
    capacity_kib: float | None  # of one copy; None where nothing limits it
    word_bytes: int  # of one word. An element of an operand is one word, unless ``element_bytes`` says otherwise.
    block_words: int  # words that one access moves; energy is paid for whole blocks
    # What the memory moves in a cycle, reads and writes together; None where it never limits
    bytes_per_cycle: float | None
    bandwidth_of: BandwidthOf  # whether that rate is of one copy in use, or comes once per column of the array
    base_pj_per_byte: float  # energy of a byte that is read or written, in a memory of no size
    slope_pj_per_byte_per_kib: float  # what each KiB of a copy adds to it
    area_mm2_per_kib: float | None  # silicon; None where it is not on the chip, or nobody gives it
    fanouts: tuple[Fanout, ...] = ()  # loops that may be spatial below this level, by axis of the array
    # Of one element of each operand that is kept here in more than one word, by name
    element_bytes: tuple[tuple[str, int], ...] = ()
    # Of the words between this level and the copies below it; None where they cost nothing
    network: Network | None = None
    steps: frozenset[str] | None = None  # loops that may step at this level; None where all may
    # The operand whose loops come last: those that leave it in place are innermost. None for any order.
    stationary: str | None = None
    # Operands that may bypass this level; None if the file does not list them (:meth:`Hardware.may_pass`)
    may_pass: frozenset[str] | None = None
    passed: frozenset[str] = frozenset()  # those of ``holds`` that bypass this level in all mappings of this hierarchy

    @property
    def keeps(self) -> frozenset[str]:
        """The operands that stay here: those that the level holds and that do not bypass it."""
        return self.holds - self.passed

    def element_words(self, operand: str) -> float:
        """Return the words of one element of an operand: one, unless it has a precision of its own here."""
        return self.bytes_of(operand) / self.word_bytes

    def bytes_of(self, operand: str) -> int:
        """Return the bytes of one element of an operand, as it is kept here."""
        return dict(self.element_bytes).get(operand, self.word_bytes)

    @property
    def is_plain(self) -> bool:
        """Whether the level has one precision, a network that costs nothing, and no dataflow of its own."""
        return not self.element_bytes and self.network is None and self.steps is None and self.stationary is None

    @property
    def capacity_words(self) -> float:
        """Words that one copy holds; infinite where nothing limits it."""
        return float("inf") if self.capacity_kib is None else self.capacity_kib * KIB / self.word_bytes

    @property
    def pj_per_word(self) -> float:
        size = self.slope_pj_per_byte_per_kib * (self.capacity_kib or 0)
        return self.word_bytes * (self.base_pj_per_byte + size)


@dataclass(frozen=True, slots=True)
class MultiplierArray:
    """The multipliers: an array of rows and columns, in which an element does one multiply-accumulate per cycle.

    ``column_mm2`` is the area that a column has beside its elements and memories. Areas that nobody gives are None.
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
    """Cycles of the parts of a tile in Gemmini's RTL, as :mod:`common.design_space.mapping.gemmini_rtl` counts them."""

    window_command_cycles: float  # commands of a tile of a convolution
    product_command_cycles: float  # commands of a tile of a matrix product
    row_cycles: float  # a request to memory, of at most 64 bytes
    byte_cycles: float  # a byte from memory
    block_cycles: float  # an instruction of the array
    pixel_cycles: float  # a row of inputs into the array
    weight_row_cycles: float  # a row of weights into the array


@dataclass(frozen=True, slots=True)
class RtlErrors:
    """Least and most of measured over counted cycles: nine in ten layers that took no part in the fit are between."""

    window: tuple[float, float]  # of convolutions
    product: tuple[float, float]  # of matrix products


@dataclass(frozen=True, slots=True)
class Hardware:
    """An accelerator."""

    name: str  # of its file
    title: str  # in one line
    clock_mhz: float  # cycles per µs
    array: MultiplierArray
    levels: tuple[Level, ...]  # the memories, from the outermost to the innermost
    rtl: RtlCosts | None = None  # costs of a tile in its RTL; None where nobody measured it
    rtl_errors: RtlErrors | None = None  # how far cycles by these costs are from measured ones; None without such costs
    counts_rtl: bool = False  # whether the cycles of a mapping are at least those of the RTL
    # The level in which whole tensors may be resident; None for the outermost that can have them
    resident_at: int | None = None
    not_covered: str = ""  # what the figures leave out of the machine's time or energy; empty where the file is silent

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures of the machine leave out, as a note; none where the file is silent."""
        return (f"the figures of {self.name} leave out {self.not_covered}",) if self.not_covered else ()

    @property
    def searched_rtl(self) -> RtlCosts | None:
        """The costs of the RTL that count in a search; None where cycles are the analytic ones."""
        return self.rtl if self.counts_rtl else None

    def with_rtl(self) -> Hardware:
        """Return the accelerator whose cycles are at least its RTL's; UnusableValueError without costs of one."""
        if self.rtl is None:
            problem = f"the file of {self.name} has no costs of its RTL (rtl)"
            raise UnusableValueError("cycle_model", problem, "leave out <cycle_model>")
        return replace(self, counts_rtl=True)

    def level(self, name: str) -> Level:
        """Return a level by its name; UnusableValueError if there is none."""
        for level in self.levels:
            if level.name == name:
                return level
        known = ", ".join(level.name for level in self.levels)
        raise UnusableValueError("level", f"{self.name} has no level {name}", f"known: {known}")

    def copies(self, level: Level) -> int:
        return {"one": 1, "column": self.array.columns, "element": self.array.elements}[level.copies]

    def may_pass(self, index: int) -> frozenset[str]:
        """Return the operands that may bypass a level.

        If the file does not list them, an operand may bypass the level if a memory further inside also holds it, and if
        that memory is not one per element of the array. That memory then feeds the array. No operand bypasses the
        outermost level.
        """
        level = self.levels[index]
        if level.may_pass is not None or index == 0:
            return level.may_pass or frozenset()
        inside = [inner.holds for inner in self.levels[index + 1 :] if inner.copies != "element"]
        return level.holds & frozenset().union(*inside)

    def variants(self) -> Iterator[Hardware]:
        """Yield the hierarchy with each choice of the operands that bypass its levels; at last with no bypass."""
        choices = (_subsets(sorted(self.may_pass(index))) for index in range(len(self.levels)))
        yield from map(self.passing, product(*choices))

    def passing(self, passed: Sequence[frozenset[str]]) -> Hardware:
        """Return the hierarchy in which some operands bypass each level."""
        pairs = zip(self.levels, passed, strict=True)
        return replace(self, levels=tuple(replace(level, passed=names) for level, names in pairs))

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
        self,
        rows: int | None = None,
        columns: int | None = None,
        capacity_kib: Mapping[str, float] | None = None,
        *,
        must_fit: bool = True,
    ) -> Hardware:
        """Return the accelerator with another array or other memories; UnusableValueError for a level it has not.

        Args:
            capacity_kib: KiB of all copies of a level together, by the level's name. A memory that is not named keeps
                the size of a copy.
            must_fit: whether memories that are too small for any schedule are a NothingFitsError.
        """
        array = replace(self.array, rows=rows or self.array.rows, columns=columns or self.array.columns)
        sized, levels = replace(self, array=array), {level.name: level for level in self.levels}
        for name, kib in (capacity_kib or {}).items():
            levels[name] = replace(self.level(name), capacity_kib=kib / sized.copies(self.level(name)))
        other = replace(sized, levels=tuple(levels.values()))
        if must_fit:
            other.require_room()
        return other

    def require_room(self) -> None:
        """Raise NothingFitsError for a level that cannot hold one word of each of its operands."""
        for level in self.levels:
            if problem := capacity_problem(level):
                raise NothingFitsError(f"{level.name}_kib", problem, "give a larger memory")


def _subsets(names: Sequence[str]) -> list[frozenset[str]]:
    return [frozenset(chosen) for count in range(len(names), -1, -1) for chosen in combinations(names, count)]


def capacity_problem(level: Level) -> str:
    """Return why a memory is too small to work with; empty where it is not."""
    if level.capacity_words >= sum(map(level.element_words, level.holds)):
        return ""
    return f"holds {level.capacity_words:g} words of {level.word_bytes} bytes, which is below one tile"

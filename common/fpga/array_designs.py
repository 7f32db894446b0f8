"""Designs of one array on a board: every array of a set that fits, and an array from the numbers that describe it.

The set has the sizes of the arrays from which a plan chooses. It also varies figures that are fixed in a plan: the tile
that the buffers hold, the ports to memory, and whether the array is in one region or over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.device.resources import UNLIMITED, Resources, amounts
from common.fpga.engine_catalogue import (
    ARRAY_SIDES,
    ARRAY_SIMD,
    ArrayCatalogue,
    ServedTasks,
    Size,
    array_ports,
    array_rooms,
    halves,
)
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.kernels.systolic.tiling import BANK_WORDS, LEAST_STEPS, Tile
from common.intervals import ThreePoint, summed
from common.messages.errors import UnusableValueError
from common.table_rows import DesignEnginesRow
from common.workload.tasks import Task

TILE_FOLDS = (1, 2, 4, 8, 16)  # along each side; 16 x 16 sums of an element are half of a bank


@dataclass(frozen=True, slots=True)
class ArrayDesign:
    """An array as it is built on a board."""

    size: Size  # R rows, C columns, s products per element
    row_folds: int
    column_folds: int
    step_count: int
    port_count: int  # ports to the card's memory
    spans_regions: bool

    @property
    def name(self) -> str:
        """Name such as ``24x64x8-t8x8x32-p16-all``: the array, folds and steps of its tile, ports, and its place."""
        return f"{'x'.join(map(str, self.size))}-{self.variant}"

    @property
    def variant(self) -> str:
        """The part of the name that distinguishes arrays of one size."""
        place = "all" if self.spans_regions else "one"
        return f"t{self.row_folds}x{self.column_folds}x{self.step_count}-p{self.port_count}-{place}"

    @property
    def tile(self) -> Tile:
        rows, columns, simd = self.size
        return Tile(self.row_folds * rows, self.column_folds * columns, self.step_count * simd)


@dataclass(frozen=True, slots=True)
class DesignSet:
    """The arrays that are tried; a board has as many of them as fit."""

    sizes: Sequence[Size] = tuple(product(ARRAY_SIDES, ARRAY_SIDES, ARRAY_SIMD))
    folds: Sequence[int] = TILE_FOLDS

    def tiles(self) -> list[tuple[int, int, int]]:
        """Return folds along rows and columns, and the steps of which both halves of a bank have room."""
        pairs = product(self.folds, self.folds)
        return [(rows, cols, max(LEAST_STEPS, BANK_WORDS // (2 * max(rows, cols)))) for rows, cols in pairs]

    def of_size(self, size: Size, board: Board) -> Iterator[ArrayDesign]:
        """Yield the designs of one size that a board may have, whether or not they fit."""
        spans = (False, True) if len(board.regions) > 1 else (False,)
        for tile, ports, spans_regions in product(self.tiles(), halves(board.memory_port_count), spans):
            yield ArrayDesign(size, *tile, ports, spans_regions)


@dataclass(frozen=True)
class ArrayBuilder(ArrayCatalogue):
    """Builds the arrays of designs."""

    limits: Resources = UNLIMITED  # the most that an array may take of each resource, however much the board has

    def built(self, design: ArrayDesign) -> SystolicArray | None:
        """Return the array of a design; None where it does not fit the region with the most DSPs, or the board."""
        board, spans = self.board, design.spans_regions
        budget = board.total_budget if spans else max(board.budgets, key=lambda budget: budget.dsp)
        ports, most = array_ports(board, design.port_count), budget.least(self.limits)
        array = self.fitting(design.size, ports, most, spans_regions=spans, tile=design.tile)
        return None if array is None else replace(array, variant=design.variant)

    def share(self, array: SystolicArray) -> float:
        """Return the largest share that an array takes of any resource of the budget of the board."""
        needed, budget = amounts(array.resources), amounts(self.board.total_budget.least(self.limits))
        return max(amount / limit for amount, limit in zip(needed, budget, strict=True) if amount)

    def time_us(self, array: SystolicArray) -> ThreePoint | None:
        """Return the time of all tasks that an array computes, by the kernel's model; None where it computes none."""
        estimates = [(array.estimate(task), count) for task, count in self.served.counts.items()]
        known = [each.time_us for each, count in estimates if each is not None for _ in range(count)]
        return summed(known) if known else None


def designs_of_rows(rows: Iterable[DesignEnginesRow], board: Board, precision: str) -> tuple[ArrayDesign, ...]:
    """Return the designs that rows of design_engines describe.

    Raises:
        UnusableValueError: they are for another board or number format.
    """
    designs = []
    for row in rows:
        if (row["board"], row["precision"]) != (board.name, precision):
            problem = f"they are for {row['board']} in {row['precision']}, not for {board.name} in {precision}"
            raise UnusableValueError("designs", problem, "give the same <board> and <precision> to both scripts")
        size = (row["array_row_count"], row["array_column_count"], row["simd_count"])
        tile = (row["row_fold_count"], row["column_fold_count"], row["tile_step_count"])
        designs.append(ArrayDesign(size, *tile, row["memory_port_count"], row["spans_regions"]))
    return tuple(designs)


def offered_designs(
    designs: Sequence[ArrayDesign], board: Board, precision: str, models: Models, tasks: Iterable[Task]
) -> tuple[SystolicArray, ...]:
    """Return the designs from which a plan chooses: the quickest for each budget and number of memory channels.

    A slower array with fewer channels may be the better one, because it leaves more of them to the other engines.
    """
    builder = ArrayBuilder(board, precision, models, ServedTasks.of(tasks))
    quickest: dict[tuple[int, float], tuple[float, str, SystolicArray]] = {}
    rooms = array_rooms(board, max(board.budgets, key=lambda budget: budget.dsp))
    for design in designs:
        if (array := builder.built(design)) is None or (time_us := builder.time_us(array)) is None:
            continue
        for number, (room, spans) in enumerate(rooms):
            if array.spans_regions == spans and array.resources.fits(room):
                place, timed = (number, array.resources.memory_channels), (time_us.likely, array.name, array)
                quickest[place] = min(quickest.get(place, timed), timed, key=lambda known: known[:2])
    return tuple({name: array for _, name, array in quickest.values()}.values())

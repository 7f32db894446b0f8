"""The supported points (energy, cycles) of one nest over all of its mappings, with its operands in several places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.mapping.cost import Figures, MappedBatch, MappingCost
from common.design_space.mapping.mappings import mapping_text
from common.design_space.mapping.placement import IN_MEMORY, Placement, resident_level
from common.design_space.mapping.space.cell_bounds import STAYS
from common.design_space.mapping.space.loop_chains import LoopChains
from common.design_space.mapping.space.mapping_space import Choices, MappingSpace
from common.design_space.mapping.traffic import Nesting
from common.design_space.results.cache import remembered, text_of
from common.design_space.search.fronts import ROUNDING, Front, SupportedPoint, lower_corners, lower_left_hull
from common.workload.loop_nests import LOOPS, LoopNest

FIRST, BATCH = 256, 2048  # cells that are divided at once: at first few, which make the front
MOST_PARTS = 16_384  # cells whose bounds are computed at once
FEW_CELLS, MOST_CELLS = 20_000, 1_000_000  # bounds for one nest: first for each choice of bypasses, and in all
CELLS_OF_MAPPING = 8  # a mapping whose cost is computed counts as so many
MOST_CHAINS = 1_000  # of a loop that a descent tries at once
STARTS = 4  # drawn ones of descents, beside the smallest tiles
WEIGHTS = (0.5, 0.0, 0.2, 0.35, 0.65, 0.8, 1.0)  # of energy against cycles
Values = Callable[[Choices], npt.NDArray[np.float64]]
Setting = tuple[Placement, float]  # where the operands are, and the words of resident maps
ALONE: Setting = (IN_MEMORY, 0.0)


@dataclass(frozen=True)
class NestFronts:
    """The costs of a nest's mappings in some settings."""

    mapping_count: int  # mappings whose cost was computed, once for each place of the operands
    cell_count: float  # cells that were bounded, as :func:`nest_fronts` counts them
    # The supported points in each setting, with their mappings as text; none where nothing fits
    fronts: Mapping[Setting, Front[str]]
    # Where the search ended early, points whose hull is a lower bound of the mappings of the setting
    floors: Mapping[Setting, Front[str]] = field(default_factory=dict)

    def floor(self, setting: Setting) -> Front[str]:
        """Return points whose hull bounds all mappings from below: the supported ones, if the search is complete."""
        return self.floors.get(setting, self.fronts[setting])


def nest_fronts(
    nest: LoopNest, hardware: Hardware, settings: Collection[Setting], most_cells: float = MOST_CELLS
) -> NestFronts:
    """Return the supported points of a nest over every mapping of its space; NothingFitsError if no tile fits anywhere.

    The search ends after so many bounded cells; a mapping whose cost is computed counts as some of them.
    """
    sizes = replace(hardware, name="", title="", not_covered="")  # words change no cost
    return _nest_fronts(nest, sizes, tuple(sorted(set(settings), key=text_of)), most_cells)


@remembered(NestFronts, SupportedPoint, Placement)
def _nest_fronts(nest: LoopNest, hardware: Hardware, settings: tuple[Setting, ...], most_cells: float) -> NestFronts:
    search, variants = _Search(settings), [*hardware.variants()]
    spaces = [space for variant in variants if not (space := MappingSpace.of(nest, variant)).is_empty]
    for space in spaces:
        search.visit(space, FEW_CELLS, is_first=True)
    if search.floors:  # what few cells of each and descents give ends most cells of all
        search.floors.clear()
        for space in spaces:
            search.descend(space)
        for space in spaces:
            search.visit(space, most_cells / len(spaces))
    is_plain = all(level.is_plain for level in hardware.levels)
    if not search.has_room or not (is_plain or search.floors or any(search.fronts.values())):
        raise NothingFitsError("hardware", "no tile of a layer fits its memories", "")
    floors = {setting: lower_left_hull([*left, *search.fronts[setting]]) for setting, left in search.floors.items()}
    return NestFronts(search.mapping_count, search.cell_count, search.fronts, floors)


class _Bounded(NamedTuple):
    """Cells, each with the index of an entry of ``STAYS``, and their bounds by placement."""

    cells: Choices
    stays: Choices
    # Index of the first number of resident words beside which the cell fits; their count if it never fits
    first: npt.NDArray[np.int64]
    cycles: npt.NDArray[np.float64]
    energy: npt.NDArray[np.float64]

    def at(self, rows: np.ndarray) -> _Bounded:
        return _Bounded(*(part[rows] for part in self))


class _Search:
    """The search for the supported points in all settings, cell by cell.

    A cell whose bound is below a front is divided into the chains of one loop after the other, until it is a mapping in
    some orders. Cells with the least bounds come first. After a limit of bounded cells, the others are not divided, and
    their bounds are kept.
    """

    def __init__(self, settings: Collection[Setting]) -> None:
        self.fronts: dict[Setting, Front[str]] = dict.fromkeys(settings, ())  # the supported points so far
        self.floors: dict[Setting, Front[str]] = {}  # those with the bounds of cells that were not divided
        self.mapping_count, self.cell_count = 0, 0.0  # costs that were computed, and bounds
        self.left, self.is_first = 0.0, False  # cells that may still be bounded in the space that is visited
        self.has_room = False  # whether any tile fits, wherever the operands are
        self.anywhere = frozenset[str]().union(*(placement.on_chip for placement, _ in settings))
        by_placement: dict[Placement, set[float]] = defaultdict(set)
        for placement, resident in settings:
            by_placement[placement].add(resident)
        # Of each placement the words of resident maps, the most first: what fits beside them fits beside fewer.
        self.resident = {placement: sorted(several, reverse=True) for placement, several in by_placement.items()}

    @property
    def _is_spent(self) -> bool:
        """Whether the search ends: later where operands in DRAM have no mapping yet, which every layer needs."""
        if self.left >= 0 or self.is_first:
            return self.left < 0
        is_found = all(front for (placement, _), front in self.fronts.items() if not placement.on_chip)
        return is_found or (self.left < -MOST_CELLS and any(self.fronts.values()))

    def visit(self, space: MappingSpace, most_cells: float, *, is_first: bool = False) -> None:
        """Add the mappings of a space to the fronts, except those whose bounds are above the fronts.

        Args:
            most_cells: how many cells may be bounded; a mapping whose cost is computed counts as some of them.
            is_first: whether the search ends even if no mapping is found yet.
        """
        self.space, self.figures, self.left, self.is_first = space, Figures.of([space.hardware]), most_cells, is_first
        whole = np.zeros((len(STAYS), len(LOOPS)), dtype=np.int64)
        self.has_room |= bool((space.bounds(whole).room(self.anywhere) >= 0).any())
        self._take(whole, np.arange(len(STAYS)), space.refinements)
        self.cell_count += most_cells - self.left

    def descend(self, space: MappingSpace) -> None:
        """Add the mappings that descents find: of each set of operands on the chip, beside most and fewest words."""
        self.space, self.figures, self.left = space, Figures.of([space.hardware]), 0.0
        generator, ends = np.random.default_rng(0), list[Choices]()
        for placement in {placement.on_chip: placement for placement in self.resident}.values():
            resident = self.resident[placement]
            for words in dict.fromkeys((resident[0], resident[-1])):
                values = partial(self._least, placement=placement, resident=words)
                ends += descents(space, values, generator)
        if ends:
            cells = space.cells_of(np.unique(np.stack(ends), axis=0))
            rows, stays = self._with_stays(cells)
            self._evaluate(cells[rows], stays)

    def _with_stays(self, cells: Choices) -> tuple[Choices, Choices]:
        """Return cells of single chains by their row, with each entry of ``STAYS`` that their loops allow."""
        bounds = self.space.bounds(cells)
        rows = [np.flatnonzero(bounds.may_stay(operand)) for operand in STAYS]
        return np.concatenate(rows), np.repeat(np.arange(len(STAYS)), [len(part) for part in rows])

    def _least(self, chains: Choices, placement: Placement, resident: float) -> npt.NDArray[np.float64]:
        """Return the least product over the orders of mappings; infinite where none fits beside resident words."""
        least, cells = np.full(len(chains), np.inf), self.space.cells_of(chains)
        fitting = np.flatnonzero(self.space.bounds(cells).room(placement.on_chip) >= resident)
        rows, stays = self._with_stays(cells[fitting])
        of_chains = fitting[rows]
        mappings, of_cells = self.space.mappings(cells[of_chains], stays)
        if not len(of_cells):
            return least
        self.mapping_count += len(of_cells)
        self.cell_count += len(of_cells) * CELLS_OF_MAPPING
        nesting = Nesting.of(self.space.nests, mappings)
        result = MappedBatch(nesting, self.space.hardware, self.figures).cost(placement)
        products = np.asarray(result.energy_pj) * np.asarray(result.cycles)
        fits = _room(result, placement, self.space.hardware) >= resident
        np.minimum.at(least, of_chains[of_cells], np.where(fits, products, np.inf))
        return least

    def _take(self, cells: Choices, stays: Choices, loops: Sequence[int]) -> None:
        """Divide those cells whose bounds are below a front by the chains of some loops, the least bounds first."""
        self.left -= len(cells)
        bounded = [self._bounded(cells, stays, entry) for entry in np.unique(stays)]
        left = _Bounded(*map(np.concatenate, zip(*bounded, strict=True)))
        while (below := self._are_below(left)).any():
            left = left.at(below)
            first, later = _most_promising(left, FIRST if not any(self.fronts.values()) else BATCH)
            chosen, left = left.at(first), left.at(later)
            if self._is_spent:
                self._leave(chosen)
            else:
                self._divide(chosen.cells, chosen.stays, loops)

    def _bounded(self, cells: Choices, stays: Choices, entry: int) -> _Bounded:
        """Return the cells that fit in any setting, of one entry of ``STAYS``, with their bounds."""
        cells, operand = cells[stays == entry], [*STAYS][entry]
        bounds = self.space.bounds(cells)
        may = (bounds.room(self.anywhere) >= 0) & bounds.may_stay(operand)
        if not may.all():
            cells = cells[may]
            bounds = self.space.bounds(cells)
        of_placements = []
        for placement, resident in self.resident.items():
            first = np.searchsorted(-np.array(resident), -bounds.room(placement.on_chip))
            first[bounds.spills(operand, placement)] = len(resident)
            of_placements.append((first, *bounds.costs(operand, placement)))
        first, cycles, energy = (np.stack(part, axis=1) for part in zip(*of_placements, strict=True))
        return _Bounded(cells, np.full(len(cells), entry), first, cycles, energy)

    def _divide(self, cells: Choices, stays: Choices, loops: Sequence[int]) -> None:
        """Divide cells by the chains of some loops; evaluate those of single chains."""
        if not loops:
            self._evaluate(cells, stays)
            return
        parts, rows = self.space.divided(cells, loops[0])
        if len(parts) == len(cells):  # nothing to tell apart
            self._divide(parts, stays, loops[1:])
            return
        for begin in range(0, len(parts), MOST_PARTS):
            some = slice(begin, begin + MOST_PARTS)
            self._take(parts[some], stays[rows[some]], loops[1:])

    def _leave(self, cells: _Bounded) -> None:
        """Keep the bounds of cells that are not divided."""
        for at, (placement, resident) in enumerate(self.resident.items()):
            for place, words in enumerate(resident):
                fits = np.flatnonzero(cells.first[:, at] <= place)
                least = fits[lower_corners(cells.cycles[fits, at], cells.energy[fits, at])]
                left = [SupportedPoint(float(cells.energy[i, at]), float(cells.cycles[i, at]), "") for i in least]
                setting = placement, float(words)
                self.floors[setting] = lower_left_hull([*self.floors.get(setting, ()), *left])

    def _are_below(self, cells: _Bounded) -> npt.NDArray[np.bool_]:
        """Return whether bounds of cells are below the front of any setting."""
        are_below = np.zeros(len(cells.cells), dtype=bool)
        for at, (placement, resident) in enumerate(self.resident.items()):
            first = cells.first[:, at]
            for place in np.unique(first[first < len(resident)]):
                front, rows = self.fronts[placement, float(resident[place])], first == place
                least = cells.energy[rows, at] * (1 + ROUNDING)
                are_below[rows] |= least < _energy_of(front, cells.cycles[rows, at])
        return are_below

    def _evaluate(self, cells: Choices, stays: Choices) -> None:
        space = self.space
        mappings, _ = space.mappings(cells, stays)
        batch = MappedBatch(Nesting.of(space.nests, mappings), space.hardware, self.figures)
        self.mapping_count += mappings.temporal.shape[0] * len(self.resident)
        self.left -= mappings.temporal.shape[0] * CELLS_OF_MAPPING
        for placement, resident in self.resident.items():
            result = batch.cost(placement)
            cycles, energy = np.asarray(result.cycles), np.asarray(result.energy_pj)
            first = np.searchsorted(-np.array(resident), -_room(result, placement, space.hardware))
            for place in np.unique(first[first < len(resident)]):
                fits = np.flatnonzero(first == place)
                least = fits[lower_corners(cycles[fits], energy[fits])]
                hull = lower_left_hull(SupportedPoint(float(energy[i]), float(cycles[i]), int(i)) for i in least)
                points = [
                    SupportedPoint(point.energy_pj, point.cycles, mapping_text(mappings, point.choice, space.hardware))
                    for point in hull
                ]
                for words in resident[place:]:
                    setting = placement, float(words)
                    self.fronts[setting] = lower_left_hull([*self.fronts[setting], *points])


def _energy_of(front: Front[str], cycles: np.ndarray) -> np.ndarray:
    """Return the energy of a front at given cycles; infinite where the front has no such point."""
    if not front:
        return np.full(cycles.shape, np.inf)
    ascending = sorted(front, key=lambda point: point.cycles)
    of_points = [point.cycles for point in ascending], [point.energy_pj for point in ascending]
    return np.asarray(np.interp(cycles, *of_points, left=np.inf))


def _most_promising(cells: _Bounded, count: int) -> tuple[Choices, Choices]:
    """Return the cells whose bounds are the least by some weights of energy and cycles, and the others."""
    everything = np.arange(len(cells.cells))
    if len(everything) <= count:
        return everything, everything[:0]
    logs = np.log(cells.energy[:, 0]), np.log(cells.cycles[:, 0])
    each = max(1, count // len(WEIGHTS))
    best = [np.argpartition(weight * logs[0] + (1 - weight) * logs[1], each)[:each] for weight in WEIGHTS]
    chosen = np.unique(np.concatenate(best))
    return chosen, np.delete(everything, chosen)


def _room(result: MappingCost, placement: Placement, hardware: Hardware) -> np.ndarray:
    """Return the words that each mapping leaves free for resident maps; below 0 if the mapping does not fit at all.

    If a result is resident, a mapping with partial sums at its level does not fit.
    """
    chip_level, fits = resident_level(hardware), result.fits
    if chip_level is None:
        return np.where(fits, np.inf, -1.0)
    if "output" in placement.on_chip:
        fits = fits & (np.asarray(result.reads[chip_level]["output"]) == 0)
    room = result.capacity_words[..., chip_level] - result.needed_words[chip_level]
    return np.where(fits, room, -1.0)


def descents(space: MappingSpace, values: Values, generator: np.random.Generator) -> Iterator[Choices]:
    """Yield the chain of each loop at the end of each descent of ``values``, which are infinite where none fits.

    A descent takes the best chain of one loop after the other, with the chains of the other loops fixed, until no loop
    improves the mapping. It proves nothing, but tells a search early what it may leave out.
    """
    begins = [np.array([_smallest(chains) for chains in space.chains])]
    drawn = np.stack([generator.integers(0, len(chains.steps), MOST_CHAINS) for chains in space.chains], axis=1)
    of_drawn = values(drawn)
    begins += [drawn[at] for at in np.argsort(of_drawn, kind="stable")[:STARTS] if of_drawn[at] < np.inf]
    for begin in begins:
        yield _descended(space, begin, values, generator)


def _smallest(chains: LoopChains) -> int:
    """Return the chain of the smallest tiles, which fits if any does."""
    inside = np.cumprod((chains.steps * chains.spatial)[:, ::-1], axis=1)[:, :-1]
    return int(np.log2(inside).sum(axis=1).argmin())


def _descended(space: MappingSpace, begin: Choices, values: Values, generator: np.random.Generator) -> Choices:
    loops = [loop for loop, chains in enumerate(space.chains) if len(chains.steps) > 1]
    chosen, least = begin.copy(), float(values(begin[None])[0])
    waiting = len(loops)
    while waiting:
        for loop in loops:
            count = len(space.chains[loop].steps)
            tried = np.arange(count) if count <= MOST_CHAINS else generator.integers(0, count, MOST_CHAINS)
            rows = np.repeat(chosen[None], len(tried), axis=0)
            rows[:, loop] = tried
            found = values(rows)
            best = int(found.argmin())
            if found[best] < least:
                chosen, least, waiting = rows[best], float(found[best]), len(loops)
            else:
                waiting -= 1
            if not waiting:
                break
    return chosen

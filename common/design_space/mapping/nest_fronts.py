"""The supported points (energy, cycles) of one nest over all of its mappings, with its operands in several places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.mapping.cell_bounds import CellBounds
from common.design_space.mapping.cost import Figures, MappedBatch, MappingCost
from common.design_space.mapping.mapping_space import Choices, MappingSpace
from common.design_space.mapping.mappings import Mappings, mapping_text
from common.design_space.mapping.placement import IN_MEMORY, Placement, resident_level
from common.design_space.mapping.traffic import Nesting
from common.design_space.results.cache import remembered
from common.design_space.results.content import text_of
from common.design_space.search.fronts import ROUNDING, Front, SupportedPoint, lower_left_hull
from common.workload.loop_nests import LoopNest

FIRST, BATCH = 256, 2048  # cells whose mappings are evaluated at once: at first few, which make the front
WEIGHTS = (0.5, 0.0, 0.2, 0.35, 0.65, 0.8, 1.0)  # of energy against cycles
_Bounds: TypeAlias = tuple[Placement, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
Setting = tuple[Placement, float]  # where the operands are, and the words of resident maps
ALONE: Setting = (IN_MEMORY, 0.0)


@dataclass(frozen=True)
class NestFronts:
    """The costs of a nest's mappings in some settings.

    Attributes:
        mapping_count: mappings whose cost was computed, once for each place of the operands.
        fronts: the supported points in each setting, with their mappings as text; none where nothing fits.
    """

    mapping_count: int
    fronts: Mapping[Setting, Front[str]]


def nest_fronts(nest: LoopNest, hardware: Hardware, settings: Collection[Setting]) -> NestFronts:
    """Return the supported points of a nest over every mapping of its space.

    Args:
        nest: the nest.
        hardware: the accelerator.
        settings: where the operands are, and the words of resident maps.

    Raises:
        NothingFitsError: no tile fits, wherever the operands are.
    """
    sizes = replace(hardware, name="", title="")  # the name of an accelerator changes no cost
    return _nest_fronts(nest, sizes, tuple(sorted(set(settings), key=text_of)))


@remembered(NestFronts, SupportedPoint, Placement)
def _nest_fronts(nest: LoopNest, hardware: Hardware, settings: tuple[Setting, ...]) -> NestFronts:
    search = _Search(MappingSpace.of(nest, hardware), settings)
    for cells in search.space.cells():
        search.visit(cells)
    if not search.has_room:
        raise NothingFitsError("hardware", "no tile of a layer fits its memories", "")
    return NestFronts(search.mapping_count, search.fronts)


class _Search:
    """The search for the supported points in all settings, cell by cell.

    Attributes:
        space: the mappings.
        fronts: the supported points so far.
        mapping_count: mappings whose cost was computed.
        has_room: whether any tile fits, wherever the operands are.
    """

    def __init__(self, space: MappingSpace, settings: Collection[Setting]) -> None:
        self.space, self.figures = space, Figures.of([space.hardware])
        self.fronts: dict[Setting, Front[str]] = dict.fromkeys(settings, ())
        self.mapping_count, self.has_room = 0, False
        self.anywhere = Placement(frozenset().union(*(placement.on_chip for placement, _ in settings)))
        by_placement: dict[Placement, set[float]] = defaultdict(set)
        for placement, resident in settings:
            by_placement[placement].add(resident)
        # Of each placement the words of resident maps, the most first: what fits beside them fits beside fewer.
        self.resident = {placement: sorted(several, reverse=True) for placement, several in by_placement.items()}

    def visit(self, cells: CellBounds) -> None:
        """Take the mappings of some cells into the fronts, but those whose bounds are above them."""
        self.has_room |= bool((cells.room(self.anywhere) >= 0).any())
        bounds = []
        for placement, resident in self.resident.items():
            first = np.searchsorted(-np.array(resident), -cells.room(placement))
            fits = first < len(resident)
            if fits.any():
                bounds.append((placement, first, *cells.costs(placement, self.figures)))
        if not bounds:
            return
        promising, count = cells.may_stay, FIRST
        while (promising := promising & self._are_below(bounds)).any():
            chosen = _most_promising(promising, *bounds[0][2:], count)
            promising[chosen] = False
            self._evaluate(cells, *chosen)
            count = BATCH

    def _are_below(self, bounds: Sequence[_Bounds]) -> npt.NDArray[np.bool_]:
        """Return whether bounds of cells are below the front of any placement."""
        are_below = np.zeros(bounds[0][2].shape, dtype=bool)
        for placement, first, cycles, energy in bounds:
            for place in np.unique(first[first < len(self.resident[placement])]):
                front = self.fronts[placement, float(self.resident[placement][place])]
                rows = first == place
                are_below[rows] |= energy[rows] * (1 + ROUNDING) < _energy_of(front, cycles[rows])
        return are_below

    def _evaluate(self, cells: CellBounds, chosen: Choices, stays: Choices) -> None:
        mappings = self.space.mappings(cells.cells[chosen], cells.innermost(chosen, stays))
        batch = MappedBatch(Nesting.of(self.space.nests, mappings), self.space.hardware, self.figures)
        self.mapping_count += mappings.temporal.shape[0] * len(self.resident)
        for placement, resident in self.resident.items():
            result = batch.cost(placement)
            first = np.searchsorted(-np.array(resident), -_room(result, placement, self.space.hardware))
            for place in np.unique(first[first < len(resident)]):
                fits = np.flatnonzero(first == place)
                points = _pareto_points(np.asarray(result.cycles)[fits], np.asarray(result.energy_pj)[fits], fits)
                self._add([(placement, float(words)) for words in resident[place:]], points, mappings)

    def _add(self, settings: Sequence[Setting], points: Sequence[SupportedPoint[int]], mappings: Mappings) -> None:
        """Add points to the fronts of settings in which their mappings fit."""
        texts = [
            SupportedPoint(point.energy_pj, point.cycles, mapping_text(mappings, point.choice, self.space.hardware))
            for point in lower_left_hull(points)
        ]
        for setting in settings:
            self.fronts[setting] = lower_left_hull([*self.fronts[setting], *texts])


def _energy_of(front: Front[str], cycles: np.ndarray) -> np.ndarray:
    """Return the energy of the points on a front that have so many cycles; without limit where there is none."""
    if not front:
        return np.full(cycles.shape, np.inf)
    ascending = sorted(front, key=lambda point: point.cycles)
    of_points = [point.cycles for point in ascending], [point.energy_pj for point in ascending]
    return np.asarray(np.interp(cycles, *of_points, left=np.inf))


def _most_promising(
    promising: npt.NDArray[np.bool_], cycles: np.ndarray, energy: np.ndarray, count: int
) -> tuple[Choices, Choices]:
    """Return the cells, and what stays in place, whose bounds are the least by some weights of energy and cycles."""
    cells, stays = np.nonzero(promising)
    if len(cells) > count:
        logs = np.log(energy[cells, stays]), np.log(cycles[cells, stays])
        each = max(1, count // len(WEIGHTS))
        best = [np.argpartition(weight * logs[0] + (1 - weight) * logs[1], each)[:each] for weight in WEIGHTS]
        chosen = np.unique(np.concatenate(best))
        cells, stays = cells[chosen], stays[chosen]
    return cells, stays


def _room(result: MappingCost, placement: Placement, hardware: Hardware) -> np.ndarray:
    """Return the room for resident maps beside each mapping, in words; below 0 where the mapping does not fit at all.

    Where a result is resident, a mapping that has partial sums there does not fit.
    """
    chip_level, fits = resident_level(hardware), result.fits
    if chip_level is None:
        return np.where(fits, np.inf, -1.0)
    if "output" in placement.on_chip:
        fits = fits & (np.asarray(result.reads[chip_level]["output"]) == 0)
    room = result.capacity_words[..., chip_level] - result.needed_words[chip_level]
    return np.where(fits, room, -1.0)


def _pareto_points(cycles: np.ndarray, energy: np.ndarray, mappings: np.ndarray) -> list[SupportedPoint[int]]:
    """Return the mappings that no other beats in both cycles and energy."""
    order = np.lexsort((energy, cycles))
    falls = np.minimum.accumulate(energy[order])
    is_corner = np.concatenate([[True], falls[1:] < falls[:-1]])
    return [SupportedPoint(float(energy[i]), float(cycles[i]), int(mappings[i])) for i in order[is_corner]]

"""The supported points (energy, cycles) of one nest over all of its mappings, with its operands in several places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.mapping.cost import Figures, MappedBatch, MappingCost
from common.design_space.mapping.mapping_space import mapping_space
from common.design_space.mapping.placement import IN_MEMORY, Placement, resident_level
from common.design_space.mapping.traffic import Nesting
from common.design_space.results.cache import remembered
from common.design_space.results.content import text_of
from common.design_space.search.fronts import Front, SupportedPoint, lower_left_hull
from common.workload.loop_nests import LoopNest

Setting = tuple[Placement, float]  # where the operands are, and the words of resident maps
ALONE: Setting = (IN_MEMORY, 0.0)


@dataclass(frozen=True)
class NestFronts:
    """The costs of a nest's mappings in some settings.

    Attributes:
        mapping_count: mappings of the space.
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
    by_placement: dict[Placement, set[float]] = defaultdict(set)
    for placement, resident in settings:
        by_placement[placement].add(resident)
    anywhere = Placement(frozenset().union(*(placement.on_chip for placement in by_placement)))
    space, figures = mapping_space(nest, hardware, anywhere), Figures.of([hardware])
    fronts: dict[Setting, Front[int]] = dict.fromkeys(settings, ())
    for start, mappings in space.batches():
        batch = MappedBatch(Nesting.of(space.nests, mappings), hardware, figures)
        for placement, several in by_placement.items():
            result = batch.cost(placement)
            most = np.array(sorted(several, reverse=True))
            # The first of the settings, the fullest before, in which a mapping fits; it fits in all after that too.
            first = np.searchsorted(-most, -_room(result, placement, hardware))
            for place in np.unique(first[first < len(most)]):
                fits = np.flatnonzero(first == place)
                points = _pareto_points(
                    np.asarray(result.cycles)[fits], np.asarray(result.energy_pj)[fits], start + fits
                )
                setting = placement, float(most[place])
                fronts[setting] = lower_left_hull([*fronts[setting], *points])
    for placement, several in by_placement.items():
        for fuller, emptier in pairwise(sorted(several, reverse=True)):
            fronts[placement, emptier] = lower_left_hull([*fronts[placement, fuller], *fronts[placement, emptier]])
    texts = {index: space.text(index) for index in {point.choice for front in fronts.values() for point in front}}
    return NestFronts(len(space), {setting: _with_texts(front, texts) for setting, front in fronts.items()})


def _with_texts(front: Front[int], texts: Mapping[int, str]) -> Front[str]:
    return tuple(SupportedPoint(point.energy_pj, point.cycles, texts[point.choice]) for point in front)


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

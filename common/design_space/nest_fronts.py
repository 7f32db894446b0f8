"""The corners of (energy, cycles) of one nest over all of its mappings, with its operands in several places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from common.design_space.cost import TIMELOOP, Accounting, Figures, MappedBatch, MappingCost
from common.design_space.fronts import Corner, Front, lower_left_hull
from common.design_space.hardware import Hardware
from common.design_space.mapping_space import MappingSpace, mapping_space
from common.design_space.placement import IN_MEMORY, Placement, rest_level
from common.design_space.traffic import Nesting
from common.workload.loop_nests import LoopNest

Setting = tuple[Placement, float]  # where the operands are, and the words that maps take that rest on the chip
ALONE: Setting = (IN_MEMORY, 0.0)


@dataclass(frozen=True)
class NestFronts:
    """The corners of a nest in some settings, by index of their mappings; a setting in which nothing fits has none."""

    space: MappingSpace
    fronts: Mapping[Setting, Front[int]]


def nest_fronts(
    nest: LoopNest, hardware: Hardware, settings: Collection[Setting], accounting: Accounting = TIMELOOP
) -> NestFronts:
    """Return the corners of a nest over every mapping of its space.

    Args:
        nest: the nest.
        hardware: the accelerator.
        settings: where the operands are, and what is left of the memory in which maps rest.
        accounting: what is counted.

    Raises:
        NothingFitsError: no tile fits, wherever the operands are.
    """
    by_placement: dict[Placement, set[float]] = defaultdict(set)
    for placement, resting in settings:
        by_placement[placement].add(resting)
    anywhere = Placement(frozenset().union(*(placement.on_chip for placement in by_placement)))
    space, figures = mapping_space(nest, hardware, anywhere), Figures.of([hardware])
    fronts: dict[Setting, Front[int]] = dict.fromkeys(settings, ())
    for start, mappings in space.batches():
        batch = MappedBatch(Nesting.of(space.nests, mappings), hardware, figures, accounting)
        for placement, several in by_placement.items():
            result = batch.cost(placement)
            most = np.array(sorted(several, reverse=True))
            # The first of the settings, the fullest before, in which a mapping fits; it fits in all after that too.
            first = np.searchsorted(-most, -_room(result, placement, hardware))
            for place in np.unique(first[first < len(most)]):
                fits = np.flatnonzero(first == place)
                corners = _corners(result.cycles[fits], result.energy_pj[fits], start + fits)
                setting = placement, float(most[place])
                fronts[setting] = lower_left_hull([*fronts[setting], *corners])
    for placement, several in by_placement.items():
        for fuller, emptier in pairwise(sorted(several, reverse=True)):
            fronts[placement, emptier] = lower_left_hull([*fronts[placement, fuller], *fronts[placement, emptier]])
    return NestFronts(space, fronts)


def _room(result: MappingCost, placement: Placement, hardware: Hardware) -> np.ndarray:
    """Return the words that may rest on the chip beside each mapping; below 0 for those that do not fit at all.

    Where a result rests, a mapping that has partial sums there does not fit.
    """
    rest, fits = rest_level(hardware), result.fits
    if rest is None:
        return np.where(fits, np.inf, -1.0)
    if "output" in placement.on_chip:
        fits = fits & (result.reads[rest]["output"] == 0)
    room = result.capacity_words[..., rest] - result.needed_words[rest]
    return np.where(fits, room, -1.0)


def _corners(cycles: np.ndarray, energy: np.ndarray, mappings: np.ndarray) -> list[Corner[int]]:
    """Return the mappings that no other beats in both cycles and energy."""
    order = np.lexsort((energy, cycles))
    falls = np.minimum.accumulate(energy[order])
    is_corner = np.concatenate([[True], falls[1:] < falls[:-1]])
    return [Corner(float(energy[i]), float(cycles[i]), int(mappings[i])) for i in order[is_corner]]

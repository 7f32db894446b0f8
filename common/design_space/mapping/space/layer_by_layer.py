"""The best mapping of each layer of a network, searched under one limit of cells, and bounds without any search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from math import prod

import numpy as np

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.mapping.space.cell_bounds import CellBounds
from common.design_space.mapping.space.loop_chains import LoopChains, places_in_space
from common.design_space.mapping.space.nest_fronts import (
    ALONE,
    FEW_CELLS,
    MOST_CELLS,
    NestFronts,
    Setting,
    nest_fronts,
)
from common.design_space.search.fronts import SupportedPoint, lower_left_hull, sum_of_fronts
from common.workload.loop_nests import LOOPS, LoopNest

MOST_CELLS_OF_MODEL = 10_000_000.0  # that are bounded for all nests of a model; only nests of row tiles get none beyond
SHARE = 8  # of the cells that are left, one nest takes at most one in so many


class NestSearches:
    """The nests that were searched so far, each on the accelerator and in the settings that were asked for."""

    def __init__(self) -> None:
        self.left = MOST_CELLS_OF_MODEL  # cells that may still be bounded; below 0 where more were
        self.mapping_count = 0  # mappings whose cost was computed, once for each place of the operands
        self._known: dict[tuple[Hardware, LoopNest], NestFronts] = {}

    def fronts(self, nest: LoopNest, hardware: Hardware, settings: Collection[Setting]) -> NestFronts:
        """Return the supported points of a nest, at least in the given settings; NothingFitsError if no tile fits."""
        known = self._known.get((hardware, nest), NestFronts(0, 0.0, {}))
        if missing := [setting for setting in settings if setting not in known.fronts]:
            found = nest_fronts(nest, hardware, missing, min(MOST_CELLS, max(self.left / SHARE, FEW_CELLS)))
            self.left -= found.cell_count
            self.mapping_count += found.mapping_count
            known = NestFronts(
                known.mapping_count + found.mapping_count,
                known.cell_count + found.cell_count,
                {**known.fronts, **found.fronts},
                {**known.floors, **found.floors},
            )
            self._known[hardware, nest] = known
        return known


def unsearched(nest: LoopNest, hardware: Hardware, settings: Collection[Setting]) -> NestFronts:
    """Return what no mapping of a nest is below, without a search: each word moves once, and all copies share it."""
    cells = np.zeros((1, len(LOOPS)), dtype=np.int64)
    floors: dict[Setting, list[SupportedPoint[str]]] = {setting: [] for setting in settings}
    for variant in hardware.variants():
        places = places_in_space(variant)
        chains = [_fewest_steps(extent, loop, variant) for loop, extent in enumerate(nest.bounds.values())]
        bounds = CellBounds(nest, variant, chains, places, cells)
        for (placement, _), points in floors.items():
            cycles, energy = bounds.costs("", placement)
            points.append(SupportedPoint(float(energy[0]), float(cycles[0]), ""))
    hulls = {setting: lower_left_hull(points) for setting, points in floors.items()}
    return NestFronts(0, 0.0, dict.fromkeys(settings, ()), hulls)


def _fewest_steps(extent: int, loop: int, hardware: Hardware) -> LoopChains:
    """Return a chain of a loop with the most copies everywhere and the steps that are left at the innermost level."""
    places = places_in_space(hardware)
    copies = [min(place.rooms[loop], extent) for place in places]
    steps = np.ones((1, len(hardware.levels)), dtype=np.int64)
    steps[0, -1] = -(-extent // prod(copies))
    levels = tuple(place.level for place in places)
    return LoopChains(extent, steps, np.array([copies], dtype=np.int64), np.array([0, 1]), levels)


def exact(
    nests: Mapping[str, LoopNest],
    hardware: Hardware,
    runs: Mapping[str, int] | None = None,
    searches: NestSearches | None = None,
) -> SupportedPoint[dict[str, SupportedPoint[str]]]:
    """Return the best mapping of each layer by name, for the least product of all energy and all cycles.

    The costs are those of one inference, those of a layer of one run.

    Every mapping of each layer's space is evaluated. The least product of two sums takes a supported point of each
    layer, as :mod:`common.design_space.search.fronts` proves. So no mapping of the space is better.

    NothingFitsError if no tile of a layer fits.

    Args:
        runs: how often each layer runs in one inference; once where it is not named.
        searches: earlier searches, whose results are reused; new ones if None.
    """
    repeats, searches = repeats_of(nests, runs), searches or NestSearches()
    fronts = {nest: searches.fronts(nest, hardware, [ALONE]) for nest in repeats}
    if not all(front.fronts[ALONE] for front in fronts.values()):
        raise NothingFitsError("hardware", "no tile of a layer fits its memories", "")
    points = sum_of_fronts({nest: (front.fronts[ALONE], repeats[nest]) for nest, front in fronts.items()})
    layers, times = {name: points[nest] for name, nest in nests.items()}, {**dict.fromkeys(nests, 1), **(runs or {})}
    energy_pj = sum(times[name] * point.energy_pj for name, point in layers.items())
    return SupportedPoint(energy_pj, sum(times[name] * point.cycles for name, point in layers.items()), layers)


def repeats_of(nests: Mapping[str, LoopNest], runs: Mapping[str, int] | None = None) -> Counter[LoopNest]:
    """Return how often each distinct layer runs in one inference."""
    repeats = Counter[LoopNest]()
    for name, nest in nests.items():
        repeats[nest] += (runs or {}).get(name, 1)
    return repeats

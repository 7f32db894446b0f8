"""The mapping of one contraction as choices: a tile, its copies in space, and the innermost loop at DRAM."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.mapping.cost import TIMELOOP, Accounting, cost
from common.design_space.mapping.mapping_space import ORDERS, copies_in_space, divisors, spatial_loops, tiled_mappings
from common.design_space.mapping.mappings import Mappings, mapping_text
from common.design_space.mapping.placement import IN_MEMORY, Placement
from common.design_space.mapping.traffic import Nests
from common.design_space.search.problem import Choices, Costs
from common.workload.loop_nests import LOOPS, LoopNest


@dataclass(frozen=True)
class MappingChoices:
    """The mappings of a contraction whose tiles divide its loops.

    The first choices are the extents of the tile, then come copies in space, and last the innermost loop at DRAM,
    which decides all orders (:mod:`common.design_space.mapping.mapping_space`). A factor in space that does not
    divide its tile becomes the largest one below that does.

    Attributes:
        placement: where the operands are, and what moves beside the nest.
    """

    nest: LoopNest
    hardware: Hardware
    accounting: Accounting = TIMELOOP
    placement: Placement = IN_MEMORY

    @cached_property
    def tile_sizes(self) -> dict[int, np.ndarray]:
        """Extents of a tile along each loop that has more than one."""
        return {loop: divisors(extent) for loop, extent in enumerate(self.nest.bounds.values()) if extent > 1}

    @cached_property
    def spatial_factors(self) -> list[np.ndarray]:
        """Copies of each loop that may be laid out in space."""
        extents = [*self.nest.bounds.values()]
        sizes = [(divisors(extents[loop]), room) for _, loop, room in spatial_loops(self.hardware)]
        return [factors[factors <= room] for factors, room in sizes]

    @cached_property
    def nests(self) -> Nests:
        return Nests.of([self.nest])

    @cached_property
    def choice_sizes(self) -> tuple[int, ...]:
        return (*map(len, self.tile_sizes.values()), *map(len, self.spatial_factors), max(1, len(self.tile_sizes)))

    @property
    def first_choice_count(self) -> int:
        """The tile and its copies are chosen before the order."""
        return len(self.choice_sizes) - 1

    def mappings(self, choices: Choices) -> Mappings:
        tiles = np.ones((len(choices), len(LOOPS)))
        for place, (loop, extents) in enumerate(self.tile_sizes.items()):
            tiles[:, loop] = extents[choices[:, place]]
        first = len(self.tile_sizes)
        chosen = [factors[choices[:, first + place]] for place, factors in enumerate(self.spatial_factors)]
        most = np.stack(chosen, axis=-1) if chosen else None
        spatial = copies_in_space(tiles, self.hardware, most)
        inner = np.array([*self.tile_sizes] or [0])[choices[:, -1]]
        return tiled_mappings(self.nests, self.hardware, tiles / spatial.prod(axis=1), spatial, ORDERS[inner])

    def evaluate(self, choices: Choices) -> tuple[Costs, Costs]:
        """Return cycles and energy in pJ of each mapping of a batch; infinite where its tiles do not fit."""
        result = cost(
            self.mappings(choices), self.nests, self.hardware, accounting=self.accounting, placement=self.placement
        )
        fits = result.fits
        return np.where(fits, result.cycles, np.inf), np.where(fits, result.energy_pj, np.inf)

    def schedule(self, choices: Choices) -> str:
        return mapping_text(self.mappings(choices[None]), 0, self.hardware)

"""The mapping of one contraction as choices: a tile at each level, copies in space, bypasses, and orders of loops.

Gradient search relaxes these choices. Each loop has a share for each of its *places* (steps at each level, copies in
space), and each order has a weight. The shares are a softmax, and divide the logarithm of the loop's extent. They are
rounded to the nearest tiles and copies. The cost is that of the rounded mapping, with the derivatives of the shares
(straight through). Each loop that steps at DRAM is tried as the innermost, and a Gumbel softmax weights the costs
(Jang, Gu, Poole, "Categorical Reparameterization with Gumbel-Softmax", ICLR 2017).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.groups.axis_tiles import tile_sizes
from common.design_space.mapping.arrays import torch_module, torch_namespace
from common.design_space.mapping.cost import MappingCost, cost
from common.design_space.mapping.dataflow import may_step, respects
from common.design_space.mapping.mappings import Mappings, mapping_text
from common.design_space.mapping.placement import IN_MEMORY, Placement
from common.design_space.mapping.space.loop_chains import (
    Counts,
    FanoutPlace,
    levels_with_loops,
    needs_every_size,
    places_in_space,
)
from common.design_space.mapping.space.mapping_space import order_of_level
from common.design_space.mapping.traffic import Nests
from common.design_space.search.problem import Choices, Costs
from common.workload.loop_nests import LOOPS, LoopNest

if TYPE_CHECKING:
    from torch import Generator as TorchGenerator
    from torch import Tensor

SPREAD = 4.0  # standard deviation of the first logits: most loops run in one place, and restarts differ
OVERFLOW_WEIGHT = 0.5  # in the loss, of the logarithm by which tiles are too large
FAR = 2.0  # factor by which a move changes a size or a number of copies; other moves take the next one


class TileChoice(NamedTuple):
    """A choice of the extent of a level's tile along a loop."""

    loop: int
    level: int
    sizes: Counts


class CopiesChoice(NamedTuple):
    """A choice of the copies of a loop at a fan-out, from one to ``most``; ``number`` is the fan-out's."""

    loop: int
    number: int
    place: FanoutPlace
    most: int


@dataclass(frozen=True)
class MappingProblem:
    """The mappings of a contraction.

    The first choices are the extents of the tiles, then come copies in space, then the operands that bypass levels, and
    last the innermost loop of each level, which decides all orders
    (:mod:`common.design_space.mapping.space.mapping_space`). Copies for which the axis of the array has no room beside
    the loops before are not laid out. A tile is at most as large as that of the level outside, and larger than chosen
    where copies or the tile inside do not divide it.
    """

    nest: LoopNest
    hardware: Hardware
    placement: Placement = IN_MEMORY

    @cached_property
    def extents(self) -> list[int]:
        return [*self.nest.bounds.values()]

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The levels that have loops of their own."""
        return levels_with_loops(self.hardware)

    @cached_property
    def ordered(self) -> tuple[int, ...]:
        """The levels whose order is chosen; it is known where one operand alone, and not the input, stays inside."""
        *outer, last = self.levels
        inside = frozenset[str]().union(*(level.keeps for level in self.hardware.levels[last + 1 :]))
        return tuple(outer) if outer and (len(inside) < 2 and "input" not in inside) else self.levels

    @cached_property
    def tiles(self) -> list[TileChoice]:
        """The choices of tiles: those of each loop from the outermost level inwards, of rising sizes."""
        return [
            TileChoice(loop, level, np.array(range(1, extent + 1) if is_uneven else tile_sizes(extent)[::-1]))
            for loop, extent in enumerate(self.extents)
            for is_uneven in [needs_every_size(self.nest, self.hardware, loop)]
            for level in self.levels[1:]
            if extent > 1 and may_step(self.hardware.levels[level])[loop]
        ]

    @cached_property
    def copies(self) -> list[CopiesChoice]:
        return [CopiesChoice(loop, number, place, most)
                for loop, extent in enumerate(self.extents)
                for number, place in enumerate(places_in_space(self.hardware))
                if (most := min(place.rooms[loop], extent)) > 1]  # fmt: skip

    @cached_property
    def variants(self) -> list[Hardware]:
        """The hierarchy with each choice of bypasses: the first one needs the least room, the last one has none."""
        return [*self.hardware.variants()]

    @cached_property
    def loops(self) -> Counts:
        """The loops of more than one iteration, or else any."""
        return np.flatnonzero(np.array(self.extents) > 1) if max(self.extents) > 1 else np.zeros(1, dtype=np.int64)

    @cached_property
    def nests(self) -> Nests:
        return Nests.of([self.nest])

    @cached_property
    def choice_sizes(self) -> tuple[int, ...]:
        sizes = [*(len(tile.sizes) for tile in self.tiles), *(copies.most for copies in self.copies)]
        return (*sizes, len(self.variants), *[len(self.loops)] * len(self.ordered))

    @property
    def first_choice_count(self) -> int:
        """Tiles, copies and bypasses are chosen before the orders."""
        return len(self.choice_sizes) - len(self.ordered)

    def mappings(self, choices: Choices) -> Mappings:
        shape = len(choices), len(self.hardware.levels), len(LOOPS)
        spatial, temporal = self._spatial(choices), np.ones(shape)
        sizes = {(tile.loop, tile.level): tile.sizes[choices[:, at]] for at, tile in enumerate(self.tiles)}
        for loop, extent in enumerate(self.extents):
            largest, most = dict[int, np.ndarray](), np.full(len(choices), extent)
            for level in self.levels[1:]:
                most = largest[level] = np.minimum(most, sizes.get((loop, level), most))
            inside, outside = np.ones(len(choices)), len(self.hardware.levels)
            for level in self.levels[:0:-1]:
                inside *= spatial[:, level:outside, loop].prod(axis=1)
                outside = level
                if (loop, level) in sizes:
                    temporal[:, level, loop] = np.ceil(largest[level] / inside)
                    inside *= temporal[:, level, loop]
            temporal[:, 0, loop] = np.ceil(extent / (inside * spatial[:, :outside, loop].prod(axis=1)))
        return Mappings(temporal, spatial, self._order(choices))

    def _spatial(self, choices: Choices) -> np.ndarray:
        spatial = np.ones((len(choices), len(self.hardware.levels), len(LOOPS)))
        used = dict[int, np.ndarray]()
        for at, (loop, number, place, _) in enumerate(self.copies, start=len(self.tiles)):
            before = used.get(number, np.ones(len(choices)))
            copies = np.minimum(choices[:, at] + 1, np.floor(place.size / before))
            used[number] = before * copies
            spatial[..., place.level, loop] *= copies
        return spatial

    def _order(self, choices: Choices) -> np.ndarray:
        inner = self.loops[choices[:, self.first_choice_count :]]
        order = np.empty((len(choices), len(self.hardware.levels), len(LOOPS)), dtype=np.int64)
        for index, level in enumerate(self.hardware.levels):
            inside = frozenset[str]().union(*(other.keeps for other in self.hardware.levels[index + 1 :]))
            order[:, index] = order_of_level(level, inside)[0]
        for at, index in enumerate(self.ordered):
            order[:, index] = order_of_level(self.hardware.levels[index])[inner[:, at]]
        return order

    def evaluate(self, choices: Choices) -> tuple[Costs, Costs]:
        """Return cycles and energy in pJ of each mapping of a batch; infinite where its tiles do not fit."""
        mappings = self.mappings(choices)
        cycles, energy = np.full((2, len(choices)), np.inf)
        bypasses = choices[:, self.first_choice_count - 1]
        for number in np.unique(bypasses):
            rows, variant = np.flatnonzero(bypasses == number), self.variants[number]
            some = Mappings(mappings.temporal[rows], mappings.spatial[rows], mappings.order[rows])
            result = cost(some, self.nests, variant, placement=self.placement)
            fits = result.fits & respects(some, variant)
            cycles[rows], energy[rows] = np.where(fits, (result.cycles, result.energy_pj), np.inf)
        return cycles, energy

    def schedule(self, choices: Choices) -> str:
        return mapping_text(self.mappings(choices[None]), 0, self.variants[choices[self.first_choice_count - 1]])

    def inner_loops(self, choices: Choices, at: int) -> Counts:
        """Return the different choices of the innermost loop of a level: the loops that step there."""
        steps = self.mappings(choices[None]).temporal[0, self.ordered[at], self.loops]
        stepping = np.flatnonzero(steps > 1)
        return stepping if len(stepping) else np.zeros(1, dtype=np.int64)

    def moves(self, choices: Choices) -> Choices:
        """Return the schedules that differ in one tile, in one number of copies, in the bypasses, or in one order.

        The other size or number is the next smaller or larger one, or the one that is nearest to half or to double.
        """
        values = [*(tile.sizes for tile in self.tiles), *(np.arange(1, copies.most + 1) for copies in self.copies)]
        others = [[*_others(of_choice, int(choices[at]))] for at, of_choice in enumerate(values)]
        others.append([*range(len(self.variants))])
        others += [self.inner_loops(choices, at).tolist() for at in range(len(self.ordered))]
        moved = [(*choices[:at], other, *choices[at + 1 :])
                 for at, of_choice in enumerate(others) for other in of_choice if other != choices[at]]  # fmt: skip
        return np.array(moved, dtype=np.int64).reshape(-1, len(choices))

    def descent(self, restarts: int, generator: TorchGenerator) -> MappingDescent:
        """Return parameters that PyTorch's generator draws."""
        torch = torch_module()
        size = (restarts, len(LOOPS), len(self.levels) + len(self.copies))
        shares = SPREAD * torch.randn(size, generator=generator, dtype=torch.float64)
        orders = torch.zeros((restarts, len(self.loops)), dtype=torch.float64)
        return MappingDescent(self, shares.requires_grad_(), orders.requires_grad_(), generator)


def _others(values: np.ndarray, at: int) -> Iterator[int]:
    """Yield the indices of values beside one of them: the next ones, and the nearest to half of it and to double."""
    nearest = (int(np.argmin(np.abs(np.log(values / (values[at] * factor))))) for factor in (1 / FAR, FAR))
    yield from sorted({max(0, at - 1), min(at + 1, len(values) - 1), *nearest} - {at})


@dataclass(frozen=True)
class MappingDescent:
    """The parameters of some restarts. No operand bypasses a level, and all levels have the same innermost loop."""

    problem: MappingProblem
    shares: Tensor  # logits by restart, loop and place: the levels with loops, then the choices of copies
    orders: Tensor  # logits by restart and innermost loop
    generator: TorchGenerator  # PyTorch's, for the Gumbel noise

    @property
    def parameters(self) -> list[Tensor]:
        return [self.shares, self.orders]

    def step(self, temperature: float) -> tuple[Choices, list[int], Tensor]:
        """Return the rounded mappings with each innermost loop, the restart of each, and a loss with a gradient."""
        torch, problem = torch_module(), self.problem
        logs = self._logs(temperature)
        rows = [(restart, [*chosen, *[inner] * len(problem.ordered)])
                for restart, chosen in enumerate(map(self._rounded, logs.detach().numpy()))
                for inner in problem.inner_loops(np.array([*chosen, *[0] * len(problem.ordered)]), 0)]  # fmt: skip
        restarts, choices = [restart for restart, _ in rows], np.array([row for _, row in rows])
        result = self._cost(choices, torch.exp(logs - logs.detach())[restarts])
        weights = self._weights(restarts, choices[:, -1], temperature)
        sums = [weights @ part for part in (result.energy_pj, result.cycles, self._overflow(result))]
        loss = torch.log(sums[0]) + torch.log(sums[1]) + OVERFLOW_WEIGHT * sums[2]
        return choices, restarts, loss.sum()

    @cached_property
    def _allowed(self) -> np.ndarray:
        """Whether a loop may run at a place, by loop and place."""
        problem = self.problem
        stepping = [(tile.loop, tile.level) for tile in problem.tiles]
        return np.array([
            [not at or (loop, level) in stepping for at, level in enumerate(problem.levels)]
            + [copies.loop == loop for copies in problem.copies]
            for loop in range(len(LOOPS))
        ])  # fmt: skip

    def _logs(self, temperature: float) -> Tensor:
        """Return the logarithm of each factor, by restart, loop and place."""
        torch = torch_module()
        shares = torch.where(torch.tensor(self._allowed), self.shares / temperature, -torch.inf)
        return torch.softmax(shares, dim=-1) * torch.log(torch.tensor(self.problem.nests.extents[0]))[:, None]

    def _rounded(self, logs: np.ndarray) -> list[int]:
        """Return the choices without the innermost loops that are nearest to real factors, by loop and place."""
        problem = self.problem
        level_of = [*problem.levels, *(copies.place.level for copies in problem.copies)]
        wanted = [logs[tile.loop, np.array(level_of) >= tile.level].sum() for tile in problem.tiles]
        sizes = [
            int(np.argmin(np.abs(np.log(tile.sizes) - log))) for tile, log in zip(problem.tiles, wanted, strict=True)
        ]
        copies = [
            min(round(float(np.exp(logs[choice.loop, place]))), choice.most) - 1
            for place, choice in enumerate(problem.copies, start=len(problem.levels))
        ]
        return [*sizes, *copies, len(problem.variants) - 1]

    def _cost(self, choices: Choices, growth: Tensor) -> MappingCost:
        xp, problem = torch_namespace(), self.problem
        mappings = problem.mappings(choices)
        temporal, spatial, order = map(xp.asarray, (mappings.temporal, mappings.spatial, mappings.order))
        torch = torch_module()
        ones = torch.ones_like(growth[..., 0])
        steps, copies = [ones] * len(problem.hardware.levels), [ones] * len(problem.hardware.levels)
        for place, level in enumerate(problem.levels):
            steps[level] = growth[..., place]
        for place, choice in enumerate(problem.copies, start=len(problem.levels)):
            copies[choice.place.level] = copies[choice.place.level] * growth[..., place]
        grown = Mappings(temporal * torch.stack(steps, 1), spatial * torch.stack(copies, 1), order)
        nests = Nests.of([problem.nest], xp)
        return cost(grown, nests, problem.variants[-1], xp=xp, placement=problem.placement)

    def _overflow(self, result: MappingCost) -> Tensor:
        """Return the logarithms by which tiles are larger than their memories."""
        torch, levels = torch_module(), self.problem.hardware.levels
        sizes = zip(result.needed_words, (level.capacity_words for level in levels), strict=True)
        return sum(torch.log(words / room).clamp(min=0) for words, room in sizes if isfinite(room))

    def _weights(self, restarts: Sequence[int], inner: np.ndarray, temperature: float) -> Tensor:
        """Return the weight of each mapping, by restart and mapping: a Gumbel softmax over the restart's."""
        torch = torch_module()
        noise = -torch.log(torch.empty_like(self.orders).exponential_(generator=self.generator))
        logits = (self.orders + noise)[restarts, inner] / temperature
        is_own = torch.tensor(restarts) == torch.arange(len(self.orders))[:, None]
        return torch.softmax(torch.where(is_own, logits, -torch.inf), dim=-1)

"""The mapping of one contraction as choices: a tile, its copies in space, and the innermost loop at DRAM.

The relaxation has a share of each loop for each of its *places* (steps at DRAM, steps inside the tile, copies in
space), and a weight for each order. The shares are a softmax, and divide the logarithm of the loop's extent. They are
rounded to the nearest split of the loop. The cost is that of the rounded mapping, with the derivatives of the shares
(straight through). Each loop that steps at DRAM is tried as the innermost, and a Gumbel softmax weights the costs
(Jang, Gu, Poole, "Categorical Reparameterization with Gumbel-Softmax", ICLR 2017).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.groups.axis_tiles import tile_sizes
from common.design_space.mapping.arrays import torch_module, torch_namespace
from common.design_space.mapping.cost import MappingCost, cost
from common.design_space.mapping.dataflow import respects
from common.design_space.mapping.mappings import Mappings, mapping_text
from common.design_space.mapping.placement import IN_MEMORY, Placement
from common.design_space.mapping.space.loop_chains import Counts, FanoutPlace, is_uneven, places_in_space
from common.design_space.mapping.space.mapping_space import ORDERS, tile_level, tiled_mappings
from common.design_space.mapping.traffic import Nests
from common.design_space.search.problem import Choices, Costs
from common.workload.loop_nests import LOOPS, LoopNest

if TYPE_CHECKING:
    from torch import Generator as TorchGenerator
    from torch import Tensor

DRAM, TILE, SPACE = 0, 1, 2  # places of a loop; from the third on, copies below a level
SPREAD = 4.0  # standard deviation of the first logits: most loops run in one place, and restarts differ
OVERFLOW_WEIGHT = 0.5  # in the loss, of the logarithm by which tiles are too large
FAR = 2.0  # factor by which a move changes a size or a number of copies; other moves take the next one


@dataclass(frozen=True)
class Splits:
    """The ways to divide one loop.

    Attributes:
        size: index of the tile's size, by split.
        copies: choice of the copies at each place in space, by split and place; 0 at those of other loops.
        factors: steps at DRAM, steps inside a tile, and copies at each place in space, by split.
    """

    size: Counts
    copies: Counts
    factors: Counts

    @cached_property
    def logs(self) -> np.ndarray:
        return np.asarray(np.log(self.factors))


@dataclass(frozen=True)
class MappingProblem:
    """The mappings of a contraction.

    The first choices are the extents of the tile, then come copies in space, and last the innermost loop at DRAM,
    which decides all orders (:mod:`common.design_space.mapping.space.mapping_space`). Copies for which the axis of the
    array has no room beside the loops before are not laid out. A tile that its copies do not divide becomes larger.

    Attributes:
        placement: where the operands are, and what moves beside the nest.
    """

    nest: LoopNest
    hardware: Hardware
    placement: Placement = IN_MEMORY

    @cached_property
    def extents(self) -> list[int]:
        return [*self.nest.bounds.values()]

    @cached_property
    def tile_sizes(self) -> dict[int, Counts]:
        """Extents of a tile along each loop that has more than one."""
        return {
            loop: np.array(range(1, extent + 1) if is_uneven(self.nest, loop) else tile_sizes(extent)[::-1])
            for loop, extent in enumerate(self.extents)
            if extent > 1
        }

    @cached_property
    def places(self) -> tuple[FanoutPlace, ...]:
        return places_in_space(self.hardware)

    @cached_property
    def space(self) -> list[tuple[int, int, int]]:
        """FanoutPlace, loop and room of each choice of copies."""
        return [(at, loop, place.rooms[loop])
                for loop in range(len(LOOPS))
                for at, place in enumerate(self.places) if place.rooms[loop] > 1]  # fmt: skip

    @cached_property
    def most_copies(self) -> list[int]:
        return [min(room, self.extents[loop]) for _, loop, room in self.space]

    @cached_property
    def nests(self) -> Nests:
        return Nests.of([self.nest])

    @cached_property
    def choice_sizes(self) -> tuple[int, ...]:
        return (*map(len, self.tile_sizes.values()), *self.most_copies, max(1, len(self.tile_sizes)))

    @property
    def first_choice_count(self) -> int:
        """The tile and its copies are chosen before the order."""
        return len(self.choice_sizes) - 1

    def mappings(self, choices: Choices) -> Mappings:
        tiles = np.ones((len(choices), len(LOOPS)))
        for place, (loop, extents) in enumerate(self.tile_sizes.items()):
            tiles[:, loop] = extents[choices[:, place]]
        inner, spatial = tiles.copy(), np.ones((len(choices), len(self.hardware.levels), len(LOOPS)))
        used = np.ones((len(choices), len(self.places)))
        for choice, (at, loop, _) in enumerate(self.space, start=len(self.tile_sizes)):
            fanout = self.places[at]
            copies = np.minimum(choices[:, choice] + 1, np.floor(fanout.size / used[:, at]))
            used[:, at] *= copies
            spatial[..., fanout.level, loop] *= copies
            inner[:, loop] = np.ceil(inner[:, loop] / copies)
        last = np.array([*self.tile_sizes] or [0])[choices[:, -1]]
        return tiled_mappings(self.nests, self.hardware, inner, spatial, ORDERS[last])

    def evaluate(self, choices: Choices) -> tuple[Costs, Costs]:
        """Return cycles and energy in pJ of each mapping of a batch; infinite where its tiles do not fit."""
        mappings = self.mappings(choices)
        result = cost(mappings, self.nests, self.hardware, placement=self.placement)
        fits = result.fits & respects(mappings, self.hardware)
        return np.where(fits, result.cycles, np.inf), np.where(fits, result.energy_pj, np.inf)

    def schedule(self, choices: Choices) -> str:
        return mapping_text(self.mappings(choices[None]), 0, self.hardware)

    @cached_property
    def splits(self) -> list[Splits]:
        """The ways to divide each loop."""
        return [self._splits(loop) for loop in range(len(LOOPS))]

    def _splits(self, loop: int) -> Splits:
        sizes = self.tile_sizes.get(loop, np.ones(1, dtype=np.int64))
        own = [range(most) if loop == laid_out else range(1)
               for (_, laid_out, _), most in zip(self.space, self.most_copies, strict=True)]  # fmt: skip
        rows = np.array([*product(range(len(sizes)), *own)])
        copies = rows[:, 1:] + 1
        inner = -(-sizes[rows[:, 0]] // copies.prod(axis=1))
        outer = -(-self.extents[loop] // (inner * copies.prod(axis=1)))
        return Splits(rows[:, 0], rows[:, 1:], np.column_stack([outer, inner, copies]))

    def choices(self, splits: Sequence[int]) -> list[int]:
        """Return the problem's choices without the innermost loop, for a split of each loop."""
        sizes = [self.splits[loop].size[splits[loop]] for loop in self.tile_sizes]
        copies = [self.splits[loop].copies[splits[loop], place] for place, (_, loop, _) in enumerate(self.space)]
        return [int(choice) for choice in (*sizes, *copies)]

    def inner_loops(self, choices: Sequence[int]) -> list[int]:
        """Return the different last choices: the loops that step at DRAM."""
        stepping = [at for at, sizes in enumerate(self.tile_sizes.values()) if choices[at] + 1 < len(sizes)]
        return stepping or [0]

    def moves(self, choices: Choices) -> Choices:
        """Return the schedules that differ in one tile, in one number of copies, or in the innermost loop.

        The other one is the next smaller or larger value, or the one that is nearest to half or to double.
        """
        values = [*self.tile_sizes.values(), *(np.arange(1, most + 1) for most in self.most_copies)]
        moved = [(*choices[:at], other, *choices[at + 1 :])
                 for at, of_choice in enumerate(values) for other in _others(of_choice, int(choices[at]))]  # fmt: skip
        moved += [(*choices[:-1], inner) for inner in self.inner_loops(choices.tolist()) if inner != choices[-1]]
        return np.array(moved, dtype=np.int64).reshape(-1, len(choices))

    def descent(self, restarts: int, generator: TorchGenerator) -> MappingDescent:
        """Return parameters that PyTorch's generator draws."""
        torch = torch_module()
        size = (restarts, len(LOOPS), SPACE + len(self.space))
        shares = SPREAD * torch.randn(size, generator=generator, dtype=torch.float64)
        orders = torch.zeros((restarts, self.choice_sizes[-1]), dtype=torch.float64)
        return MappingDescent(self, shares.requires_grad_(), orders.requires_grad_(), generator)


def _others(values: np.ndarray, at: int) -> Iterator[int]:
    """Yield the indices of values beside one of them: the next ones, and the nearest to half of it and to double."""
    nearest = (int(np.argmin(np.abs(np.log(values / (values[at] * factor))))) for factor in (1 / FAR, FAR))
    yield from sorted({max(0, at - 1), min(at + 1, len(values) - 1), *nearest} - {at})


@dataclass(frozen=True)
class MappingDescent:
    """The parameters of some restarts.

    Attributes:
        shares: logits by restart, loop and place.
        orders: logits by restart and innermost loop.
        generator: PyTorch's, for the Gumbel noise.
    """

    problem: MappingProblem
    shares: Tensor
    orders: Tensor
    generator: TorchGenerator

    @property
    def parameters(self) -> list[Tensor]:
        return [self.shares, self.orders]

    def step(self, temperature: float) -> tuple[Choices, list[int], Tensor]:
        """Return the rounded mappings with each innermost loop, the restart of each, and a loss with a gradient."""
        torch = torch_module()
        logs = self._logs(temperature)
        rounded = [self._rounded(restart_logs) for restart_logs in logs.detach().numpy()]
        rows = [(restart, [*chosen, inner])
                for restart, chosen in enumerate(rounded) for inner in self.problem.inner_loops(chosen)]  # fmt: skip
        restarts, choices = [restart for restart, _ in rows], np.array([row for _, row in rows])
        result = self._cost(choices, torch.exp(logs - logs.detach())[restarts])
        weights = self._weights(restarts, choices[:, -1], temperature)
        sums = [weights @ part for part in (result.energy_pj, result.cycles, self._overflow(result))]
        loss = torch.log(sums[0]) + torch.log(sums[1]) + OVERFLOW_WEIGHT * sums[2]
        return choices, restarts, loss.sum()

    def _logs(self, temperature: float) -> Tensor:
        """Return the logarithm of each factor, by restart, loop and place."""
        torch, problem = torch_module(), self.problem
        allowed = [[place < SPACE or problem.space[place - SPACE][1] == loop for place in range(self.shares.shape[-1])]
             for loop in range(len(LOOPS))]  # fmt: skip
        shares = torch.softmax(torch.where(torch.tensor(allowed), self.shares / temperature, -torch.inf), dim=-1)
        return shares * torch.log(torch.tensor(problem.nests.extents[0]))[:, None]

    def _rounded(self, logs: np.ndarray) -> list[int]:
        """Return the choices without the innermost loop whose splits of the loops are nearest to real factors."""
        pairs = zip(self.problem.splits, logs, strict=True)
        return self.problem.choices([int(np.argmin(((splits.logs - wanted) ** 2).sum(-1))) for splits, wanted in pairs])

    def _cost(self, choices: Choices, growth: Tensor) -> MappingCost:
        xp, problem = torch_namespace(), self.problem
        mappings = problem.mappings(choices)
        temporal, spatial, order = map(xp.asarray, (mappings.temporal, mappings.spatial, mappings.order))
        torch = torch_module()
        ones = torch.ones_like(growth[..., DRAM])
        steps, copies = [ones] * len(problem.hardware.levels), [ones] * len(problem.hardware.levels)
        steps[tile_level(problem.hardware)] = growth[..., TILE]
        steps[0] = steps[0] * growth[..., DRAM]
        for choice, (at, _, _) in enumerate(problem.space):
            level = problem.places[at].level
            copies[level] = copies[level] * growth[..., SPACE + choice]
        grown = Mappings(temporal * torch.stack(steps, 1), spatial * torch.stack(copies, 1), order)
        nests = Nests.of([problem.nest], xp)
        return cost(grown, nests, problem.hardware, xp=xp, placement=problem.placement)

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

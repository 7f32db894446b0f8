"""The mapping of one contraction as choices: a tile, its copies in space, and the innermost loop at DRAM.

As real numbers, the choices are which share of each loop runs where, and which order is likely. The logarithm of each
loop's extent is shared out among its *places*: steps at DRAM, steps inside the tile, and copies in space. The shares
are a softmax. They are rounded to the nearest factors, and the cost is that of the rounded mapping, with the
derivatives of the shares (straight through). Each loop that steps at DRAM is tried as the innermost, and the costs are
weighted with a Gumbel softmax (Jang, Gu, Poole, "Categorical Reparameterization with Gumbel-Softmax", ICLR 2017).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations
from math import isfinite, prod
from typing import TYPE_CHECKING

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.mapping.arrays import torch_module, torch_namespace
from common.design_space.mapping.cost import MappingCost, cost
from common.design_space.mapping.mapping_space import (
    ORDERS,
    copies_in_space,
    divisors,
    spatial_loops,
    tile_level,
    tiled_mappings,
)
from common.design_space.mapping.mappings import Mappings, mapping_text
from common.design_space.mapping.placement import IN_MEMORY, Placement
from common.design_space.mapping.traffic import Nests
from common.design_space.search.problem import Choices, Costs
from common.workload.loop_nests import LOOPS, LoopNest

if TYPE_CHECKING:
    from torch import Generator as TorchGenerator
    from torch import Tensor

DRAM, TILE, SPACE = 0, 1, 2  # places of a loop; from the third on, copies below a level
SPREAD = 4.0  # standard deviation of the first logits: most loops run in one place, and restarts differ
OVERFLOW_WEIGHT = 0.5  # in the loss, of the logarithm by which tiles are too large
Split = tuple[int, ...]  # a factor of a loop for each place


@dataclass(frozen=True)
class MappingProblem:
    """The mappings of a contraction whose tiles divide its loops.

    The first choices are the extents of the tile, then come copies in space, and last the innermost loop at DRAM,
    which decides all orders (:mod:`common.design_space.mapping.mapping_space`). A factor in space that does not
    divide its tile becomes the largest one below that does.

    Attributes:
        placement: where the operands are, and what moves beside the nest.
    """

    nest: LoopNest
    hardware: Hardware
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
        result = cost(self.mappings(choices), self.nests, self.hardware, placement=self.placement)
        fits = result.fits
        return np.where(fits, result.cycles, np.inf), np.where(fits, result.energy_pj, np.inf)

    def schedule(self, choices: Choices) -> str:
        return mapping_text(self.mappings(choices[None]), 0, self.hardware)

    @cached_property
    def space(self) -> list[tuple[int, int, int]]:
        """Level, loop and room of each place in space."""
        return [*spatial_loops(self.hardware)]

    @cached_property
    def splits(self) -> list[np.ndarray]:
        extents = self.nest.bounds.values()
        return [np.array([*self._splits(loop, extent, ())]) for loop, extent in enumerate(extents)]

    @cached_property
    def log_splits(self) -> list[np.ndarray]:
        return [np.log(splits) for splits in self.splits]

    def _splits(self, loop: int, extent: int, copies: Split) -> Iterator[Split]:
        """Yield the splits of a loop whose extent is left beside some copies in space."""
        if len(copies) == len(self.space):
            yield from ((extent // tile, tile, *copies) for tile in map(int, divisors(extent)))
            return
        _, laid_out, room = self.space[len(copies)]
        for factor in map(int, divisors(extent)):
            if factor == 1 or (loop == laid_out and factor <= room):
                yield from self._splits(loop, extent // factor, (*copies, factor))

    def choices(self, splits: Sequence[Split]) -> list[int]:
        """Return the problem's choices, but the innermost loop, for a split of each loop."""
        sizes, factors = self.tile_sizes, self.spatial_factors
        tiles = [np.searchsorted(sizes[loop], prod(splits[loop][TILE:])) for loop in sizes]
        copies = [np.searchsorted(factors[place], splits[loop][SPACE + place])
                  for place, (_, loop, _) in enumerate(self.space)]  # fmt: skip
        return [int(choice) for choice in (*tiles, *copies)]

    def inner_loops(self, splits: Sequence[Split]) -> list[int]:
        """Return the last choices that differ: the loops that step at DRAM."""
        stepping = [at for at, loop in enumerate(self.tile_sizes) if splits[loop][DRAM] > 1]
        return stepping or [0]

    def split(self, choices: Choices) -> list[Split]:
        mapping = self.mappings(choices[None])
        factors = [mapping.temporal[0, 0], mapping.temporal[0, tile_level(self.hardware)]]
        loops = np.arange(len(LOOPS))
        factors += [np.where(loops == loop, mapping.spatial[0, level], 1) for level, loop, _ in self.space]
        return [tuple(map(int, split)) for split in zip(*factors, strict=True)]

    def moves(self, choices: Choices) -> Choices:
        """Return the schedules with one prime factor of a loop in another place, or with another innermost loop."""
        here, inner = self.split(choices), int(choices[-1])
        moved = [[*self.choices([*here[:loop], there, *here[loop + 1 :]]), inner]
                 for loop, split in enumerate(here) for there in self._pair_moves(loop, split)]  # fmt: skip
        turned = [[*self.choices(here), other] for other in self.inner_loops(here) if other != inner]
        return np.array([*moved, *turned], dtype=np.int64).reshape(-1, len(choices))

    def _pair_moves(self, loop: int, split: Split) -> list[Split]:
        """Return the splits of a loop in which one prime factor is in another place."""
        splits = []
        for origin, target in permutations(range(len(split)), 2):
            if target < SPACE or self.space[target - SPACE][1] == loop:
                room = self.space[target - SPACE][2] if target >= SPACE else split[origin] * split[target]
                factors = [factor for factor in prime_factors(split[origin]) if split[target] * factor <= room]
                splits += [_moved(split, origin, target, factor) for factor in factors]
        return splits

    def descent(self, restarts: int, generator: TorchGenerator) -> MappingDescent:
        """Return parameters that PyTorch's generator draws."""
        torch = torch_module()
        size = (restarts, len(LOOPS), SPACE + len(self.space))
        shares = SPREAD * torch.randn(size, generator=generator, dtype=torch.float64)
        orders = torch.zeros((restarts, self.choice_sizes[-1]), dtype=torch.float64)
        return MappingDescent(self, shares.requires_grad_(), orders.requires_grad_(), generator)


def _moved(split: Split, origin: int, target: int, factor: int) -> Split:
    change = {origin: split[origin] // factor, target: split[target] * factor}
    return tuple(change.get(place, held) for place, held in enumerate(split))


@lru_cache(maxsize=4096)
def prime_factors(count: int) -> tuple[int, ...]:
    primes, factor = [], 2
    while factor * factor <= count:
        if count % factor == 0:
            primes.append(factor)
            while count % factor == 0:
                count //= factor
        factor += 1
    return (*primes, *([count] if count > 1 else []))


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
        rows = [(restart, [*self.problem.choices(splits), inner])
                for restart, splits in enumerate(rounded) for inner in self.problem.inner_loops(splits)]  # fmt: skip
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

    def _rounded(self, logs: np.ndarray) -> list[Split]:
        """Return the split of each loop that is nearest to real factors."""
        splits = zip(self.problem.splits, self.problem.log_splits, logs, strict=True)
        nearest = [known[np.argmin(((reached - wanted) ** 2).sum(-1))] for known, reached, wanted in splits]
        return [tuple(split.tolist()) for split in nearest]

    def _cost(self, choices: Choices, growth: Tensor) -> MappingCost:
        xp, problem = torch_namespace(), self.problem
        mappings = problem.mappings(choices)
        temporal, spatial, order = map(xp.asarray, (mappings.temporal, mappings.spatial, mappings.order))
        torch = torch_module()
        ones = torch.ones_like(growth[..., DRAM])
        steps, copies = [ones] * len(problem.hardware.levels), [ones] * len(problem.hardware.levels)
        steps[tile_level(problem.hardware)] = growth[..., TILE]
        steps[0] = steps[0] * growth[..., DRAM]
        for place, (level, _, _) in enumerate(self.problem.space):
            copies[level] = copies[level] * growth[..., SPACE + place]
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

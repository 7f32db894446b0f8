"""Words that cross each boundary of a hierarchy when a mapped nest runs.

All functions take a batch: the last axes of an array are the level and the loop, and the axes before are the batch's.
The tile of a level covers the loops of this level and of all levels further inside. It is replaced whenever a loop
outside moves the operand:

    fills = stored words x steps of the loops that do not move the operand, outside of the first that does

Loops that do not move the operand need no new tile if they are inside of the first loop that moves it (Parashar et al.,
"Timeloop", ISPASS 2019; Hong et al., "DOSA", MICRO 2023).

A tile need not divide its loop. A loop takes the same number of steps each time, rounded up. The last tile has fewer
words, and they are counted as they are (Horeni et al., "Ruby", ISPASS 2022, has such mappings).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.design_space.mapping.arrays import NUMPY, Array, Namespace
from common.design_space.mapping.mappings import Mappings
from common.design_space.memoized import memoized
from common.workload.loop_nests import LOOPS, RELEVANT_LOOPS, LoopNest

RELEVANT = {operand: np.array([loop in loops for loop in LOOPS]) for operand, loops in RELEVANT_LOOPS.items()}
N, G, K, C, P, Q, R, S = range(len(LOOPS))
WINDOW_LOOPS = ((P, R), (Q, S))  # outputs and taps of each axis of the input


@dataclass(frozen=True)
class Nests:
    """Loop nests as arrays: one nest, or one for each mapping of a batch.

    ``extents`` are those of each loop, on the last axis; the others are as :class:`LoopNest` has them.
    """

    extents: Array
    stride_p: Array
    stride_q: Array
    dilation_r: Array
    dilation_s: Array

    @property
    def distances(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return stride and dilation of each axis of the window, as :data:`WINDOW_LOOPS` names its loops."""
        return (self.stride_p, self.dilation_r), (self.stride_q, self.dilation_s)

    @classmethod
    def of(cls, nests: Sequence[LoopNest], xp: Namespace = NUMPY) -> Nests:
        """Return nests as arrays; their first axis is the batch's."""
        extents = [[float(nest.bounds[loop]) for loop in LOOPS] for nest in nests]
        names = ("stride_p", "stride_q", "dilation_r", "dilation_s")
        columns = (extents, *([float(getattr(nest, name)) for nest in nests] for name in names))
        return cls(*(xp.asarray(np.array(column)) for column in columns))


@dataclass(frozen=True)
class Nesting:
    """A batch of mapped nests, with the loops of all levels and their steps from the innermost to the outermost."""

    nests: Nests
    mappings: Mappings
    loops: Array
    steps: Array
    xp: Namespace

    @classmethod
    def of(cls, nests: Nests, mappings: Mappings, xp: Namespace = NUMPY) -> Nesting:
        order, join = mappings.order, xp.module.concatenate
        ordered = xp.along(mappings.temporal, order, -1)
        inwards = range(mappings.temporal.shape[-2] - 1, -1, -1)
        loops = join([order[..., level, :] for level in inwards], axis=-1)
        steps = join([ordered[..., level, :] for level in inwards], axis=-1)
        return cls(nests, mappings, loops, steps, xp)

    @property
    def levels(self) -> int:
        return int(self.mappings.temporal.shape[-2])

    def outside(self, level: int) -> tuple[Array, Array]:
        """Return indices and steps of the loops outside of the tile of a level, the innermost first."""
        inside = (self.levels - level) * len(LOOPS)
        return self.loops[..., inside:], self.steps[..., inside:]

    @cached_property
    def tiles(self) -> tuple[Array, ...]:
        """The tile of each level."""
        factors = self.mappings.temporal * self.mappings.spatial
        inside = [self.xp.module.prod(factors[..., level:, :], axis=-2) for level in range(self.levels)]
        return tuple(self.xp.module.minimum(extents, self.nests.extents) for extents in inside)

    @memoized
    def tile_words(self, operand: str, level: int) -> Array:
        return tile_words(operand, self.tiles[level], self.nests, self.xp)

    def size(self, operand: str) -> Array:
        """Return the distinct elements of an operand (of the input, only without halo and stride)."""
        return _product(self.nests.extents, RELEVANT[operand], self.xp)

    def copies(self, operand: str, first: int, last: int) -> Array:
        """Return how many copies of an operand's word the fan-outs from level ``first`` to before ``last`` make."""
        return _product(self._loop_copies(first, last), ~RELEVANT[operand], self.xp)

    def _loop_copies(self, first: int, last: int) -> Array:
        """Return the copies of each loop below some levels; those beyond its extent are idle."""
        copies = self.xp.module.prod(self.mappings.spatial[..., first:last, :], axis=-2)
        return self.xp.module.where(copies > self.nests.extents, self.nests.extents, copies)

    @cached_property
    def used(self) -> tuple[Array, ...]:
        """How many copies of each level the mapping uses; last, how many multipliers."""
        return tuple(self.xp.module.prod(self._loop_copies(0, level), axis=-1) for level in range(self.levels + 1))

    def refetches(self, operand: str, level: int) -> Array:
        """Return how often the loops outside of a level's tile bring each of the operand's words in."""
        loops, steps = self.outside(level)
        moves = self.xp.asarray(RELEVANT[operand])[loops]
        is_replaced = self.xp.module.cumsum(moves & (steps > 1), axis=-1) > 0
        return self.xp.module.prod(self.xp.module.where(is_replaced & ~moves, steps, 1.0), axis=-1)

    def fills(self, operand: str, level: int) -> Array:
        """Return the words that fill the tiles of a level over one run; a word in several copies counts once."""
        size = self.size(operand) if operand != "input" else self._windows(level)
        return size * self.refetches(operand, level)

    def _windows(self, level: int) -> Array:
        """Return the input elements of all tiles of a level, each tile counted once, without elements that stay.

        Elements that two successive tiles share stay while the innermost loop outside steps along a window, and are
        dropped when another loop steps. Timeloop counts in the same way.
        """
        extents = self.nests.extents
        count = self.xp.rounded_up(extents / self.tiles[level])
        kept = self._kept_steps(level, count)
        rows, columns = (
            window_sum(extents, count, loops, distances) - self._kept(level, count, kept, loops, distances)
            for loops, distances in zip(WINDOW_LOOPS, self.nests.distances, strict=True)
        )
        return extents[..., N] * extents[..., G] * extents[..., C] * rows * columns

    def _kept(
        self, level: int, count: Array, kept: Array, loops: tuple[int, int], distances: tuple[Array, Array]
    ) -> Array:
        """Return the input positions along one axis that stay, over all tiles of a level."""
        (output, tap), (stride, dilation) = loops, distances
        extents, tile = self.nests.extents, self.tiles[level]
        below_outputs = overlap(extents, tile, count, tap, (dilation, stride), self.xp)
        below_taps = overlap(extents, tile, count, output, (stride, dilation), self.xp)
        return kept[..., output] * below_outputs + kept[..., tap] * below_taps

    def _kept_steps(self, level: int, count: Array) -> Array:
        """Return how often a tile follows its neighbour along each loop, if it is the innermost that steps outside."""
        xp = self.xp
        loops, steps = self.outside(level)
        runs = steps > 1
        is_first = runs & (xp.module.cumsum(runs, axis=-1) <= 1)
        numbers, named = xp.asarray(np.arange(len(LOOPS))[:, None]), loops[..., None, :]
        is_loop = ~(named > numbers) & ~(named < numbers)
        first = xp.module.prod(xp.module.where(is_loop & is_first[..., None, :], steps[..., None, :], 1.0), axis=-1)
        begun = xp.module.prod(self.mappings.temporal[..., :level, :], axis=-2) / first
        whole = xp.rounded_up(count / first)
        begun = xp.module.where(whole < begun, whole, begun)  # a run of empty steps has no tile
        return xp.module.where(first > 1, count - begun, 0.0)


def tile_words(operand: str, tile: Array, nests: Nests, xp: Namespace) -> Array:
    if operand != "input":
        return _product(tile, RELEVANT[operand], xp)
    words = tile[..., N] * tile[..., G] * tile[..., C]
    for (output, tap), (stride, dilation) in zip(WINDOW_LOOPS, nests.distances, strict=True):
        words = words * ((tile[..., output] - 1) * stride + (tile[..., tap] - 1) * dilation + 1)
    return words


def window_sum(extents: Array, count: Array, loops: tuple[int, int], distances: tuple[Array, Array]) -> Array:
    """Return the sum, over all tiles along one axis, of the input positions that each of them reads.

    A tile of p outputs and r taps reads (p - 1)·stride + (r - 1)·dilation + 1 positions. The sum over all tiles needs
    their number alone, so the last one may be smaller.
    """
    (output, tap), (stride, dilation) = loops, distances
    outputs, taps = count[..., output], count[..., tap]
    return (
        taps * stride * (extents[..., output] - outputs)
        + outputs * dilation * (extents[..., tap] - taps)
        + outputs * taps
    )


def overlap(
    extents: Array, tile: Array, count: Array, loop: int, distances: tuple[Array, Array], xp: Namespace
) -> Array:
    """Return the input positions that a tile shares with its neighbour along the other loop of an axis.

    The result is the sum over all tiles of this loop; the last tile may be smaller.

    Args:
        extents: of all loops.
        count: tiles along each loop.
        loop: the loop of the axis along which the two are not neighbours.
        distances: input positions of a step of this loop, and of the other one.
    """
    own, other = distances
    last = extents[..., loop] - (count[..., loop] - 1) * tile[..., loop]
    none = own * 0
    full, smaller = (xp.module.maximum((size - 1) * own + 1 - other, none) for size in (tile[..., loop], last))
    return (count[..., loop] - 1) * full + smaller


def _product(values: Array, chosen: np.ndarray, xp: Namespace) -> Array:
    return xp.module.prod(xp.module.where(xp.asarray(chosen), values, 1.0), axis=-1)

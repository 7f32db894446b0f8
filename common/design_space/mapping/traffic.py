"""Words that cross each boundary of a hierarchy when a mapped nest runs.

All functions take a batch: the last axes of an array are the level and the loop, those before are the batch's. The tile
of a level is what its own loops and all further inside reach. It is replaced whenever a loop outside moves the operand:

    fills = stored words x steps of the loops that do not move the operand, outside of the first that does

Loops that do not move it, inside of the first that does, find the tile in place (Parashar et al., "Timeloop",
ISPASS 2019; Hong et al., "DOSA", MICRO 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.design_space.mapping.arrays import NUMPY, Array, Namespace
from common.design_space.mapping.mappings import Mappings
from common.workload.loop_nests import LOOPS, RELEVANT_LOOPS, LoopNest

RELEVANT = {operand: np.array([loop in loops for loop in LOOPS]) for operand, loops in RELEVANT_LOOPS.items()}
N, G, K, C, P, Q, R, S = range(len(LOOPS))


@dataclass(frozen=True)
class Nests:
    """Loop nests as arrays: one nest, or one for each mapping of a batch.

    Attributes:
        extents: of each loop, on the last axis.
        stride_p: input rows between two output rows.
        stride_q: input columns between two output columns.
        dilation_r: input rows between two rows of the window.
        dilation_s: input columns between two columns of the window.
    """

    extents: Array
    stride_p: Array
    stride_q: Array
    dilation_r: Array
    dilation_s: Array

    @classmethod
    def of(cls, nests: Sequence[LoopNest], xp: Namespace = NUMPY) -> Nests:
        """Return nests as arrays; their first axis is the batch's."""
        columns = (
            [[float(nest.bounds[loop]) for loop in LOOPS] for nest in nests],
            *(
                [float(getattr(nest, name)) for nest in nests]
                for name in ("stride_p", "stride_q", "dilation_r", "dilation_s")
            ),
        )
        return cls(*(xp.asarray(np.array(column)) for column in columns))


@dataclass(frozen=True)
class Nesting:
    """A batch of mapped nests, with the loops of all levels in one sequence from the innermost to the outermost.

    Attributes:
        loops: index of each loop of the sequence.
        steps: steps of each loop of the sequence.
    """

    nests: Nests
    mappings: Mappings
    loops: Array
    steps: Array
    xp: Namespace

    @classmethod
    def of(cls, nests: Nests, mappings: Mappings, xp: Namespace = NUMPY) -> Nesting:
        levels = mappings.temporal.shape[-2]
        order = mappings.order
        ordered = xp.along(mappings.temporal, order, -1)
        inwards = range(levels - 1, -1, -1)
        join = xp.module.concatenate
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
    def _tiles(self) -> tuple[Array, ...]:
        factors = self.mappings.temporal * self.mappings.spatial
        inside = [self.xp.module.prod(factors[..., level:, :], axis=-2) for level in range(self.levels)]
        return tuple(self.xp.module.minimum(extents, self.nests.extents) for extents in inside)

    def tile(self, level: int) -> Array:
        return self._tiles[level]

    @cached_property
    def _tile_words(self) -> dict[tuple[str, int], Array]:
        return {}

    def tile_words(self, operand: str, level: int) -> Array:
        if (operand, level) not in self._tile_words:
            self._tile_words[operand, level] = tile_words(operand, self.tile(level), self.nests, self.xp)
        return self._tile_words[operand, level]

    def size(self, operand: str) -> Array:
        """Return the distinct elements of weight or output; of the input only without halo and stride."""
        return _product(self.nests.extents, RELEVANT[operand], self.xp)

    def copies(self, operand: str, first: int, last: int) -> Array:
        """Return how many copies of an operand's word the fan-outs from level ``first`` to before ``last`` make."""
        factors = self.mappings.spatial[..., first:last, :]
        return _product(self.xp.module.prod(factors, axis=-2), ~RELEVANT[operand], self.xp)

    @cached_property
    def _used(self) -> tuple[Array, ...]:
        product = self.xp.module.prod
        spatial = self.mappings.spatial
        return tuple(product(product(spatial[..., :level, :], axis=-2), axis=-1) for level in range(self.levels))

    def used(self, level: int) -> Array:
        """Return how many copies of a level the mapping uses."""
        return self._used[level]

    def refetches(self, operand: str, level: int) -> Array:
        """Return how often the loops outside of a level's tile bring each of the operand's words in."""
        loops, steps = self.outside(level)
        moves = self.xp.asarray(RELEVANT[operand])[loops]
        is_replaced = self.xp.module.cumsum(moves & (steps > 1), axis=-1) > 0
        return self.xp.module.prod(self.xp.module.where(is_replaced & ~moves, steps, 1.0), axis=-1)

    def fills(self, operand: str, level: int) -> Array:
        """Return the words that fill the tiles of a level over one run, a word in several copies counted once."""
        size = self.size(operand) if operand != "input" else self._windows(level)
        return size * self.refetches(operand, level)

    def _windows(self, level: int) -> Array:
        """Return the input elements of all tiles of a level, each tile counted once, without those that stay."""
        nests, tile, extents = self.nests, self.tile(level), self.nests.extents
        count = self.xp.rounded_up(extents / tile)
        rows = _window_sum(extents, count, (P, R), (nests.stride_p, nests.dilation_r))
        columns = _window_sum(extents, count, (Q, S), (nests.stride_q, nests.dilation_s))
        elements = extents[..., N] * extents[..., G] * extents[..., C] * rows * columns
        return elements * self._new_share(level, tile)

    def _new_share(self, level: int, tile: Array) -> Array:
        """Return the share of the input's words that are not kept from the step before.

        What two successive tiles share stays while the innermost loop outside steps along a window, and is dropped when
        another loop steps. That is how Timeloop counts.
        """
        xp, nests = self.xp, self.nests
        rows, columns = window(tile, nests)
        whole = rows * 0 + 1
        moved = [whole] * len(LOOPS)
        for loop, distance, extent in (
            (P, nests.stride_p, rows),
            (R, nests.dilation_r, rows),
            (Q, nests.stride_q, columns),
            (S, nests.dilation_s, columns),
        ):
            moved[loop] = xp.module.minimum(tile[..., loop] * distance / extent, whole)
        loops, steps = self.outside(level)
        runs = steps > 1
        is_first = runs & (xp.module.cumsum(runs, axis=-1) <= 1)
        new = xp.along(xp.module.stack(moved, axis=-1), loops, -1)
        share = (1 + (steps - 1) * new) / steps
        return xp.module.prod(xp.module.where(is_first, share, 1.0), axis=-1)


def window(tile: Array, nests: Nests) -> tuple[Array, Array]:
    """Return the input rows and columns that a tile reads."""
    rows = (tile[..., P] - 1) * nests.stride_p + (tile[..., R] - 1) * nests.dilation_r + 1
    columns = (tile[..., Q] - 1) * nests.stride_q + (tile[..., S] - 1) * nests.dilation_s + 1
    return rows, columns


def tile_words(operand: str, tile: Array, nests: Nests, xp: Namespace) -> Array:
    if operand != "input":
        return _product(tile, RELEVANT[operand], xp)
    rows, columns = window(tile, nests)
    return tile[..., N] * tile[..., G] * tile[..., C] * rows * columns


def _window_sum(extents: Array, count: Array, loops: tuple[int, int], distances: tuple[Array, Array]) -> Array:
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


def _product(values: Array, chosen: np.ndarray, xp: Namespace) -> Array:
    return xp.module.prod(xp.module.where(xp.asarray(chosen), values, 1.0), axis=-1)

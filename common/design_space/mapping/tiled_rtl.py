"""Cycles of Gemmini's RTL for a search: by the number of tiles along each loop, on an array of fixed size.

:mod:`common.design_space.mapping.gemmini_rtl` has the terms and their source. It counts DOSA's rows as DOSA's software
ran them: square maps, and an array for each row. This module counts a layer as it is, on the array of the accelerator.
Both agree where the tiles divide the loops and the copies fill the array. The differences are:

- The tiles of a loop are taken as equal, so a loop of 100 in three tiles has 33.3 iterations in each.
- A tile of a matrix product is at least a block of the array along each loop.
- Images and groups in one tile are computed one after the other.
- A resident operand is not loaded. Words that move beside the nest are loaded too.

The terms of all tiles are sums, so a lower bound of each is known from the fewest tiles along each loop:

    count · ⌈extent / (count · side)⌉ ≥ max(count, ⌈extent / side⌉)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from common.design_space.accelerator.hardware import Hardware, RtlCosts
from common.design_space.mapping.arrays import NUMPY, Array, Namespace
from common.design_space.mapping.placement import IN_MEMORY, Placement
from common.design_space.mapping.traffic import WINDOW_LOOPS, C, G, K, N, Nests, P, Q, R, S, window_sum
from common.workload.loop_nests import LoopNest

ROW_BYTES = 64  # of one request to memory


def is_product(nest: LoopNest) -> bool:
    """Return whether a nest is a matrix product: one column of results, and a window of one element."""
    return nest.q == nest.r == nest.s == 1


def tiled_cycles(
    counts: Array,
    nests: Nests,
    hardware: Hardware,
    costs: RtlCosts,
    placement: Placement = IN_MEMORY,
    xp: Namespace = NUMPY,
    *,
    is_bound: bool = False,
) -> Array:
    """Return the cycles of nests that are cut into tiles.

    Args:
        counts: tiles along each loop, on the last axis.
        nests: one for each entry of the batch, or one for all.
        hardware: with Gemmini's levels.
        is_bound: whether the result is a lower bound for these and all larger counts.
    """
    extents = nests.extents
    one_each = xp.module.prod(extents[..., [Q, R, S]], axis=-1) <= 1
    counts = xp.module.where(one_each[..., None], _block_counts(counts, nests, hardware, xp), counts)
    tiles = _Tiles(nests, counts, xp, is_bound)
    command = xp.module.where(one_each, costs.product_command_cycles + tiles.taps * 0.0, costs.window_command_cycles)
    load, compute = _load_cycles(tiles, hardware, costs, placement), _compute_cycles(tiles, hardware, costs)
    return xp.module.maximum(xp.module.maximum(command * tiles.count(N, G, K, C, P, Q, R, S), load), compute)


@dataclass(frozen=True)
class _Tiles:
    """Nests that are cut into tiles; the attributes are arguments of :func:`tiled_cycles`."""

    nests: Nests
    counts: Array
    xp: Namespace
    is_bound: bool

    @property
    def taps(self) -> Array:
        return self.nests.extents[..., R] * self.nests.extents[..., S]

    @property
    def images(self) -> Array:
        """Images and groups, which are computed one after the other."""
        return self.nests.extents[..., N] * self.nests.extents[..., G]

    def count(self, *loops: int) -> Array:
        """Return the tiles along loops."""
        return reduce(lambda left, right: left * right, (self.counts[..., loop] for loop in loops))

    def parts(self, loop: int, side: int) -> Array:
        """Return the parts of at most ``side`` iterations in all tiles along a loop."""
        extent, count = self.nests.extents[..., loop], self.counts[..., loop]
        if self.is_bound:
            return self.xp.module.maximum(count, self.xp.rounded_up(extent / side))
        return count * self.xp.rounded_up(extent / count / side)

    def positions(self) -> Array:
        """Return the input positions that each tile along rows and columns reads, over all of these tiles."""
        total = self.nests.extents[..., N] * 0.0 + 1.0
        for loops, distances in zip(WINDOW_LOOPS, self.nests.distances, strict=True):
            # The sum is linear in each of the two counts, so it is least at an end of both.
            ends = self._corners(loops) if self.is_bound else [self.counts]
            sums = [window_sum(self.nests.extents, counts, loops, distances) for counts in ends]
            total = total * reduce(self.xp.module.minimum, sums)
        return total

    def _corners(self, loops: tuple[int, int]) -> Sequence[Array]:
        """Return the counts, and those with as many tiles as iterations along one loop of an axis, or along both."""
        xp, most = self.xp, self.nests.extents + self.counts * 0.0
        first, second = (np.arange(self.counts.shape[-1]) == loop for loop in loops)
        corners = (first & False, first, second, first | second)
        return [xp.module.where(xp.asarray(which), most, self.counts) for which in corners]


def _load_cycles(tiles: _Tiles, hardware: Hardware, costs: RtlCosts, placement: Placement) -> Array:
    """Return the cycles to load the operands from memory, and the words that move beside the nests."""
    extents, dram = tiles.nests.extents, hardware.levels[0]
    positions = tiles.images * tiles.positions()
    window = tiles.count(K) * positions  # each tile of channels loads the positions again
    weights = tiles.count(N, P, Q) * extents[..., G] * tiles.taps
    rows, size = tiles.taps * 0.0, tiles.taps * 0.0
    for operand, words, across, moved in (("input", window, C, C), ("weight", weights * extents[..., C], K, K)):
        if operand in placement.on_chip:
            continue
        element = dram.bytes_of(operand)
        rows = rows + words * tiles.parts(across, max(1, ROW_BYTES // element))
        size = size + words * extents[..., moved] * element
    beside = sum(placement.words_at(0)) * dram.word_bytes
    return costs.row_cycles * (rows + beside / ROW_BYTES) + costs.byte_cycles * (size + beside)


def _compute_cycles(tiles: _Tiles, hardware: Hardware, costs: RtlCosts) -> Array:
    """Return the cycles of the blocks of the array: their pixels, and the rows of weights that enter it."""
    array, rows, columns = hardware.array, tiles.nests.extents[..., P], tiles.nests.extents[..., Q]
    blocks = tiles.parts(K, array.columns) * tiles.parts(C, array.rows) * tiles.taps * tiles.images
    return blocks * (
        costs.block_cycles * columns * tiles.parts(P, array.rows) + costs.pixel_cycles * rows * columns
    ) + costs.weight_row_cycles * array.rows * blocks * tiles.count(P, Q)


def _block_counts(counts: Array, nests: Nests, hardware: Hardware, xp: Namespace) -> Array:
    """Return the tiles of a matrix product: the software makes none that is smaller than a block of the array."""
    sides = np.ones(counts.shape[-1])
    sides[[P, K, C]] = hardware.array.rows, hardware.array.columns, hardware.array.rows
    return xp.module.minimum(counts, xp.rounded_up(nests.extents / xp.asarray(sides)) + counts * 0.0)

"""All mappings of one nest on one accelerator whose tiles divide the nest, without those that others dominate.

A mapping of the space has one tile. Its loops run at the innermost memory that is not a register, the steps from tile
to tile at DRAM. Two choices are made here, because no other is better in any word, cycle or capacity:

- Each loop that may run along an axis of the array takes the largest factor of the tile that fits. A smaller one needs
  more steps, more reads and a larger share of each copy.
- At DRAM, the innermost loop is followed by the loops that leave the same operand in place. What the innermost loop
  moves is brought again by every loop that does not move it, in any order. What it leaves in place is not brought again
  if all loops that leave it in place are inside. So an order is its innermost loop, and one of a single step is the
  order of the next. That covers all 8! orders.

Inside the tile, the loops that leave the registers in place are the innermost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.mapping.arrays import NUMPY
from common.design_space.mapping.cost import needed_words
from common.design_space.mapping.mappings import Mappings, mapping_text
from common.design_space.mapping.placement import IN_MEMORY, Placement
from common.design_space.mapping.traffic import RELEVANT, Nesting, Nests
from common.workload.loop_nests import LOOPS, LoopNest

BATCH = 4096  # mappings whose arrays stay in the processor's caches


@dataclass(frozen=True)
class MappingSpace:
    """The mappings of a nest on an accelerator; each has an index.

    Attributes:
        tile_factors: steps inside each tile, by tile and loop.
        spatial: copies in space, by tile, level and loop.
        tiles: tile of each mapping.
        inner_loops: the innermost loop at DRAM of each mapping.
    """

    nest: LoopNest
    hardware: Hardware
    tile_factors: np.ndarray
    spatial: np.ndarray
    tiles: np.ndarray
    inner_loops: np.ndarray

    def __len__(self) -> int:
        return len(self.tiles)

    @cached_property
    def nests(self) -> Nests:
        return Nests.of([self.nest])

    def mappings(self, chosen: np.ndarray | slice) -> Mappings:
        tiles = self.tiles[chosen]
        order = ORDERS[self.inner_loops[chosen]]
        return tiled_mappings(self.nests, self.hardware, self.tile_factors[tiles], self.spatial[tiles], order)

    def text(self, index: int) -> str:
        return mapping_text(self.mappings(np.array([index])), 0, self.hardware)

    def batches(self) -> Iterator[tuple[int, Mappings]]:
        """Yield the index of the first mapping and the mappings of each batch."""
        for start in range(0, len(self), BATCH):
            yield start, self.mappings(slice(start, start + BATCH))


def _mates_inside(inner: int) -> list[int]:
    """Return the loops, the innermost first: one, then those that move the same operands, then the others."""
    moved = [RELEVANT[operand] for operand in RELEVANT]
    mates = [loop for loop in range(len(LOOPS)) if all(moves[loop] == moves[inner] for moves in moved)]
    mates.remove(inner)
    return [inner, *mates, *(loop for loop in range(len(LOOPS)) if loop not in (inner, *mates))]


ORDERS = np.array([_mates_inside(loop) for loop in range(len(LOOPS))])


def _inside_order(hardware: Hardware) -> np.ndarray:
    """Return the order of the loops inside a tile: those that leave the registers' operands in place innermost."""
    held = hardware.levels[-1].holds
    moves = np.any([RELEVANT[operand] for operand in held], axis=0)
    return np.argsort(moves, kind="stable")


def tile_level(hardware: Hardware) -> int:
    """Return the innermost level that is not a register of an element."""
    return max(index for index, level in enumerate(hardware.levels) if level.copies != "element")


def mapping_space(nest: LoopNest, hardware: Hardware, placement: Placement = IN_MEMORY) -> MappingSpace:
    """Return the space of a nest on an accelerator.

    Args:
        nest: the nest.
        hardware: the accelerator.
        placement: the resident operands, which need no room for tiles.

    Raises:
        NothingFitsError: no tile fits.
    """
    nests = Nests.of([nest])
    tiles = _tiles(nest)
    spatial = copies_in_space(tiles, hardware)
    factors = tiles / spatial.prod(axis=1)
    every = tiled_mappings(nests, hardware, factors, spatial, np.broadcast_to(ORDERS[0], factors.shape))
    is_held = are_held(Nesting.of(nests, every, NUMPY), hardware, placement)
    if not is_held.any():
        raise NothingFitsError("hardware", "no tile of a layer fits its memories", "")
    factors, spatial, tiles = factors[is_held], spatial[is_held], tiles[is_held]
    runs = nests.extents / tiles > 1
    runs[:, 0] |= ~runs.any(axis=1)  # a tile that is the whole nest has one order
    tile, inner = np.nonzero(runs)
    return MappingSpace(nest, hardware, factors, spatial, tile, inner)


def _tiles(nest: LoopNest) -> np.ndarray:
    axes = np.meshgrid(*(divisors(nest.bounds[loop]) for loop in LOOPS), indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=-1)


def divisors(count: int) -> np.ndarray:
    candidates = np.arange(1, count + 1)
    return np.asarray(candidates[count % candidates == 0], dtype=np.float64)


def spatial_loops(hardware: Hardware) -> Iterator[tuple[int, int, int]]:
    """Yield level, loop and room of the axis of each loop that may be laid out in space."""
    for index, level in enumerate(hardware.levels):
        if level.fanout is not None:
            for loop in level.fanout.loops:
                yield index, LOOPS.index(loop), getattr(hardware.array, level.fanout.axis)


def copies_in_space(tiles: np.ndarray, hardware: Hardware, most: np.ndarray | None = None) -> np.ndarray:
    """Return the copies in space of each tile: along each axis, the largest factor of its first loop, then the next.

    Args:
        tiles: extents by tile and loop.
        hardware: the accelerator.
        most: factors at most, by tile and by loop of :func:`spatial_loops`; what has room if None.
    """
    spatial = np.ones((len(tiles), len(hardware.levels), len(LOOPS)))
    for place, (level, loop, room) in enumerate(spatial_loops(hardware)):
        limits = np.floor(room / spatial[:, level].prod(axis=-1))
        if most is not None:
            limits = np.minimum(limits, most[:, place])
        pairs, pair_of_tile = np.unique(np.stack([tiles[:, loop], limits], -1), axis=0, return_inverse=True)
        largest = [_largest_factor(int(extent), int(limit)) for extent, limit in pairs]
        spatial[:, level, loop] = np.array(largest, dtype=np.float64)[pair_of_tile.reshape(-1)]
    return spatial


def _largest_factor(count: int, limit: int) -> int:
    """Return the largest divisor of a number that is not above a limit."""
    return max(factor for factor in range(1, min(count, limit) + 1) if count % factor == 0)


def tiled_mappings(
    nests: Nests, hardware: Hardware, factors: np.ndarray, spatial: np.ndarray, outer_order: np.ndarray
) -> Mappings:
    """Return mappings of tiles, the loops of a tile at its level and those from tile to tile at DRAM."""
    temporal = np.ones_like(spatial)
    temporal[:, tile_level(hardware)] = factors
    temporal[:, 0] *= nests.extents / (factors * spatial.prod(axis=1))
    order = np.empty(spatial.shape, dtype=np.int64)
    order[:] = _inside_order(hardware)
    order[:, 0] = outer_order
    return Mappings(temporal, spatial, order)


def are_held(nesting: Nesting, hardware: Hardware, placement: Placement = IN_MEMORY) -> np.ndarray:
    """Return whether each mapping's tiles fit."""
    needed = needed_words(nesting, hardware, placement=placement)
    room = [level.capacity_words for level in hardware.levels]
    return np.asarray(np.all([words <= limit for words, limit in zip(needed, room, strict=True)], axis=0))

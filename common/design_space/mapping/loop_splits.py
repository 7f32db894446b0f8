"""The ways to divide one loop between DRAM, the tile and space, without those that others dominate.

A loop of ``extent`` iterations has ``outer`` steps from tile to tile, ``inner`` steps inside a tile, and copies in
space. None of the three needs to divide it: steps are rounded up, and the last tile is smaller. These splits suffice:

- *Sizes of the tile.* Of the sizes with the same number of tiles, the smallest. A larger one needs more room and more
  steps, and moves the same words. So an extent has at most two square roots of sizes. The exception is an axis of the
  input whose tiles keep more of the window where they are of unequal size: there, every size counts (``is_uneven``).
- *Copies and steps inside.* A split is dominated by one that has no more steps inside, no larger tile and no fewer
  copies: more copies share the words that they all need. Where other loops may be laid out along the same axis of the
  array, all splits count, because each of the loops needs room there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Hardware
from common.design_space.groups.axis_tiles import tile_sizes
from common.design_space.mapping.traffic import WINDOW_LOOPS
from common.workload.loop_nests import LOOPS, LoopNest

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LoopSplits:
    """The splits of one loop, grouped by the size of the tile.

    Attributes:
        extent: iterations of the loop.
        sizes: of the tile, the smallest first.
        first: the first split of each size, and the number of all splits.
        inner: steps inside the tile, by split.
        copies: copies in space, by split and level.
    """

    extent: int
    sizes: Counts
    first: Counts
    inner: Counts
    copies: Counts

    @cached_property
    def outer(self) -> Counts:
        """Steps from tile to tile, by size."""
        return -(-self.extent // self.sizes)

    @cached_property
    def most_copies(self) -> Counts:
        """The most copies, by size and level."""
        return np.maximum.reduceat(self.copies, self.first[:-1], axis=0)

    @cached_property
    def least_inner(self) -> Counts:
        """The fewest steps inside a tile, by size."""
        return np.minimum.reduceat(self.inner, self.first[:-1])

    def least_tiles(self, tile_level: int) -> Counts:
        """Return the smallest extent of the tile at each level, by size and level."""
        inside = np.cumprod(self.copies[:, ::-1], axis=1)[:, ::-1].copy()
        inside[:, : tile_level + 1] *= self.inner[:, None]
        return np.minimum.reduceat(np.minimum(inside, self.extent), self.first[:-1], axis=0)


def nest_splits(nest: LoopNest, hardware: Hardware) -> list[LoopSplits]:
    """Return the splits of each loop of a nest on an accelerator."""
    axes = spatial_rooms(hardware)
    is_tiled = tile_level(hardware) > 0
    shared = [level.fanout.loops for level in hardware.levels if level.fanout and len(level.fanout.loops) > 1]
    return [
        loop_splits(
            extent,
            rooms,
            is_uneven=is_uneven(nest, loop),
            shares_axis=any(name in loops for loops in shared),
            is_tiled=is_tiled,
        )
        for loop, ((name, extent), rooms) in enumerate(zip(nest.bounds.items(), axes, strict=True))
    ]


def tile_level(hardware: Hardware) -> int:
    """Return the innermost level that is not a register of an element."""
    return max(index for index, level in enumerate(hardware.levels) if level.copies != "element")


def spatial_rooms(hardware: Hardware) -> list[list[int]]:
    """Return the most copies below each level, by loop and level."""
    rooms = [[1] * len(hardware.levels) for _ in LOOPS]
    for index, level in enumerate(hardware.levels):
        if level.fanout is not None:
            for loop in level.fanout.loops:
                rooms[LOOPS.index(loop)][index] = getattr(hardware.array, level.fanout.axis)
    return rooms


def axis_rooms(hardware: Hardware) -> list[int]:
    """Return the most copies below each level, of all loops together."""
    return [1 if level.fanout is None else getattr(hardware.array, level.fanout.axis) for level in hardware.levels]


def is_uneven(nest: LoopNest, loop: int) -> bool:
    """Return whether tiles of unequal size along a loop may keep more of the input than equal ones.

    Two tiles that are neighbours along the outputs share ``max(0, (taps - 1)·dilation + 1 - stride)`` positions of each
    tile of taps. The sum over tiles of taps depends on their number alone where nothing is cut off at 0.
    """
    extents = [*nest.bounds.values()]
    for (output, tap), step, other in zip(
        WINDOW_LOOPS, (nest.stride_p, nest.stride_q), (nest.dilation_r, nest.dilation_s), strict=True
    ):
        if loop in (output, tap) and min(extents[output], extents[tap]) > 1:
            return (step if loop == tap else other) > 1
    return False


def loop_splits(
    extent: int, rooms: Iterable[int], *, is_uneven: bool, shares_axis: bool, is_tiled: bool = True
) -> LoopSplits:
    """Return the splits of a loop.

    Args:
        extent: iterations of the loop.
        rooms: the most copies below each level.
        is_uneven: whether every size of a tile counts.
        shares_axis: whether other loops may be laid out along the same axis of the array.
        is_tiled: whether the loops of a tile run inside DRAM; else each step at DRAM is one of the array.
    """
    limits = [min(room, extent) for room in rooms]
    may_dominate = not shares_axis and sum(room > 1 for room in limits) < 2
    sizes, first, splits = list[int](), [0], list[_Split]()
    for size in range(1, extent + 1) if is_uneven else tile_sizes(extent)[::-1]:
        found = [*_splits_of_size(extent, size, limits, is_uneven=is_uneven, is_tiled=is_tiled)]
        if found:
            sizes.append(size)
            splits += _undominated(found) if may_dominate else found
            first.append(len(splits))
    inner, copies = zip(*((split.inner, split.copies) for split in splits), strict=True)
    return LoopSplits(extent, np.array(sizes), np.array(first), np.array(inner), np.array(copies))


class _Split(NamedTuple):
    """Steps inside a tile, its extent, and the copies below each level."""

    inner: int
    tile: int
    copies: tuple[int, ...]


def _splits_of_size(
    extent: int, size: int, rooms: Sequence[int], *, is_uneven: bool, is_tiled: bool
) -> Iterator[_Split]:
    """Yield the splits with a tile of this size, or of a larger one of which as many are needed."""
    for copies in product(*(range(1, room + 1) for room in rooms)):
        inner = -(-size // prod(copies))
        tile = min(inner * prod(copies), extent)
        # Where every size counts, a larger tile is a size of its own.
        is_own = tile == size if is_uneven else -(-extent // tile) == -(-extent // size)
        if is_own and (is_tiled or inner == 1):
            yield _Split(inner, tile, copies)


def _undominated(splits: Sequence[_Split]) -> list[_Split]:
    """Return the splits that no other equals in steps and tile, the fewer the better, and in copies, at one place."""
    kept = list[_Split]()
    for split in sorted(splits, key=lambda split: (split.inner, split.tile, -prod(split.copies))):
        if not any(other.tile <= split.tile and prod(other.copies) >= prod(split.copies) for other in kept):
            kept.append(split)
    return kept

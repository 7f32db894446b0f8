"""All mappings of one nest on one accelerator, tiles of any size, without those that others dominate.

A mapping of the space has one tile. Its loops run at the innermost memory that is not a register, the steps from tile
to tile at DRAM. How a loop is divided is in :mod:`common.design_space.mapping.loop_splits`. One choice more is made
here, because no other is better in any word, cycle or capacity:

- At DRAM, the innermost loop is followed by the loops that leave the same operand in place. What the innermost loop
  moves is brought again by every loop that does not move it, in any order. What it leaves in place is not brought again
  if all loops that leave it in place are inside. So an order is its innermost loop, and one of a single step is the
  order of the next. That covers all 8! orders. Of the loops that leave the same operand in place, the innermost is the
  one that keeps most of the input.

Inside the tile, the loops that leave the registers in place are the innermost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Hardware
from common.design_space.mapping.cell_bounds import CellBounds
from common.design_space.mapping.loop_splits import LoopSplits, axis_rooms, nest_splits, tile_level
from common.design_space.mapping.mappings import Mappings
from common.design_space.mapping.traffic import RELEVANT, Nests
from common.workload.loop_nests import LOOPS, LoopNest

Choices = npt.NDArray[np.int64]
CELLS = 16_384  # whose arrays stay in the processor's caches


@dataclass(frozen=True)
class MappingSpace:
    """The mappings of a nest on an accelerator, by cell: the size of the tile along each loop.

    Attributes:
        splits: of each loop.
    """

    nest: LoopNest
    hardware: Hardware
    splits: Sequence[LoopSplits]

    @classmethod
    def of(cls, nest: LoopNest, hardware: Hardware) -> MappingSpace:
        return cls(nest, hardware, nest_splits(nest, hardware))

    @cached_property
    def nests(self) -> Nests:
        return Nests.of([self.nest])

    def cells(self) -> Iterator[CellBounds]:
        """Yield all cells in batches."""
        shape = [len(splits.sizes) for splits in self.splits]
        for start in range(0, prod(shape), CELLS):
            numbers = np.arange(start, min(start + CELLS, prod(shape)))
            cells = np.stack(np.unravel_index(numbers, shape), axis=1)
            yield CellBounds(self.nest, self.hardware, self.splits, tile_level(self.hardware), cells)

    def mappings(self, cells: Choices, inner_loops: Choices) -> Mappings:
        """Return every mapping of some cells, each with an innermost loop at DRAM."""
        first = np.stack([splits.first[:-1][cells[:, loop]] for loop, splits in enumerate(self.splits)], axis=1)
        counts = np.stack([np.diff(splits.first)[cells[:, loop]] for loop, splits in enumerate(self.splits)], axis=1)
        of_cell = counts.prod(axis=1)
        rows = np.repeat(np.arange(len(cells)), of_cell)
        number = np.arange(len(rows)) - np.repeat(np.cumsum(of_cell) - of_cell, of_cell)
        spatial = np.ones((len(rows), len(self.hardware.levels), len(LOOPS)))
        inner = np.ones((len(rows), len(LOOPS)))
        for loop, splits in enumerate(self.splits):
            chosen = first[rows, loop] + number % counts[rows, loop]
            number = number // counts[rows, loop]
            inner[:, loop], spatial[:, :, loop] = splits.inner[chosen], splits.copies[chosen]
        has_room = np.all(spatial.prod(axis=2) <= axis_rooms(self.hardware), axis=1)
        rows, inner, spatial = rows[has_room], inner[has_room], spatial[has_room]
        return tiled_mappings(self.nests, self.hardware, inner, spatial, ORDERS[inner_loops[rows]])


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


def tiled_mappings(
    nests: Nests, hardware: Hardware, factors: np.ndarray, spatial: np.ndarray, outer_order: np.ndarray
) -> Mappings:
    """Return mappings of tiles, the loops of a tile at its level and those from tile to tile at DRAM."""
    temporal = np.ones_like(spatial)
    temporal[:, tile_level(hardware)] = factors
    temporal[:, 0] *= np.ceil(nests.extents / (factors * spatial.prod(axis=1)))
    order = np.empty(spatial.shape, dtype=np.int64)
    order[:] = _inside_order(hardware)
    order[:, 0] = outer_order
    return Mappings(temporal, spatial, order)

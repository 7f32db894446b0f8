"""Lower bounds of what the mappings of a cell cost: energy and cycles that no split of its loops is below.

A *cell* is a size of the tile along each loop. Its steps at DRAM are known, so its traffic there is, for each operand
that the innermost loop at DRAM may leave in place. Further inside, each loop is taken to be split as best suits it:
with the fewest steps, the most copies and the smallest tile. A bound takes less time than a cost, and most cells end
with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Hardware
from common.design_space.mapping.arrays import NUMPY
from common.design_space.mapping.cost import Figures
from common.design_space.mapping.loop_splits import LoopSplits, axis_rooms
from common.design_space.mapping.placement import Placement, resident_level
from common.design_space.mapping.traffic import (
    RELEVANT,
    WINDOW_LOOPS,
    C,
    G,
    K,
    N,
    Nests,
    P,
    Q,
    R,
    S,
    overlap,
    window_sum,
)
from common.workload.loop_nests import LOOPS, LoopNest

Numbers = npt.NDArray[np.float64]
# What the innermost loop at DRAM leaves in place, and the loops that do. G leaves nothing.
STAYS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("weight", (P, Q, N)),
    ("input", (K,)),
    ("output", (R, S, C)),
    ("", (G,)),
)
EVERY_LOOP = np.ones(len(LOOPS), dtype=bool)
ROUNDING = 1e-12  # relative errors of sums


@dataclass(frozen=True)
class CellBounds:
    """The cells of a batch.

    Attributes:
        nest: the nest.
        hardware: the accelerator.
        splits: of each loop.
        tile_level: the level of the loops of a tile.
        cells: index of the size of the tile, by cell and loop.
    """

    nest: LoopNest
    hardware: Hardware
    splits: Sequence[LoopSplits]
    tile_level: int
    cells: npt.NDArray[np.int64]

    @cached_property
    def outer(self) -> Numbers:
        """Steps at DRAM, by cell and loop."""
        return self._gathered([splits.outer for splits in self.splits])

    @cached_property
    def inner(self) -> Numbers:
        """The fewest steps inside the tile, by cell and loop."""
        return self._gathered([splits.least_inner for splits in self.splits])

    @cached_property
    def _tiles(self) -> list[Numbers]:
        """The smallest tiles, by level, then by cell and loop."""
        least = [splits.least_tiles(self.tile_level) for splits in self.splits]
        return [self._gathered([tiles[:, level] for tiles in least]) for level in range(len(self.hardware.levels))]

    def _gathered(self, values: Sequence[np.ndarray]) -> Numbers:
        return np.stack([of_loop[self.cells[:, loop]] for loop, of_loop in enumerate(values)], axis=0).T * 1.0

    @cached_property
    def extents(self) -> Numbers:
        return np.array([*self.nest.bounds.values()], dtype=np.float64)

    @cached_property
    def may_stay(self) -> npt.NDArray[np.bool_]:
        """Whether a loop steps at DRAM that leaves an operand in place, by cell and entry of :data:`STAYS`."""
        runs = np.stack([(self.outer[:, loops] > 1).any(axis=1) for _, loops in STAYS], axis=1)
        runs[:, -1] = ~runs[:, :-1].any(axis=1)  # another loop is at least as good as G
        return runs

    def room(self, placement: Placement) -> Numbers:
        """Return the most words that tiles leave for resident maps; below 0 where no split of the cell fits."""
        chip_level, room = resident_level(self.hardware), np.full(len(self.cells), np.inf)
        for index, level in enumerate(self.hardware.levels):
            held = level.holds - placement.on_chip if index == chip_level else level.holds
            left = level.capacity_words - sum(self._tile_words(operand, index) for operand in held)
            room = np.where(left < 0, -1.0, room)
            if index == chip_level:
                room = np.where(room < 0, room, left)
        return room

    def _tile_words(self, operand: str, level: int) -> Numbers:
        tile = self._tiles[level]
        if operand != "input":
            return np.asarray(tile[:, RELEVANT[operand]].prod(axis=1))
        words = tile[:, N] * tile[:, G] * tile[:, C]
        for (output, tap), (stride, dilation) in zip(WINDOW_LOOPS, self._distances, strict=True):
            words = words * ((tile[:, output] - 1) * stride + (tile[:, tap] - 1) * dilation + 1)
        return words

    @property
    def _distances(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.nest.stride_p, self.nest.dilation_r), (self.nest.stride_q, self.nest.dilation_s)

    def innermost(self, chosen: npt.NDArray[np.int64], stays: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the best innermost loop at DRAM of cells, each with an entry of :data:`STAYS`."""
        return np.asarray(self._best_loops[stays, chosen])

    @cached_property
    def _best_loops(self) -> npt.NDArray[np.int64]:
        """The innermost loop that keeps most of the input, by entry of :data:`STAYS` and cell."""
        best = []
        for _, loops in STAYS:
            kept = [np.where(self.outer[:, loop] > 1, self._saved.get(loop, 0.0), -1.0) for loop in loops]
            best.append(np.array(loops)[np.argmax(kept, axis=0)])
        return np.array(best)

    @cached_property
    def _spans(self) -> list[Numbers]:
        """Input positions of all tiles, rows and columns."""
        distances = Nests.of([self.nest]).distances
        return [np.asarray(window_sum(self.extents, self.outer, *pair))
                for pair in zip(WINDOW_LOOPS, distances, strict=True)]  # fmt: skip

    @cached_property
    def _saved(self) -> dict[int, Numbers]:
        """Input elements of all tiles that stay when a loop is the innermost at DRAM."""
        saved, size = {}, self._tiles[min(1, len(self.hardware.levels) - 1)]
        planes = self.extents[N] * self.extents[G] * self.extents[C]
        for at, (loops, distances) in enumerate(zip(WINDOW_LOOPS, Nests.of([self.nest]).distances, strict=True)):
            for loop, other, pair in ((loops[0], loops[1], distances[::-1]), (loops[1], loops[0], distances)):
                shared = np.asarray(overlap(self.extents, size, self.outer, other, pair, NUMPY))
                saved[loop] = (self.outer[:, loop] - 1) * shared * self._spans[1 - at] * planes
        return saved

    def costs(self, placement: Placement, figures: Figures) -> tuple[Numbers, Numbers]:
        """Return cycles and energy in pJ that no mapping of a cell is below, by cell and entry of :data:`STAYS`."""
        both = [self._costs(stays, loops, placement, figures) for stays, loops in STAYS]
        cycles, energy = (np.stack(values, axis=1) for values in zip(*both, strict=True))
        return cycles, energy

    def _costs(
        self, stays: str, loops: tuple[int, ...], placement: Placement, figures: Figures
    ) -> tuple[Numbers, Numbers]:
        levels = self.hardware.levels
        none = np.zeros(len(self.cells))
        words = [none + sum(placement.words_at(index)) for index in range(len(levels))]
        blocks = [none + sum(-(-count // level.block_words) for count in placement.words_at(index))
                  for index, level in enumerate(levels)]  # fmt: skip
        for operand in RELEVANT:
            for index, moved in self._moved(operand, stays, loops, placement):
                words[index] = words[index] + moved
                blocks[index] = blocks[index] + np.ceil(moved / levels[index].block_words * (1 - ROUNDING))
        pj_per_word, words_per_cycle, mac_pj = map(
            np.asarray, (figures.pj_per_word, figures.words_per_cycle, figures.mac_pj)
        )
        energy, cycles = self.nest.macs * mac_pj, self._steps
        for index, level in enumerate(levels):
            energy = energy + blocks[index] * level.block_words * pj_per_word[..., index]
            copies = 1.0 if level.bandwidth_of == "column" else self._most_copies(range(index), EVERY_LOOP)
            cycles = np.maximum(cycles, words[index] / copies / words_per_cycle[..., index])
        return np.ceil(cycles * (1 - ROUNDING)), np.asarray(energy)

    @cached_property
    def _steps(self) -> Numbers:
        rooms = prod(axis_rooms(self.hardware))
        return np.asarray(np.maximum((self.outer * self.inner).prod(axis=1), self.nest.macs / rooms))

    @cached_property
    def _copies(self) -> list[Numbers]:
        """The most copies, by level, then by cell and loop."""
        most = [splits.most_copies for splits in self.splits]
        return [self._gathered([copies[:, level] for copies in most]) for level in range(len(self.hardware.levels))]

    def _most_copies(self, levels: range, loops: np.ndarray) -> Numbers:
        """Return the most copies below some levels, of some loops."""
        total = np.ones(len(self.cells))
        for level in levels:
            if (room := axis_rooms(self.hardware)[level]) > 1:
                total = total * np.minimum(self._copies[level][:, loops].prod(axis=1), room)
        return total

    def _moved(
        self, operand: str, stays: str, loops: tuple[int, ...], placement: Placement
    ) -> list[tuple[int, Numbers]]:
        """Return the words that an operand reads and that it writes at each level, as pairs of level and words."""
        holders = placement.holders(operand, self.hardware)
        moved = []
        for index, inner in zip(holders, [*holders[1:], len(self.hardware.levels)], strict=True):
            served = self._arriving(operand, inner, stays, loops)
            if inner == len(self.hardware.levels):
                served = served / self._most_copies(range(index, inner), ~RELEVANT[operand])
            if operand != "output":
                moved.append((index, served))
                if index != holders[0]:
                    moved.append((index, self._arriving(operand, index, stays, loops)))
            else:
                size = self._size(operand)
                back = -size if index == holders[0] else 0.0
                tiles = 0.0 if index == holders[0] else self._arriving(operand, index, stays, loops) - size
                moved += [(index, served + back), (index, served + tiles)]
        return moved

    def _size(self, operand: str) -> float:
        return float(self.extents[RELEVANT[operand]].prod())

    def _arriving(self, operand: str, level: int, stays: str, loops: tuple[int, ...]) -> Numbers:
        """Return the words that fill the tiles of a level, or that reach the multipliers."""
        if level == len(self.hardware.levels):
            return np.full(len(self.cells), float(self.nest.macs))
        again = self.outer[:, ~RELEVANT[operand]].prod(axis=1)
        repeats = np.ones(len(self.cells)) if operand == stays else again
        if level > self.tile_level:  # a step inside the tile brings all of them again
            steps_inside = (self.inner[:, RELEVANT[operand]] > 1).any(axis=1)
            repeats = np.where(steps_inside, again, repeats)
        if operand != "input":
            return np.asarray(self._size(operand) * repeats)
        planes = self.extents[N] * self.extents[G] * self.extents[C]
        if level > self.tile_level:
            rows, columns = (max(self.extents[[*loops_of_axis]]) for loops_of_axis in WINDOW_LOOPS)
            return np.asarray(planes * rows * columns * repeats)
        saved = [self._saved[loop] for loop in loops if loop in self._saved]
        most = np.max([np.zeros(len(self.cells)), *saved], axis=0)
        return np.asarray((planes * self._spans[0] * self._spans[1] - most) * repeats)

"""Lower bounds of energy and cycles of the mappings of a cell.

A *cell* is a slice of the chains of each loop (all chains, those with one size of the tile inside DRAM, or a single
chain), and an operand that the innermost loop at DRAM leaves in place. The bound of each figure assumes the division of
each loop that is best for this figure: the fewest steps outside of a memory, the most copies and the smallest tile. It
assumes the order of loops that is best for each operand. A bound takes less time to compute than a cost, and excludes
most cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Hardware
from common.design_space.mapping.arrays import NUMPY
from common.design_space.mapping.cost import Figures
from common.design_space.mapping.placement import Placement, resident_level
from common.design_space.mapping.space.loop_chains import FanoutPlace, LoopChains
from common.design_space.mapping.tiled_rtl import tiled_cycles
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
    tile_words,
    window_sum,
)
from common.design_space.memoized import memoized
from common.workload.loop_nests import LoopNest

Numbers = npt.NDArray[np.float64]
# What the innermost loop at DRAM leaves in place, and the loops that do. G leaves nothing.
STAYS = {"weight": (P, Q, N), "input": (K,), "output": (R, S, C), "": (G,)}
ROUNDING = 1e-12  # relative errors of sums


@dataclass(frozen=True)
class CellBounds:
    """The cells of a batch, as slices of the chains of each loop, by cell and loop.

    ``stays`` is everywhere the operand that the innermost loop at DRAM leaves in place.
    """

    nest: LoopNest
    hardware: Hardware
    chains: Sequence[LoopChains]
    places: Sequence[FanoutPlace]
    cells: npt.NDArray[np.int64]

    @memoized
    def _of_slices(self, figure: str) -> list[Numbers]:
        """Return a figure of :meth:`LoopChains.by_slice` by level or place in space, then by cell and loop."""
        by_loop = [chains.by_slice(figure)[self.cells[:, loop]] for loop, chains in enumerate(self.chains)]
        return [np.stack([part[:, at] for part in by_loop], axis=1).astype(float) for at in range(by_loop[0].shape[1])]

    @cached_property
    def outer(self) -> Numbers:
        """The fewest steps at DRAM, by cell and loop."""
        return self._of_slices("fewest")[0]

    @cached_property
    def nests(self) -> Nests:
        return Nests.of([self.nest])

    @cached_property
    def figures(self) -> Figures:
        return Figures.of([self.hardware])

    @cached_property
    def extents(self) -> Numbers:
        return np.array([*self.nest.bounds.values()], dtype=np.float64)

    def may_stay(self, stays: str) -> npt.NDArray[np.bool_]:
        """Return, by cell, whether a loop that leaves an operand in place may step at DRAM."""
        runs = {operand: (self.outer[:, loops] > 1).any(axis=1) for operand, loops in STAYS.items()}
        if not stays:
            return np.asarray(~np.any([runs[operand] for operand in RELEVANT], axis=0))  # G is no better than others
        may = (self._of_slices("most_outer")[0][:, STAYS[stays]] > 1).any(axis=1)
        stationary = self.hardware.levels[0].stationary
        return np.asarray(may if stationary in (None, stays) else may & ~runs[stationary])

    @cached_property
    def _has_windows(self) -> bool:
        """Whether the tiles of the input are known, that is, no cell has all sizes along a loop of a window."""
        return bool((self.cells[:, [P, Q, R, S]] > 0).all())

    @memoized
    def room(self, on_chip: frozenset[str]) -> Numbers:
        """Return the most words that tiles leave free for resident maps; below 0 where no mapping of the cell fits."""
        chip_level, room = resident_level(self.hardware), np.full(len(self.cells), np.inf)
        for place, copies in zip(self.places, self._of_slices("least_copies"), strict=True):
            room = np.where(copies.prod(axis=1) > place.size, -1.0, room)
        for index, level in enumerate(self.hardware.levels):
            held = level.keeps - on_chip if index == chip_level else level.keeps
            words = [self._tile_words(operand, index) * level.element_words(operand) for operand in held]
            left = level.capacity_words - sum(words)
            room = np.where(left < 0, -1.0, room)
            if index == chip_level:
                room = np.where(room < 0, room, left)
        return room

    def spills(self, stays: str, placement: Placement) -> npt.NDArray[np.bool_]:
        """Return, by cell, whether partial sums would reach a resident result, which cannot hold them."""
        if "output" not in placement.on_chip:
            return np.zeros(len(self.cells), dtype=bool)
        levels = len(self.hardware.levels)
        inner = [*placement.holders("output", self.hardware), levels][1]
        arriving = self._arriving("output", inner, stays)
        if inner == levels:
            arriving = arriving / self._most_copies(range(levels), "output")
        return np.asarray(arriving > self._size("output") * (1 + 1e-9))

    @memoized
    def _tile_words(self, operand: str, level: int) -> Numbers:
        return np.asarray(tile_words(operand, self._of_slices("tiles")[level], self.nests, NUMPY))

    @cached_property
    def _spans(self) -> list[Numbers]:
        """Input positions of all tiles, rows and columns."""
        axes = zip(WINDOW_LOOPS, self.nests.distances, strict=True)
        return [np.asarray(window_sum(self.extents, self.outer, *axis)) for axis in axes]

    @cached_property
    def _saved(self) -> dict[int, Numbers]:
        """Input elements of all tiles that stay on the chip when a loop is the innermost at DRAM."""
        saved, size = {}, self._of_slices("tiles")[self._first_tile_level]
        planes = self.extents[N] * self.extents[G] * self.extents[C]
        for at, (loops, distances) in enumerate(zip(WINDOW_LOOPS, self.nests.distances, strict=True)):
            for loop, other, pair in ((loops[0], loops[1], distances[::-1]), (loops[1], loops[0], distances)):
                shared = np.asarray(overlap(self.extents, size, self.outer, other, pair, NUMPY))
                saved[loop] = (self.outer[:, loop] - 1) * shared * self._spans[1 - at] * planes
        return saved

    def costs(self, stays: str, placement: Placement) -> tuple[Numbers, Numbers]:
        """Return lower bounds of the cycles and of the energy in pJ of a cell's mappings."""
        cycles, energy, moving = self._nest_costs(stays, Placement(placement.on_chip))
        for index, level in enumerate(self.hardware.levels):
            if streams := placement.words_at(index):
                copies = 1.0 if level.bandwidth_of == "column" else self._most_copies(range(index))
                beside = sum(streams) / copies / np.asarray(self.figures.words_per_cycle)[..., index]
                cycles = np.maximum(cycles, moving[index] + beside)
                blocks = sum(-(-count // level.block_words) for count in streams)
                energy = energy + blocks * level.block_words * np.asarray(self.figures.pj_per_word)[..., index]
        if (rtl := self.hardware.searched_rtl) is not None:
            least = tiled_cycles(self.outer, self.nests, self.hardware, rtl, placement, is_bound=True)
            cycles = np.maximum(cycles, np.asarray(least))
        return np.ceil(cycles * (1 - ROUNDING)), energy

    @memoized
    def _nest_costs(self, stays: str, placement: Placement) -> tuple[Numbers, Numbers, list[Numbers]]:
        """Return cycles, energy, and the cycles of each level, without words that move beside the nest."""
        levels, figures = self.hardware.levels, self.figures
        words, blocks = ([np.zeros(len(self.cells)) for _ in levels] for _ in range(2))
        for operand in RELEVANT:
            for index, elements in self._moved(operand, stays, placement):
                moved = elements * levels[index].element_words(operand)
                words[index] = words[index] + moved
                blocks[index] = blocks[index] + np.ceil(moved / levels[index].block_words * (1 - ROUNDING))
        pj_per_word, words_per_cycle, mac_pj = map(
            np.asarray, (figures.pj_per_word, figures.words_per_cycle, figures.mac_pj)
        )
        energy, cycles = self.nest.macs * mac_pj + self._network_energy(stays, placement), self._steps
        moving = list[Numbers]()
        for index, level in enumerate(levels):
            energy = energy + blocks[index] * level.block_words * pj_per_word[..., index]
            copies = 1.0 if level.bandwidth_of == "column" else self._most_copies(range(index))
            moving.append(np.asarray(words[index] / copies / words_per_cycle[..., index]))
            cycles = np.maximum(cycles, moving[-1])
        return cycles, np.asarray(energy), moving

    def _network_energy(self, stays: str, placement: Placement) -> Numbers:
        """Return the least energy of the networks: a word goes over the hops, and to each further copy over a link."""
        levels, energy = self.hardware.levels, np.zeros(len(self.cells))
        for operand in RELEVANT:
            holders = placement.holders(operand, self.hardware)
            for outer, inner in pairwise([*holders, len(levels)]):
                for index in range(outer, inner):
                    if (network := levels[index].network) is None:
                        continue
                    arriving = self._arriving(operand, inner, stays) * (1 - ROUNDING)
                    above, below = (
                        arriving / self._most_copies(range(begin, inner), operand) for begin in (index, index + 1)
                    )
                    links = above * max(0.0, network.hops - 1) + (below if network.hops >= 1 else above * network.hops)
                    energy = energy + links * levels[outer].bytes_of(operand) * network.hop_pj_per_byte
        return energy

    @cached_property
    def _steps(self) -> Numbers:
        rooms = prod(place.size for place in self.places)
        return np.asarray(np.maximum(self._of_slices("prefix")[-1].prod(axis=1), self.nest.macs / rooms))

    @memoized
    def _most_copies(self, levels: range, stays: str = "") -> Numbers:
        """Return the most copies below some levels, of the loops that leave an operand in place, or else of all."""
        total, loops = np.ones(len(self.cells)), ~RELEVANT[stays] if stays else slice(None)
        for place, copies in zip(self.places, self._of_slices("most_copies"), strict=True):
            if place.level in levels:
                total = total * np.minimum(copies[:, loops].prod(axis=1), place.size)
        return total

    def _moved(self, operand: str, stays: str, placement: Placement) -> list[tuple[int, Numbers]]:
        """Return the words of an operand that each level reads and writes, as pairs of level and words."""
        holders, size = placement.holders(operand, self.hardware), self._size(operand)
        moved = []
        for index, inner in pairwise([*holders, len(self.hardware.levels)]):
            served = self._arriving(operand, inner, stays)
            if inner == len(self.hardware.levels):
                served = served / self._most_copies(range(index, inner), operand)
            if index == holders[0]:
                moved += [(index, served)] if operand != "output" else [(index, served - size), (index, served)]
            else:
                filled = self._arriving(operand, index, stays)
                moved += [(index, served), (index, filled if operand != "output" else served + (filled - size))]
        return moved

    def _size(self, operand: str) -> float:
        return float(self.extents[RELEVANT[operand]].prod())

    @memoized
    def _arriving(self, operand: str, level: int, stays: str) -> Numbers:
        """Return the words that fill the tiles of a level, or those that reach the multipliers."""
        if level == len(self.hardware.levels):
            return np.full(len(self.cells), float(self.nest.macs))
        repeats = self._repeats(operand, level, stays)
        if operand != "input":
            return np.asarray(self._size(operand) * repeats)
        planes = self.extents[N] * self.extents[G] * self.extents[C]
        if level > self._first_tile_level or not self._has_windows:
            rows, columns = (max(self.extents[[*loops_of_axis]]) for loops_of_axis in WINDOW_LOOPS)
            return np.asarray(planes * rows * columns * repeats)
        saved = [self._saved[loop] for loop in STAYS[stays] if loop in self._saved]
        most = np.max([np.zeros(len(self.cells)), *saved], axis=0)
        return np.asarray((planes * self._spans[0] * self._spans[1] - most) * repeats)

    @cached_property
    def _first_tile_level(self) -> int:
        """The innermost level whose tiles are those that DRAM steps through."""
        levels = self.hardware.levels
        if levels[0].fanouts:
            return 0
        return next((index for index, level in enumerate(levels) if index and (level.keeps or level.fanouts)), 0)

    def _repeats(self, operand: str, level: int, stays: str) -> Numbers:
        """Return how often at least the loops outside of a level bring the words of an operand.

        The loops next to the tile that leave the operand in place bring nothing again: those of the level outside, and
        those of each further level as long as no loop in between moves the operand.
        """
        moves = RELEVANT[operand]
        repeats, is_run = np.zeros(len(self.cells)), np.ones(len(self.cells), dtype=bool)
        for outside in range(level - 1, -1, -1):
            begin = outside if outside or operand == stays else 1
            again = self._of_slices("prefix")[begin][:, ~moves].prod(axis=1)
            repeats = np.where(is_run, again, repeats)
            is_run = is_run & (self._of_slices("fewest")[outside][:, moves] == 1).all(axis=1)
        return repeats

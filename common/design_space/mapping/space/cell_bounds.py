"""Lower bounds of energy and cycles of the mappings of a cell.

A *cell* is a slice of the chains of each loop (all chains, those with one size of the tile inside DRAM, or a single
chain), and an operand that the innermost loop at DRAM leaves in place. The bound of each figure assumes the division of
each loop that is best for this figure: the fewest steps outside of a memory, the most copies and the smallest tile. It
assumes the order of loops that is best for each operand. A bound takes less time to compute than a cost, and excludes
most cells.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
        hardware: the accelerator, in which some operands may bypass some levels.
        chains: of each loop.
        places: the fan-outs of the array.
        cells: slice of the chains, by cell and loop.
    """

    nest: LoopNest
    hardware: Hardware
    chains: Sequence[LoopChains]
    places: Sequence[FanoutPlace]
    cells: npt.NDArray[np.int64]
    _known: dict[Hashable, Numbers] = field(default_factory=dict)
    _of_nests: dict[Hashable, tuple[Numbers, Numbers, list[Numbers]]] = field(default_factory=dict)

    @cached_property
    def outer(self) -> Numbers:
        """Steps at DRAM, by cell and loop."""
        return self._fewest[0]

    @cached_property
    def _fewest(self) -> list[Numbers]:
        """The fewest steps, by level, then by cell and loop."""
        return self._gathered([chains.fewest for chains in self.chains])

    @cached_property
    def _prefix(self) -> list[Numbers]:
        """The fewest steps outside of each level, and last the fewest steps in all, by cell and loop."""
        return self._gathered([chains.prefix for chains in self.chains])

    @cached_property
    def _tiles(self) -> list[Numbers]:
        """The smallest tiles, by level, then by cell and loop."""
        return self._gathered([chains.tiles for chains in self.chains])

    @cached_property
    def _copies(self) -> list[Numbers]:
        """The most copies, by place in space, then by cell and loop."""
        return self._gathered([chains.most_copies for chains in self.chains])

    @cached_property
    def _least_copies(self) -> list[Numbers]:
        """The fewest copies, by place in space, then by cell and loop."""
        return self._gathered([chains.least_copies for chains in self.chains])

    def _gathered(self, values: Sequence[np.ndarray]) -> list[Numbers]:
        """Return values of slices by their second axis, then by cell and loop."""
        by_loop = [of_loop[self.cells[:, loop]] for loop, of_loop in enumerate(values)]
        return [np.stack([part[:, at] for part in by_loop], axis=1) * 1.0 for at in range(values[0].shape[1])]

    @cached_property
    def extents(self) -> Numbers:
        return np.array([*self.nest.bounds.values()], dtype=np.float64)

    def may_stay(self, entry: int) -> npt.NDArray[np.bool_]:
        """Return, by cell, whether a loop that leaves an operand in place may step at DRAM.

        Args:
            entry: of :data:`STAYS`.
        """
        operand, loops = STAYS[entry]
        runs = np.stack([(self.outer[:, others] > 1).any(axis=1) for _, others in STAYS[:-1]], axis=1)
        if not operand:
            return np.asarray(~runs.any(axis=1))  # another loop is at least as good as G
        may = (self._most_outer[:, loops] > 1).any(axis=1)
        if (stationary := self.hardware.levels[0].stationary) not in (None, operand):
            may &= ~runs[:, [operand for operand, _ in STAYS].index(stationary)]
        return np.asarray(may)

    @cached_property
    def _most_outer(self) -> Numbers:
        """The most steps at DRAM, by cell and loop."""
        return self._gathered([chains.most_outer for chains in self.chains])[0]

    @cached_property
    def _has_windows(self) -> bool:
        """Whether the tiles of the input are known, that is, no cell has all sizes along a loop of a window."""
        return bool((self.cells[:, [P, Q, R, S]] > 0).all())

    def room(self, placement: Placement) -> Numbers:
        """Return the most words that tiles leave free for resident maps; below 0 where no mapping of the cell fits."""
        key = "room", placement.on_chip
        if key not in self._known:
            self._known[key] = self._counted_room(placement)
        return self._known[key]

    def _counted_room(self, placement: Placement) -> Numbers:
        chip_level, room = resident_level(self.hardware), np.full(len(self.cells), np.inf)
        for place, copies in zip(self.places, self._least_copies, strict=True):
            room = np.where(copies.prod(axis=1) > place.size, -1.0, room)
        for index, level in enumerate(self.hardware.levels):
            held = level.keeps - placement.on_chip if index == chip_level else level.keeps
            words = [self._tile_words(operand, index) * level.element_words(operand) for operand in held]
            left = level.capacity_words - sum(words)
            room = np.where(left < 0, -1.0, room)
            if index == chip_level:
                room = np.where(room < 0, room, left)
        return room

    def spills(self, stays: str, loops: tuple[int, ...], placement: Placement) -> npt.NDArray[np.bool_]:
        """Return, by cell, whether partial sums would reach a resident result, which cannot hold them."""
        if "output" not in placement.on_chip:
            return np.zeros(len(self.cells), dtype=bool)
        _, *inside = placement.holders("output", self.hardware)
        arriving = (
            self._arriving("output", inside[0], stays, loops) if inside else np.full(len(self.cells), self.nest.macs)
        )
        if not inside:
            arriving = arriving / self._most_copies(range(len(self.hardware.levels)), ~RELEVANT["output"])
        return np.asarray(arriving > self._size("output") * (1 + 1e-9))

    def _tile_words(self, operand: str, level: int) -> Numbers:
        key = "tile", operand, level
        if key not in self._known:
            self._known[key] = self._counted_tile_words(operand, level)
        return self._known[key]

    def _counted_tile_words(self, operand: str, level: int) -> Numbers:
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

    @cached_property
    def _spans(self) -> list[Numbers]:
        """Input positions of all tiles, rows and columns."""
        distances = Nests.of([self.nest]).distances
        return [np.asarray(window_sum(self.extents, self.outer, *pair))
                for pair in zip(WINDOW_LOOPS, distances, strict=True)]  # fmt: skip

    @cached_property
    def _saved(self) -> dict[int, Numbers]:
        """Input elements of all tiles that stay on the chip when a loop is the innermost at DRAM."""
        saved, size = {}, self._tiles[self._first_tile_level]
        planes = self.extents[N] * self.extents[G] * self.extents[C]
        for at, (loops, distances) in enumerate(zip(WINDOW_LOOPS, Nests.of([self.nest]).distances, strict=True)):
            for loop, other, pair in ((loops[0], loops[1], distances[::-1]), (loops[1], loops[0], distances)):
                shared = np.asarray(overlap(self.extents, size, self.outer, other, pair, NUMPY))
                saved[loop] = (self.outer[:, loop] - 1) * shared * self._spans[1 - at] * planes
        return saved

    def costs(
        self, stays: str, loops: tuple[int, ...], placement: Placement, figures: Figures
    ) -> tuple[Numbers, Numbers]:
        """Return lower bounds of the cycles and of the energy in pJ of a cell's mappings.

        Args:
            stays: the operand that the innermost loop at DRAM leaves in place.
            loops: those that leave it in place, as in :data:`STAYS`.
            placement: where the operands are, and what moves beside the nest.
        """
        key = "costs", placement.on_chip, stays
        if key not in self._of_nests:
            self._of_nests[key] = self._nest_costs(stays, loops, Placement(placement.on_chip), figures)
        cycles, energy, moving = self._of_nests[key]
        for index, level in enumerate(self.hardware.levels):
            if streams := placement.words_at(index):
                copies = 1.0 if level.bandwidth_of == "column" else self._most_copies(range(index), EVERY_LOOP)
                beside = sum(streams) / copies / np.asarray(figures.words_per_cycle)[..., index]
                cycles = np.maximum(cycles, moving[index] + beside)
                blocks = sum(-(-count // level.block_words) for count in streams)
                energy = energy + blocks * level.block_words * np.asarray(figures.pj_per_word)[..., index]
        if (rtl := self.hardware.searched_rtl) is not None:
            least = tiled_cycles(self.outer, Nests.of([self.nest]), self.hardware, rtl, placement, is_bound=True)
            cycles = np.maximum(cycles, np.asarray(least))
        return np.ceil(cycles * (1 - ROUNDING)), energy

    def _nest_costs(
        self, stays: str, loops: tuple[int, ...], placement: Placement, figures: Figures
    ) -> tuple[Numbers, Numbers, list[Numbers]]:
        """Return cycles, energy, and the cycles of each level, without words that move beside the nest."""
        levels = self.hardware.levels
        words, blocks = ([np.zeros(len(self.cells)) for _ in levels] for _ in range(2))
        for operand in RELEVANT:
            for index, elements in self._moved(operand, stays, loops, placement):
                moved = elements * levels[index].element_words(operand)
                words[index] = words[index] + moved
                blocks[index] = blocks[index] + np.ceil(moved / levels[index].block_words * (1 - ROUNDING))
        pj_per_word, words_per_cycle, mac_pj = map(
            np.asarray, (figures.pj_per_word, figures.words_per_cycle, figures.mac_pj)
        )
        energy, cycles = self.nest.macs * mac_pj + self._network_energy(stays, loops, placement), self._steps
        moving = list[Numbers]()
        for index, level in enumerate(levels):
            energy = energy + blocks[index] * level.block_words * pj_per_word[..., index]
            copies = 1.0 if level.bandwidth_of == "column" else self._most_copies(range(index), EVERY_LOOP)
            moving.append(np.asarray(words[index] / copies / words_per_cycle[..., index]))
            cycles = np.maximum(cycles, moving[-1])
        return cycles, np.asarray(energy), moving

    def _network_energy(self, stays: str, loops: tuple[int, ...], placement: Placement) -> Numbers:
        """Return the least energy of the networks: a word goes over the hops, and to each further copy over a link."""
        levels, energy = self.hardware.levels, np.zeros(len(self.cells))
        for operand in RELEVANT:
            holders = placement.holders(operand, self.hardware)
            for outer, inner in zip(holders, [*holders[1:], len(levels)], strict=True):
                for index in range(outer, inner):
                    if (network := levels[index].network) is None:
                        continue
                    arriving = self._arriving(operand, inner, stays, loops) * (1 - ROUNDING)
                    above, below = (
                        arriving / self._most_copies(range(begin, inner), ~RELEVANT[operand])
                        for begin in (index, index + 1)
                    )
                    links = above * max(0.0, network.hops - 1) + (below if network.hops >= 1 else above * network.hops)
                    energy = energy + links * levels[outer].bytes_of(operand) * network.hop_pj_per_byte
        return energy

    @cached_property
    def _steps(self) -> Numbers:
        rooms = prod(place.size for place in self.places)
        return np.asarray(np.maximum(self._prefix[-1].prod(axis=1), self.nest.macs / rooms))

    def _most_copies(self, levels: range, loops: np.ndarray) -> Numbers:
        key = "copies", levels, loops.tobytes()
        if key not in self._known:
            self._known[key] = self._counted_copies(levels, loops)
        return self._known[key]

    def _counted_copies(self, levels: range, loops: np.ndarray) -> Numbers:
        total = np.ones(len(self.cells))
        for place, copies in zip(self.places, self._copies, strict=True):
            if place.level in levels:
                total = total * np.minimum(copies[:, loops].prod(axis=1), place.size)
        return total

    def _moved(
        self, operand: str, stays: str, loops: tuple[int, ...], placement: Placement
    ) -> list[tuple[int, Numbers]]:
        """Return the words of an operand that each level reads and writes, as pairs of level and words."""
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
        """Return the words that fill the tiles of a level, or those that reach the multipliers."""
        key = "arriving", operand, level, stays
        if key not in self._known:
            self._known[key] = self._counted_arriving(operand, level, stays, loops)
        return self._known[key]

    def _counted_arriving(self, operand: str, level: int, stays: str, loops: tuple[int, ...]) -> Numbers:
        if level == len(self.hardware.levels):
            return np.full(len(self.cells), float(self.nest.macs))
        repeats = self._repeats(operand, level, stays)
        if operand != "input":
            return np.asarray(self._size(operand) * repeats)
        planes = self.extents[N] * self.extents[G] * self.extents[C]
        if level > self._first_tile_level or not self._has_windows:
            rows, columns = (max(self.extents[[*loops_of_axis]]) for loops_of_axis in WINDOW_LOOPS)
            return np.asarray(planes * rows * columns * repeats)
        saved = [self._saved[loop] for loop in loops if loop in self._saved]
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
            again = self._prefix[begin][:, ~moves].prod(axis=1)
            repeats = np.where(is_run, again, repeats)
            is_run = is_run & (self._fewest[outside][:, moves] == 1).all(axis=1)
        return repeats

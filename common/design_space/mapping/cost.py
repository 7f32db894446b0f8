"""The cost of mapped nests on an accelerator: words moved at each level, cycles and energy.

docs/DESIGN_SPACE.md has the equations, docs/VALIDATION.md their difference from Timeloop's counts. All functions take a
batch, and have a gradient with PyTorch's arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from math import ceil

import numpy as np

from common.design_space.accelerator.hardware import Hardware, Level
from common.design_space.mapping.arrays import NUMPY, Array, Namespace
from common.design_space.mapping.mappings import Mappings
from common.design_space.mapping.placement import IN_MEMORY, Placement, resident_level
from common.design_space.mapping.tiled_rtl import tiled_cycles
from common.design_space.mapping.traffic import RELEVANT, Nesting, Nests
from common.design_space.memoized import memoized

UNBOUNDED = float("inf")
WORD_DIGITS = 6  # of a word; further digits are rounding errors of the sums


@dataclass(frozen=True)
class Figures:
    """Sizes of an accelerator as arrays, by level on the last axis: one for a batch of mappings, or one for each."""

    words_per_cycle: Array  # of one copy in use, or of the whole level where the bandwidth is given per column
    pj_per_word: Array
    capacity_words: Array
    mac_pj: Array  # energy of a multiply-accumulate

    @classmethod
    def of(cls, variants: Sequence[Hardware], xp: Namespace = NUMPY) -> Figures:
        """Return the sizes of variants of one accelerator; their first axis is the batch's."""
        tables = (
            [[_words_per_cycle(level, hardware) for level in hardware.levels] for hardware in variants],
            [[level.pj_per_word for level in hardware.levels] for hardware in variants],
            [[level.capacity_words for level in hardware.levels] for hardware in variants],
            [hardware.array.mac_pj for hardware in variants],
        )
        return cls(*(xp.asarray(np.array(table, dtype=np.float64)) for table in tables))


def _words_per_cycle(level: Level, hardware: Hardware) -> float:
    """Return the words per cycle of one copy, or of the whole level if the bandwidth is given per column."""
    if level.bytes_per_cycle is None:
        return UNBOUNDED
    times = hardware.array.columns if level.bandwidth_of == "column" else 1
    return times * level.bytes_per_cycle / level.word_bytes


@dataclass(frozen=True)
class MappingCost:
    """Costs of a batch of mapped nests."""

    reads: tuple[dict[str, Array], ...]  # words that are read at each level, by operand
    writes: tuple[dict[str, Array], ...]  # words that are written at each level, by operand
    compute_cycles: Array  # steps of the array
    level_cycles: tuple[Array, ...]  # cycles that each level needs to move its words
    # Energy of the multiply-accumulates, then of each level with the network below it
    energy_parts_pj: tuple[Array, ...]
    needed_words: tuple[Array, ...]  # words that one copy of each level must hold
    capacity_words: Array  # words that it holds
    used_elements: Array  # elements of the array that multiply at once
    xp: Namespace
    rtl_cycles: Array | None = None  # cycles of the RTL; None where they do not count

    def slowest_part(self, parts: Sequence[str]) -> str:
        """Return what bounds the first mapping: the multipliers or a level, by these names, or the RTL's commands."""
        of_first = [float(np.asarray(part)[0]) for part in self._parts]
        return [*parts, "rtl"][of_first.index(max(of_first))]

    @property
    def _parts(self) -> list[Array]:
        return [self.compute_cycles, *self.level_cycles, *([] if self.rtl_cycles is None else [self.rtl_cycles])]

    @cached_property
    def cycles(self) -> Array:
        """Cycles when computation and all transfers overlap: those of the slowest, and at least those of the RTL."""
        return self.xp.rounded_up(reduce(self.xp.module.maximum, self._parts))

    @cached_property
    def energy_pj(self) -> Array:
        return sum(self.energy_parts_pj[1:], self.energy_parts_pj[0])

    @cached_property
    def fits(self) -> Array:
        held = (words <= self.capacity_words[..., level] for level, words in enumerate(self.needed_words))
        return reduce(lambda others, own: others & own, held)


def cost(
    mappings: Mappings,
    nests: Nests,
    hardware: Hardware,
    figures: Figures | None = None,
    xp: Namespace = NUMPY,
    placement: Placement = IN_MEMORY,
) -> MappingCost:
    """Return what mapped nests cost.

    Args:
        mappings: the mappings, of any batch.
        nests: the nests; one for each mapping of the batch, or one for all.
        hardware: what the levels hold and how they are connected.
        figures: sizes for each mapping, where they differ; those of ``hardware`` if None.
        xp: the arrays' package.
        placement: the resident operands, and the words that move beside the nests.
    """
    sizes = figures or Figures.of([hardware], xp)
    return MappedBatch(Nesting.of(nests, mappings, xp), hardware, sizes).cost(placement)


@dataclass(frozen=True)
class _Moved:
    """The traffic of an operand, by level: elements read and written, words and blocks of both, energy of networks."""

    reads: Mapping[int, Array]
    writes: Mapping[int, Array]
    words: Mapping[int, Array]
    blocks: Mapping[int, Array]
    network_pj: Mapping[int, Array]


@dataclass(frozen=True)
class MappedBatch:
    """A batch of mapped nests. Their costs can be computed for several placements of the operands."""

    nesting: Nesting
    hardware: Hardware
    figures: Figures

    def cost(self, placement: Placement = IN_MEMORY) -> MappingCost:
        """Return what the nests cost with their operands in these places."""
        nesting, levels, xp = self.nesting, self.hardware.levels, self.nesting.xp
        moved = {operand: self._moved(operand, placement.holders(operand, self.hardware)) for operand in RELEVANT}
        macs = self._macs
        energies, cycles = [macs * self.figures.mac_pj], []
        for index, level in enumerate(levels):
            streams, block = placement.words_at(index), level.block_words
            of_level = [part for part in moved.values() if index in part.blocks]
            words = sum((part.words[index] for part in of_level), macs * 0.0)
            blocks = sum((part.blocks[index] for part in of_level), macs * 0.0)
            side_blocks = sum(ceil(count / block) for count in streams)
            energy = (blocks + side_blocks) * block * self.figures.pj_per_word[..., index]
            energies.append(
                sum((part.network_pj[index] for part in moved.values() if index in part.network_pj), energy)
            )
            copies = 1.0 if level.bandwidth_of == "column" else nesting.used[index]
            # One division after the other: a product with a rate without limit has no derivative.
            cycles.append((words + sum(streams)) / copies / self.figures.words_per_cycle[..., index])
        reads, writes = (
            tuple(
                {operand: verb[index] for operand, part in moved.items() if index in (verb := getattr(part, name))}
                for index in range(len(levels))
            )
            for name in ("reads", "writes")
        )
        needed, steps = self._needed_words(placement), self._steps
        capacity, used, rtl = self.figures.capacity_words, nesting.used[-1], None
        if (costs := self.hardware.searched_rtl) is not None:
            counts = xp.rounded_up(nesting.nests.extents / nesting.tiles[1])
            rtl = tiled_cycles(counts, nesting.nests, self.hardware, costs, placement, xp)
        return MappingCost(reads, writes, steps, tuple(cycles), tuple(energies), needed, capacity, used, xp, rtl)

    @cached_property
    def _steps(self) -> Array:
        return self.nesting.xp.module.prod(self.nesting.steps, axis=-1)

    @cached_property
    def _macs(self) -> Array:
        return self.nesting.xp.module.prod(self.nesting.nests.extents, axis=-1)

    @memoized
    def _moved(self, operand: str, holders: tuple[int, ...]) -> _Moved:
        reads, writes = self._movement(operand, holders)
        words, blocks = dict[int, Array](), dict[int, Array]()
        for index in holders:
            level = self.hardware.levels[index]
            counts = [verb[index] * level.element_words(operand) for verb in (reads, writes) if index in verb]
            words[index] = sum(counts[1:], counts[0])
            parts = [self.nesting.xp.rounded_up(count / level.block_words) for count in counts]
            blocks[index] = sum(parts[1:], parts[0])
        return _Moved(reads, writes, words, blocks, self._network_energy(operand, holders))

    def _needed_words(self, placement: Placement) -> tuple[Array, ...]:
        """Return the words that one copy of each level must hold, without resident maps."""
        needed = []
        for index, level in enumerate(self.hardware.levels):
            held = level.keeps - placement.on_chip if index == resident_level(self.hardware) else level.keeps
            tiles = [self.nesting.tile_words(operand, index) * level.element_words(operand) for operand in sorted(held)]
            needed.append(sum(tiles, 0.0 * self.nesting.used[index]))
        return tuple(needed)

    def _movement(self, operand: str, holders: Sequence[int]) -> tuple[dict[int, Array], dict[int, Array]]:
        """Return the elements of an operand that are read and written at each level that holds it."""
        reads: dict[int, Array] = {}
        writes: dict[int, Array] = {}
        arriving = [self._arriving(operand, index) for index in (*holders, self.nesting.levels)]
        for place, (index, inner) in enumerate(pairwise((*holders, self.nesting.levels))):
            # A word for several copies below is read once; partial sums of several copies are added on their way up.
            served = arriving[place + 1] / self._shared_copies(operand, index, inner)
            if operand != "output":
                reads[index] = served
                if place:
                    writes[index] = arriving[place]
            else:
                # The first update of a visit of a tile writes, the others read and write; a tile that leaves is read,
                # and one that comes back is written. Nothing is read back for the first visit, in which sums are begun.
                begun = self._begun(operand, index)
                reads[index], writes[index] = served - begun, served
                if place:
                    reads[index], writes[index] = served, served + arriving[place] - begun
        return reads, writes

    def _shared_copies(self, operand: str, first: int, last: int) -> Array:
        """Return how many copies of an element share one read above the fan-outs from ``first`` to before ``last``."""
        copies = self.nesting.copies(operand, first, last)
        for index in range(first, last):
            network = self.hardware.levels[index].network
            if network is not None and not network.shares(operand):
                copies = copies / self.nesting.copies(operand, index, index + 1)
        return copies

    def _network_energy(self, operand: str, holders: Sequence[int]) -> dict[int, Array]:
        """Return the energy of the networks that carry an operand, by the level above each of them.

        A word reaches its first copy over the hops of the network, and each further copy over one link more. Partial
        sums take the same links up, and one addition joins two of them. Sums that a tile brings back come down like
        other words.
        """
        energies: dict[int, Array] = {}
        for outer, inner in pairwise((*holders, self.nesting.levels)):
            arriving = self._arriving(operand, inner)
            for index in range(outer, inner):
                if (network := self.hardware.levels[index].network) is None:
                    continue
                below = arriving / self._shared_copies(operand, index + 1, inner)
                above = arriving / self._shared_copies(operand, index, inner)
                links = above * network.hops + (below - above)
                if operand == "output" and inner < self.nesting.levels:  # all but the first visits come down
                    links = links + links * (arriving - self._begun(operand, inner)) / arriving
                energies[index] = links * (self.hardware.levels[outer].bytes_of(operand) * network.hop_pj_per_byte)
                if operand == "output":
                    energies[index] = energies[index] + (below - above) * network.addition_pj
        return energies

    def _begun(self, operand: str, level: int) -> Array:
        return self.nesting.size(operand) * self.nesting.copies(operand, 0, level)

    def _arriving(self, operand: str, level: int) -> Array:
        """Return the words that arrive in all copies of a level; at the multipliers, one word for each operation."""
        if level == self.nesting.levels:
            return self._macs
        if level == 0:
            return self.nesting.size(operand)
        return self.nesting.fills(operand, level) * self.nesting.copies(operand, 0, level)


@dataclass(frozen=True, slots=True)
class StreamCost:
    """The cost of operators without a loop nest: cycles, and the energy of the multipliers and of each level."""

    cycles: float
    energy_parts_pj: tuple[float, ...]

    @property
    def energy_pj(self) -> float:
        return sum(self.energy_parts_pj)


def stream_cost(words: Sequence[Sequence[float]], macs: int, hardware: Hardware) -> StreamCost:
    """Return the cost of words that no loop nest moves, with all copies of each level in use.

    Args:
        words: words that are read or written at each level, one count for each stream.
        macs: multiply-accumulates, done by the whole array.
    """
    cycles, energies = [macs / hardware.array.elements], [macs * hardware.array.mac_pj]
    for level, streams in zip(hardware.levels, words, strict=True):
        copies = 1 if level.bandwidth_of == "column" else hardware.copies(level)
        cycles.append(sum(streams) / (_words_per_cycle(level, hardware) * copies))
        blocks = sum(ceil(count / level.block_words) for count in streams)
        energies.append(blocks * level.block_words * level.pj_per_word)
    return StreamCost(ceil(max(cycles)), tuple(energies))

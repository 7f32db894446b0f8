"""The cost of a fused group, for every size of its tiles: exact traffic, multiply-accumulates and peak residency.

The group is computed image by image, in strips of columns, each strip in tiles of rows from top to bottom, and within
a tile stage by stage. Of each map that is read from memory there are two ways: it is held, with all channels, from
its first reader in the tile to its last, or each reader streams it by itself, channel by channel. The weights of a
stage stay for the whole run, or are read again in every tile. Energy and cycles rise with the traffic, so of all
choices with equally many multiply-accumulates the one that moves the least is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from common.design_space.groups.axis_tiles import AxisTiles, axis_tiles, tile_sizes
from common.design_space.groups.tiled_group import TiledGroup
from common.design_space.results.cache import remembered
from common.design_space.search.fronts import lower_corners

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GroupTiling:
    """One way to compute a fused group."""

    rows: int  # rows of a tile, of the last layers' results
    columns: int
    keeps_halo: bool  # whether the rows of the halo stay on the chip from tile to tile
    held: tuple[bool, ...]  # for each map from outside the group, whether it is held
    resident_weights: tuple[bool, ...]  # for each stage, whether its weights stay on the chip
    moved_bits: int  # bits to and from memory
    macs: int  # multiply-accumulates, those of recomputed halos included
    peak_bits: int  # the most that is on the chip at a time


@dataclass(frozen=True, slots=True)
class _Axis:
    """The tiles of all sizes along one axis, side by side; ``starts`` says where the tiles of each size begin.

    The tiles here are distinct: most tiles of a size are alike. ``sums`` count all of them.
    """

    sizes: tuple[int, ...]
    counts: Numbers
    starts: Numbers
    lines: dict[str, Numbers]
    sums: dict[str, Numbers]


LINES = ("held", "fresh", "kept_before", "kept_after", "windows", "computed")


@lru_cache(maxsize=4096)
def _axis(group: TiledGroup, axis: int, keeps_halo: bool) -> _Axis:
    extents = group.maps[group.external_count + group.sinks[0]]
    sizes = tile_sizes((extents.rows, extents.columns)[axis])
    tiles_by_size = [axis_tiles(group, axis, size, keeps_halo=keeps_halo) for size in sizes]
    distinct = [_distinct(tiles) for tiles in tiles_by_size]
    lengths = [lines[LINES[0]].shape[1] for lines in distinct]
    return _Axis(
        sizes,
        np.array([tiles.tile_count for tiles in tiles_by_size]),
        np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64),
        {name: np.concatenate([lines[name] for lines in distinct], axis=1) for name in LINES},
        {name: np.stack([getattr(tiles, name).sum(axis=1) for tiles in tiles_by_size], axis=1) for name in LINES},
    )


def _distinct(tiles: AxisTiles) -> dict[str, Numbers]:
    table = np.concatenate([getattr(tiles, name) for name in LINES])
    _, kept = np.unique(table, axis=1, return_index=True)
    return {name: getattr(tiles, name)[:, kept] for name in LINES}


@lru_cache(maxsize=65536)
@remembered(GroupTiling)
def group_tilings(group: TiledGroup, capacity_bits: int) -> tuple[GroupTiling, ...]:
    """Return, of all tilings that fit, those that no other beats in both traffic and multiply-accumulates."""
    tilings = [tiling for space in _spaces(group) for tiling in _Choices(space, capacity_bits).front()]
    tilings.sort(key=lambda tiling: (tiling.macs, tiling.moved_bits))
    front: list[GroupTiling] = []
    for tiling in tilings:
        if not front or tiling.moved_bits < front[-1].moved_bits:
            front.append(tiling)
    return tuple(front)


def every_tiling(group: TiledGroup, capacity_bits: int) -> Iterator[GroupTiling]:
    """Yield all tilings that fit, each with the most weights that stay besides."""
    for choices in (_Choices(space, capacity_bits) for space in _spaces(group)):
        for row, column in np.argwhere(choices.fits).tolist():
            yield choices.tiling(row, column)


@lru_cache(maxsize=65536)
def _spaces(group: TiledGroup) -> tuple[_Space, ...]:
    """Return the tiles of a group: with or without a kept halo, for every choice of held maps."""
    plain = TiledGroup(group.maps, group.stages, (True,) * len(group.stages))  # which lines are needed is the same
    columns = _axis(plain, 1, False)
    axes = [(keeps_halo, _axis(plain, 0, keeps_halo)) for keeps_halo in (False, True)]
    return tuple(
        _Space(group, keeps_halo, rows, columns, held) for keeps_halo, rows in axes for held in _holdings(group)
    )


def _holdings(group: TiledGroup) -> Iterator[tuple[bool, ...]]:
    """Yield every choice of held maps; a normalization needs all channels of what it reads."""
    choices = []
    for index in range(group.external_count):
        is_normalized = any(group.stages[reader].needs_all_channels for reader in group.readers[index])
        choices.append((True,) if is_normalized or group.is_resident(index) else (False, True))
    return product(*choices)


@dataclass(frozen=True)
class _Space:
    """All sizes of tiles of a group, with one choice of held maps. Arrays are [size of rows, size of columns]."""

    group: TiledGroup
    keeps_halo: bool
    rows: _Axis
    columns: _Axis
    held: tuple[bool, ...]

    def sums(self, name: str, index: int) -> Numbers:
        return np.outer(self.rows.sums[name][index], self.columns.sums[name][index])

    def filled(self, bits: int = 0) -> Numbers:
        """Return as many bits for all sizes."""
        return np.full((len(self.rows.sizes), len(self.columns.sizes)), bits)

    @cached_property
    def tiles(self) -> Numbers:
        return np.outer(self.rows.counts, self.columns.counts) * self.group.images

    @cached_property
    def moved_bits(self) -> Numbers:
        """Bits to and from memory without the weights."""
        group, total = self.group, self.filled()
        for index in range(group.external_count):
            if group.is_resident(index):
                continue
            extents = group.maps[index]
            width = extents.channels * extents.bits * group.images
            if self.held[index]:
                total += width * self.sums("fresh", index)
            else:
                total += sum(width * self.sums(name, reader) for name, reader in self._streams(index))
        for number, leaves in enumerate(group.leaving):
            if leaves and not group.is_resident(group.external_count + number):
                extents = group.maps[group.external_count + number]
                total += extents.elements * extents.bits
        return total

    def _streams(self, index: int) -> Iterator[tuple[str, int]]:
        """Yield how each stage reads a map that is not held: below its window, and where its result is."""
        for number, stage in enumerate(self.group.stages):
            if stage.source == index:
                yield "windows", number
            if index in stage.added:
                yield "computed", number

    @cached_property
    def macs(self) -> Numbers:
        """Multiply-accumulates, with those that are computed again."""
        total = self.filled()
        for number, stage in enumerate(self.group.stages):
            extents = self.group.maps[self.group.external_count + number]
            per_position = stage.macs // (extents.images * extents.rows * extents.columns)
            total += per_position * extents.images * self.sums("computed", number)
        return total

    @cached_property
    def peak_bits(self) -> Numbers:
        """The most that a tile holds, without weights that stay: the largest sum over stages and tiles."""
        peaks: list[Numbers] = [self._peak_of_stage(number) for number in range(len(self.group.stages))]
        return np.asarray(np.max(peaks, axis=0) + self.group.resident_bits)

    def _peak_of_stage(self, number: int) -> Numbers:
        stage = self.group.stages[number]
        occupancy = list(self._occupancy(number))
        if not occupancy:
            return self.filled(stage.kernel_bits)
        rows, columns, widths = zip(*occupancy, strict=True)
        grid = (np.array(widths)[:, None] * np.array(rows)).T @ np.array(columns)
        grid = np.maximum.reduceat(grid, self.rows.starts, axis=0)
        return np.maximum.reduceat(grid, self.columns.starts, axis=1) + stage.kernel_bits

    def _occupancy(self, number: int) -> Iterator[tuple[Numbers, Numbers, int]]:
        """Yield what is on the chip while a stage runs: rows and columns in each tile, and bits of a position."""
        group, rows, columns = self.group, self.rows.lines, self.columns.lines
        for index, extents in enumerate(group.maps):
            if group.is_resident(index) or (index < group.external_count and not self.held[index]):
                continue
            first = index - group.external_count if index >= group.external_count else min(group.readers[index])
            if not group.readers[index]:
                continue
            name = "kept_before" if number < first else "kept_after" if number > max(group.readers[index]) else "held"
            yield rows[name][index], columns["held"][index], extents.channels * extents.bits
        streamed = [(name, reader, index) for index in range(group.external_count) if not self.held[index]
                    for name, reader in self._streams(index) if reader == number]  # fmt: skip
        for name, reader, index in streamed:
            yield rows[name][reader], columns[name][reader], group.maps[index].bits
        result = group.external_count + number
        if not group.readers[result] and not group.is_resident(result):
            stage, extents = group.stages[number], group.maps[result]
            adds_up = stage.source < group.external_count and not self.held[stage.source]
            channels = extents.channels // stage.groups if adds_up else 1
            yield rows["computed"][number], columns["computed"][number], channels * extents.bits


class _Choices:
    """Every size of tiles with the weights that fit besides; ``fits`` says where the group fits at all."""

    def __init__(self, space: _Space, capacity_bits: int) -> None:
        sums, self._sets = _subset_sums(tuple(stage.weight_bits for stage in space.group.stages))
        self.space = space
        self._kept = np.searchsorted(sums, capacity_bits - space.peak_bits, side="right") - 1
        self.fits = self._kept >= 0
        self._resident_weight_bits = sums[np.maximum(self._kept, 0)]  # the largest sum of weights that fits
        weights = self._resident_weight_bits + space.tiles * (sums[-1] - self._resident_weight_bits)
        self.moved = space.moved_bits + weights

    def tiling(self, row: int, column: int) -> GroupTiling:
        chosen = self._sets[int(self._kept[row, column])]
        stages = range(len(self.space.group.stages))
        return GroupTiling(
            rows=self.space.rows.sizes[row],
            columns=self.space.columns.sizes[column],
            keeps_halo=self.space.keeps_halo,
            held=self.space.held,
            resident_weights=tuple(bool(chosen >> number & 1) for number in stages),
            moved_bits=int(self.moved[row, column]),
            macs=int(self.space.macs[row, column]),
            peak_bits=int(self.space.peak_bits[row, column] + self._resident_weight_bits[row, column]),
        )

    def front(self) -> Iterator[GroupTiling]:
        """Yield the sizes that no other beats in both traffic and multiply-accumulates."""
        rows, columns = np.nonzero(self.fits)
        for at in lower_corners(self.space.macs[rows, columns], self.moved[rows, columns]):
            yield self.tiling(int(rows[at]), int(columns[at]))


@lru_cache(maxsize=4096)
def _subset_sums(sizes: tuple[int, ...]) -> tuple[Numbers, tuple[int, ...]]:
    """Return every distinct sum of some of the sizes, ascending, and for each the set of those that add up to it."""
    sums = {0: 0}
    for number, size in enumerate(sizes):
        if size:
            sums |= {total + size: chosen | 1 << number for total, chosen in sums.items() if total + size not in sums}
    ascending = sorted(sums)
    return np.array(ascending, dtype=np.int64), tuple(sums[total] for total in ascending)

"""The phases of a call of an array: a tile is loaded, the one before is computed, and the one before that is stored.

A phase lasts as long as the longest of: the steps of its folds; the groups of results that leave; the pieces that enter
the banks; the words of the ports. Tiles of a call are alike, because a phase lasts as long as the largest that is in
it. The first phase only loads, and the last one only stores. ``common/fpga/hand_off/trips.py`` counts the same in the
loops of the C++, element by element; this is the closed form by which arrays are chosen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import ceil

from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.loading import (
    CONSTANT_BYTES,
    Lanes,
    Lines,
    PixelWindow,
    alike,
    largest_unit,
    lines_of,
    whole_words,
)
from common.fpga.kernels.systolic.tiling import Operands, OuterLoop, Tile
from common.workload.layers import Convolution, Matmul

Place = tuple[int, int, int, int]  # product of the batch, tiles of the outer and the inner loop, tile along k


@dataclass(frozen=True, slots=True)
class Axis:
    """Tiles along an axis: all are alike, but the last one may be smaller."""

    whole: int
    tile: int

    @property
    def count(self) -> int:
        return ceil(self.whole / self.tile)

    def extent(self, number: int) -> int:
        return min(self.tile, self.whole - number * self.tile)


@dataclass(frozen=True, slots=True)
class TileLoad:
    """What a tile takes of memory: cycles in which pieces enter the banks, and bytes over the ports."""

    pieces: float = 0.0
    read_bytes: float = 0.0

    def __add__(self, other: TileLoad) -> TileLoad:
        return TileLoad(self.pieces + other.pieces, self.read_bytes + other.read_bytes)


@dataclass(frozen=True, slots=True)
class TileStore:
    """What leaves of a tile: cycles, those in which tensors beside it are read, and bytes of both over the ports."""

    groups: float = 0.0
    pieces: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Oriented:
    """A product in one orientation of the array."""

    # What is computed; of a transposed convolution, and of one over three axes, pieces are not counted
    layer: Matmul | Convolution
    matmul: Matmul  # as the array sees it
    is_transposed: bool
    # Bytes of a product's operands that come from memory and of its result, each once, as the array sees them
    moved: Operands
    beside_bytes: float  # of tensors like the result that are read as it leaves


@dataclass(frozen=True)
class Phases:
    """The phases of one call."""

    product: Oriented
    outer_loop: OuterLoop  # whose tiles are in the outer loop
    tile: Tile
    lanes: Lanes
    # Of a tile of m x n sums over k products, by whether these complete them
    step_cycles: Callable[[int, int, int, bool], float]
    ports: MemoryPorts
    # What was computed already
    _sides: dict[tuple[int, int, tuple[int, int], bool], TileLoad] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _stores: dict[tuple[int, int], TileStore] = field(default_factory=dict, init=False, repr=False, compare=False)

    def cycles(self) -> float:
        """Return the cycles from the first word that is read to the last one that is written."""
        batch, outer, inner, deep = self._counts
        total, last = 0.0, (batch - 1, outer - 1, inner - 1, deep - 1)
        within = outer * inner * deep, inner * deep, deep, 1
        different = [_different(count, steps) for count, steps in zip(self._counts, within, strict=True)]
        different[3] = self._different_along_k(different[3])
        for (group, a), (one, b), (other, c), (part, d) in product(*different):
            total += a * b * c * d * self._phase((group, one, other, part))
        before = self._before(last)
        return total + self._cycles(TileLoad(), last, before) + self._cycles(TileLoad(), None, last)

    def _different_along_k(self, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return tiles along k like :func:`_different`, where those in the middle begin elsewhere in a window."""
        middle = next((number for number, count in parts if count > 1), None)
        if middle is None or self._window is None:
            return parts
        side = int(self.product.is_transposed)
        lines, deep = self._axes[side], self._axes[2]
        kinds = defaultdict[tuple[TileLoad, ...], list[int]](list)
        for number in range(middle, deep.count - 1):
            part = number, deep.extent(number)
            loads = (self._side(side, lines.extent(at), part, True) for at in (0, lines.count - 1))
            kinds[tuple(TileLoad(load.pieces, round(load.read_bytes, 3)) for load in loads)].append(number)
        alike = [(numbers[0], len(numbers)) for numbers in kinds.values()]
        return [pair for pair in parts if pair[0] != middle] + alike

    def _phase(self, place: Place) -> float:
        before = self._before(place)
        return self._cycles(self._load(place, before), before, self._before(before) if before else None)

    def _cycles(self, load: TileLoad, computed: Place | None, stored: Place | None) -> float:
        is_whole = stored is not None and stored[3] == self._counts[3] - 1
        store = self._store(*self._extents(stored)[:2]) if stored and is_whole else TileStore()
        read, written = (round(size, 3) for size in (load.read_bytes + store.read_bytes, store.written_bytes))
        ports = self.ports.duplex_cycles(read, written)  # of bytes by shares, whose last digits begin no word
        steps = self.step_cycles(*self._extents(computed), computed[3] == self._counts[3] - 1) if computed else 0.0
        return max(steps, store.groups, load.pieces + store.pieces, ports)

    # --- places of tiles ----------------------------------------------------------------------------------------------

    @cached_property
    def _axes(self) -> tuple[Axis, Axis, Axis]:
        matmul, tile, lanes = self.product.matmul, self.tile, self.lanes
        return (
            Axis(matmul.m, alike(matmul.m, tile.rows, lanes.rows)),
            Axis(matmul.n, alike(matmul.n, tile.cols, lanes.cols)),
            Axis(matmul.k, alike(matmul.k, tile.depth, lanes.simd)),
        )

    @cached_property
    def _counts(self) -> Place:
        rows, cols, deep = (axis.count for axis in self._axes)
        outer, inner = (rows, cols) if self.outer_loop == "rows" else (cols, rows)
        return self.product.matmul.batch, outer, inner, deep

    def _tile_of(self, place: Place) -> tuple[int, int, int]:
        """Return the numbers of a tile along rows, columns and k."""
        _, outer, inner, deep = place
        return (outer, inner, deep) if self.outer_loop == "rows" else (inner, outer, deep)

    def _extents(self, place: Place) -> tuple[int, int, int]:
        (of_rows, of_cols, of_deep), (rows, cols, deep) = self._axes, self._tile_of(place)
        return of_rows.extent(rows), of_cols.extent(cols), of_deep.extent(deep)

    def _before(self, place: Place) -> Place | None:
        numbers = list(place)
        for at in (3, 2, 1, 0):
            if numbers[at]:
                numbers[at] -= 1
                return numbers[0], numbers[1], numbers[2], numbers[3]
            numbers[at] = self._counts[at] - 1
        return None

    # --- what a phase does --------------------------------------------------------------------------------------------

    def _load(self, place: Place, before: Place | None) -> TileLoad:
        """Return what a tile needs that the one before did not have."""
        numbers, extents = self._tile_of(place), self._extents(place)
        others = self._tile_of(before) if before and before[0] == place[0] else (-1, -1, -1)
        load = TileLoad()
        for side in (0, 1):
            if (numbers[side], numbers[2]) != (others[side], others[2]):
                load += self._side(side, extents[side], (numbers[2], extents[2]), numbers[1 - side] == 0)
        channels = 0 if self.product.is_transposed else 1
        if numbers[channels] != others[channels]:
            read = CONSTANT_BYTES * extents[channels]
            load += TileLoad(ceil(read / self.ports.bytes_per_cycle), read)
        return load

    def _side(self, side: int, lines: int, deep: tuple[int, int], is_first: bool) -> TileLoad:
        """Return the load of a side; ``deep`` is the number of its tile along k and its products."""
        key = side, lines, deep, is_first
        if key not in self._sides:
            of_map = (side == 1) == self.product.is_transposed
            self._sides[key] = self._map(side, lines, deep, is_first) if of_map else self._other(side, lines, deep[1])
        return self._sides[key]

    def _map(self, side: int, lines: int, deep: tuple[int, int], is_first: bool) -> TileLoad:
        """Return the load of lines of the map; what the line buffer has of an earlier tile is not read again."""
        (number, depth), moved = deep, self._moved(side)
        if not moved:
            return TileLoad()
        read = moved * lines / self._axes[side].whole
        if self._window is None:
            return TileLoad(0.0, read * depth / self.product.matmul.k)
        first = number * self._axes[2].tile
        pieces = self._lines.pieces(
            lines, self._banks(side), (first, depth), self._at_once(side, self._lines), self.lanes
        )
        share, kept = self._window.read_share(lines, (first, first + depth))
        if not is_first:
            is_outer = (side == 1) == (self.outer_loop == "columns")
            share *= 1 - (kept if is_outer else self._window.kept_map)
        return TileLoad(pieces, read * share * whole_words(self._lines, self.lanes))

    def _other(self, side: int, lines: int, depth: int) -> TileLoad:
        """Return the load of weights, or of lines of a second tensor."""
        moved, lanes = self._moved(side), self.lanes
        if not moved:
            return TileLoad()
        whole = ceil(depth / lanes.simd) * lanes.simd
        if isinstance(self.product.layer, Matmul) and not self.product.layer.has_weight:
            k = self.product.matmul.k
            second = Lines(lines, k, k, largest_unit(k))
            pieces = second.pieces(lines, self._banks(side), (0, depth), self._at_once(side, second), lanes)
            whole = depth
        else:
            pieces = lanes.packed_pieces(lines, self._banks(side), depth)
        return TileLoad(pieces, moved * lines / self._axes[side].whole * whole / self.product.matmul.k)

    def _store(self, m: int, n: int) -> TileStore:
        if (m, n) not in self._stores:
            pixels, channels = (n, m) if self.product.is_transposed else (m, n)
            groups = self.lanes.result_groups(pixels, channels, self._pitch, is_transposed=self.product.is_transposed)
            share, word = m * n / (self.product.matmul.m * self.product.matmul.n), self.lanes.word
            is_beside = self.product.beside_bytes > 0
            # A tensor beside is read group by group, in whole words.
            unit = largest_unit(channels, self.lanes.cols, word)
            words = groups * ((m * n / groups - unit) / word + 1)
            read = self.product.beside_bytes * share * words * word / (m * n)
            self._stores[m, n] = TileStore(groups, groups * is_beside, read, self.product.moved.c * share)
        return self._stores[m, n]

    # --- what the layer says ------------------------------------------------------------------------------------------

    def _moved(self, side: int) -> float:
        return self.product.moved.b if side else self.product.moved.a

    def _banks(self, side: int) -> int:
        return self.lanes.cols if side else self.lanes.rows

    def _at_once(self, side: int, lines: Lines) -> int:
        return lines.at_once(self.lanes.groups(self._banks(side)), self.lanes.simd, self._axes[2].tile, self.lanes)

    @cached_property
    def _window(self) -> PixelWindow | None:
        """What a pixel reads of the map; None where its lines are not counted."""
        layer = self.product.layer
        if isinstance(layer, Matmul):
            shape, is_apart = Convolution(1, layer.k, 1, layer.m, layer.n, 1, layer.m), True
        elif layer.is_transposed or layer.axes > 2:
            return None
        else:
            shape, is_apart = layer, layer.is_depthwise or layer.groups == 1
        return PixelWindow.of(shape, is_apart, self.lanes.word, self.ports.word_bytes)

    @cached_property
    def _lines(self) -> Lines:
        return lines_of(self.product.layer)

    @property
    def _pitch(self) -> int:
        """Channels from pixel to pixel of the result; 0 where pixels lie side by side."""
        layer = self.product.layer
        if isinstance(layer, Matmul):
            return 0 if layer.n == 1 and layer.batch > 1 else layer.n
        channels = layer.out_channels // layer.groups
        return (0 if channels == 1 else channels) if layer.is_depthwise else layer.out_channels


def _different(count: int, within: int) -> list[tuple[int, int]]:
    """Return the tiles of an axis that differ in themselves or in the two before, and how many are like each.

    Each has ``within`` phases, of the axes inside.
    """
    firsts = 1 if within > 1 else 2  # whose phases before are of other tiles
    if count <= firsts + 2:
        return [(number, 1) for number in range(count)]
    return [*((number, 1) for number in range(firsts)), (firsts, count - firsts - 1), (count - 1, 1)]

"""The cycles of an array's C++ by its loops: the trips of each pipelined loop, at an initiation interval of one cycle.

Each loop of ``templates/systolic.cpp`` that is pipelined is counted from the sizes of a call, tile by tile: the pieces
that enter the banks, the steps of the folds, the constants and the results that leave. A tile is fetched, computed and
stored at the same time as its neighbours, as far as two halves of each buffer allow:

    fetched(t) = max(fetched(t - 1), computed(t - 2)) + pieces(t)
    computed(t) = max(fetched(t), computed(t - 1), stored(t - 2)) + steps(t)
    stored(t) = max(computed(t), stored(t - 1)) + results(t)

The latency of pipelines and of memory is not in it, and nothing is said about whether a tool reaches these intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from common.fpga.kernels.systolic.array import MappedProduct, SystolicArray
from common.graphs.number_formats import PRECISION_BITS
from common.workload.layers import Convolution, Matmul

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TileTrips:
    fetched: int
    computed: int
    stored: int


def overlapped_cycles(tiles: Iterator[TileTrips]) -> int:
    """Return the cycles from the first piece to the last result."""
    fetched = [0, 0]
    computed, stored = [0, 0], [0, 0]
    for tile in tiles:
        fetched = [fetched[1], max(fetched[1], computed[0]) + tile.fetched]
        computed = [computed[1], max(fetched[1], computed[1], stored[0]) + tile.computed]
        stored = [stored[1], max(computed[1], stored[1]) + tile.stored]
    return stored[1]


def largest_divisor(whole: int, most: int) -> int:
    return next(each for each in range(min(whole, most), 0, -1) if whole % each == 0)


@dataclass(frozen=True)
class ArrayTrips:
    """The loops of one array's C++ in one call.

    Attributes:
        layer: a convolution, whose windows are padded alike on both sides, or a product.
        reads_beside: whether a step behind the sums reads another tensor, in the layout of the result.
    """

    engine: SystolicArray
    layer: Matmul | Convolution
    product: MappedProduct
    reads_beside: bool = False

    @property
    def cycles(self) -> int:
        """Cycles of the call: trips of its loops, tile by tile."""
        return overlapped_cycles(self.tiles())

    def tiles(self) -> Iterator[TileTrips]:
        """Yield the trips of each tile, in the order of the C++."""
        tile, matmul = self.engine.tile, self.product.matmul
        rows, cols, deep = (
            range(0, matmul.m, tile.rows),
            range(0, matmul.n, tile.cols),
            range(0, matmul.k, self._depth),
        )
        for group in range(matmul.batch):
            pairs = ((r, c) for r in rows for c in cols)
            if self.product.outer_loop == "columns":
                pairs = ((r, c) for c in cols for r in rows)
            for row, col in pairs:
                lines = min(tile.rows, matmul.m - row), min(tile.cols, matmul.n - col)
                for k in deep:
                    depth = min(self._depth, matmul.k - k)
                    fetched = self._side(0, group, k)[row : row + lines[0]].sum()
                    fetched += self._side(1, group, k)[col : col + lines[1]].sum()
                    stored = self._results(group, row, col, lines) if k + depth == matmul.k else 0
                    yield TileTrips(int(fetched), self._steps(lines, depth), stored)

    @property
    def _depth(self) -> int:
        """Products along k of a tile: those of a call are alike."""
        k, most, simd = self.product.matmul.k, self.engine.tile.depth, self.engine.simd
        return ceil(ceil(k / ceil(k / most)) / simd) * simd

    def _steps(self, lines: tuple[int, int], depth: int) -> int:
        engine = self.engine
        return ceil(lines[0] / engine.rows) * ceil(lines[1] / engine.cols) * ceil(depth / engine.simd)

    @property
    def _beat(self) -> int:
        """Elements of a word on every port."""
        ports = self.engine.ports
        return int(ports.count * ports.port_bits) // PRECISION_BITS[self.engine.precision]

    @property
    def _word(self) -> int:
        """Elements of a word of one port."""
        return int(self.engine.ports.port_bits) // PRECISION_BITS[self.engine.precision]

    def _piece(self, side: int) -> int:
        """Elements that enter the banks of a side per cycle."""
        simd, banks = self.engine.simd, (self.engine.rows, self.engine.cols)[side]
        groups = 1 if self._beat % simd else largest_divisor(self._beat // simd, banks)
        return groups * simd

    def _results(self, group: int, row: int, col: int, lines: tuple[int, int]) -> int:
        """Return the constants that are read and the groups of results that leave."""
        pixel, channel = (col, row) if self.product.is_transposed else (row, col)
        pixels, channels = lines[::-1] if self.product.is_transposed else lines
        of_group = self.product.matmul.m if self.product.is_transposed else self.product.matmul.n
        engine = self.engine
        lanes = largest_divisor(self._beat, min(engine.rows, engine.cols) * engine.sums_per_cycle)
        at = (np.arange(pixels) + pixel) * self.product.matmul.batch * of_group + group * of_group + channel
        trips, left = channels, np.full(pixels, channels)
        while (left > 0).any():
            most = np.minimum(lanes - (channels - left) % lanes, self._beat - at % self._beat)
            if self.reads_beside:  # of the layout of the result
                most = np.minimum(most, self._beat - at % self._word)
            trips += int((left > 0).sum())
            taken = np.minimum(most, left)
            at, left = at + taken, left - taken
        return trips

    def _side(self, side: int, group: int, k: int) -> Counts:
        """Return the trips of each line of a side, for the products from k on."""
        key = side, group, k
        if key not in self._sides:
            is_pixels = bool(side) == self.product.is_transposed
            self._sides[key] = (self._of_pixels if is_pixels else self._of_weights)(side, group, k)
        return self._sides[key]

    @cached_property
    def _sides(self) -> dict[tuple[int, int, int], Counts]:
        return {}

    def _of_weights(self, side: int, group: int, k: int) -> Counts:
        matmul = self.product.matmul
        channels = matmul.m if self.product.is_transposed else matmul.n
        depth = min(self._depth, matmul.k - k)
        at = (group * channels + np.arange(channels)) * matmul.k + k
        return self._with_rest(*self._segments(side, at, np.full(channels, depth)), depth, side)

    def _of_pixels(self, side: int, group: int, k: int) -> Counts:
        """Follow the runs of the windows: those elements that are in the map, and the zero points beside them."""
        window = GatheredLines.of(self.layer, self.product)
        depth = min(self._depth, self.product.matmul.k - k)
        trips = last = np.zeros(window.pixels, dtype=np.int64)
        piece = self._piece(side)
        run, at = divmod(k, window.length)
        left = depth
        while left:
            begin, low, high = window.run(run, group)
            end = min(at + left, window.length)
            for start, stop, is_there in (
                (at, np.minimum(low, end), False),
                (np.maximum(low, at), np.minimum(high, end), True),
                (np.maximum(high, at), np.full_like(low, end), False),
            ):
                size = np.maximum(stop - start, 0)
                if is_there:
                    count, rest = self._segments(side, begin + start, size)
                else:
                    count = -(-size // piece)
                    rest = size - (count - 1) * piece
                trips = trips + np.where(size > 0, count, 0)
                last = np.where(size > 0, rest, last)
            left -= end - at
            run, at = run + 1, 0
        return self._with_rest(trips, last, depth, side)

    def _segments(self, side: int, at: Counts, size: Counts) -> tuple[Counts, Counts]:
        """Return in how many pieces some elements are read, and how many elements the last one has."""
        piece, beat, word = self._piece(side), self._beat, self._word
        trips = last = np.zeros_like(size)
        while (size > 0).any():
            taken = np.minimum(np.minimum(piece, beat - at % word), size)
            trips, last = trips + (taken > 0), np.where(taken > 0, taken, last)
            at, size = at + taken, size - taken
        return trips, last

    def _with_rest(self, trips: Counts, last: Counts, depth: int, side: int) -> Counts:
        """Add a trip where, after the last elements, more than a piece waits for the banks."""
        piece = self._piece(side)
        waiting = depth - (depth - last) // piece * piece
        return trips + (waiting > piece)


@dataclass(frozen=True)
class GatheredLines:
    """The windows of all pixels of a convolution, or the rows of a product.

    Attributes:
        pixels: of all images.
        length: elements of a run.
    """

    pixels: int
    length: int
    layer: Convolution

    @classmethod
    def of(cls, layer: Matmul | Convolution, product: MappedProduct) -> GatheredLines:
        matmul = product.matmul
        pixels = matmul.n if product.is_transposed else matmul.m
        channels = matmul.m if product.is_transposed else matmul.n
        if isinstance(layer, Matmul):
            batch = matmul.batch
            layer = Convolution(1, matmul.k * batch, pixels, 1, channels * batch, pixels, 1, groups=batch)
        taps = layer.kernel_width if layer.dilation_width == 1 and layer.groups == 1 else 1
        return cls(pixels, taps * (layer.in_channels // layer.groups), layer)

    def run(self, number: int, group: int) -> tuple[Counts, Counts, Counts]:
        """Return where a run begins for each pixel, and from where to where it is in the map."""
        layer = self.layer
        per_group = layer.in_channels // layer.groups
        is_dense = self.length == layer.kernel_width * per_group and layer.dilation_width == 1 and layer.groups == 1
        row, tap = (number, 0) if is_dense else divmod(number, layer.kernel_width)
        pixel = np.arange(self.pixels)
        x, line = pixel % layer.out_width, pixel // layer.out_width
        y, image = line % layer.out_height, line // layer.out_height
        in_y = y * layer.stride_height - _pad(layer, "height") + row * layer.dilation_height
        in_x = x * layer.stride_width - _pad(layer, "width") + tap * layer.dilation_width
        begin = ((image * layer.in_height + in_y) * layer.in_width + in_x) * layer.in_channels + group * per_group
        taps = layer.kernel_width if is_dense else 1
        outside, inside = np.maximum(-in_x, 0), np.minimum(taps, layer.in_width - in_x)
        is_there = (in_y >= 0) & (in_y < layer.in_height) & (outside < inside)
        return begin, np.where(is_there, outside, 0) * per_group, np.where(is_there, inside, 0) * per_group


def _pad(layer: Convolution, side: str) -> int:
    """Return the padding before a side: half of what the extents imply."""
    out, size, kernel, stride, dilation = (
        getattr(layer, f"{name}_{side}") for name in ("out", "in", "kernel", "stride", "dilation")
    )
    return int(max(0, (out - 1) * stride + (kernel - 1) * dilation + 1 - size)) // 2

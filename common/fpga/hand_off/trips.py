"""The cycles of an array's C++ by its loops: the trips of each pipelined loop, at an initiation interval of one cycle.

A call runs in phases of ``templates/systolic.cpp``. In phase p the tile p is loaded, p - 1 is computed and p - 2 is
stored. A trip of the loop ``cycle`` takes at most one piece, computes a step and lets a group of results go:

    trips(p) = max(steps, waits of results + groups, pieces + operands beside the results)

Steps of a fold are at least as many as its sums take to leave. The loops ``piece``, ``constant`` and ``beside`` read,
``result`` writes. The plan also counts that a word takes more than a cycle of a port, because bursts are short. So

    cycles(p) = max(trips(p), cycles of the ports to read and write the words of the phase)

The latency of pipelines and of memory is not in it, and nothing is said about whether a tool reaches these intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil

import numpy as np
from numpy.typing import NDArray

from common.fpga.hand_off.array_call import ArrayCall, Source
from common.fpga.kernels.systolic.array import SystolicArray
from common.graphs.number_formats import PRECISION_BITS

Counts = NDArray[np.int64]
CONSTANT_BYTES = 8  # bias and scale of a channel


def largest_divisor(whole: int, most: int) -> int:
    return next(each for each in range(min(whole, most), 0, -1) if whole % each == 0)


@dataclass(frozen=True, slots=True)
class Phase:
    """Trips of one phase.

    Attributes:
        cycles: of the loop ``cycle``.
        read: of the loops that read memory.
        written: of the loop that writes.
        port_cycles: that the ports take for the words of the phase, as the plan counts them.
    """

    cycles: int
    read: int
    written: int
    port_cycles: float


@dataclass(frozen=True, slots=True)
class TileTrips:
    """What a tile takes.

    Attributes:
        pieces: that enter the banks; those that only bring in a rest are not read.
        read: pieces and constants from memory.
        folds: of the tile.
        steps: of a fold.
        is_last: whether its sums are complete.
    """

    pieces: int
    read: int
    folds: int
    steps: int
    is_last: bool


@dataclass(frozen=True)
class Groups:
    """The groups of results of a tile in their order.

    Attributes:
        last_rows: the last row of the array in each group, which the drain must have reached; -1 where the group has
            nothing of the last fold.
        written: trips of the writing loop.
        beats: words of all ports that are written.
    """

    last_rows: Counts
    written: int
    beats: int


@dataclass(frozen=True)
class ArrayTrips:
    """The loops of one array's C++ in one call.

    Attributes:
        beside: tensors that the steps behind the sums read, in the layout of the result.
    """

    engine: SystolicArray
    call: ArrayCall
    beside: int = 0

    @property
    def trips(self) -> int:
        """Cycles of the call if each word of the ports takes one."""
        return sum(phase.cycles for phase in self.phases)

    @property
    def cycles(self) -> float:
        """Cycles of the call with the ports of the plan."""
        return sum(max(phase.cycles, phase.port_cycles) for phase in self.phases)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(self._phases())

    def _phases(self) -> Iterator[Phase]:
        drain, per_row = self._drain, self.engine.sums_per_cycle
        left = 0
        tiles: list[TileTrips | None] = [*self._tiles(), None, None]
        nothing = Groups(np.zeros(0, np.int64), 0, 0)
        places = [*self._places, None, None]
        for number, tile in enumerate(tiles):
            computed = tiles[number - 1] if number else None
            stored = self._groups(*place) if number > 1 and (place := places[number - 2]) else nothing
            groups = len(stored.last_rows)
            cycles = 0
            if computed is not None:
                first = max(computed.steps, left) if computed.is_last else computed.steps
                further = max(computed.steps, drain) if computed.is_last else computed.steps
                cycles = first + (computed.folds - 1) * further
            of_group, waits = max(1, self.beside), stored.last_rows // per_row + 2 - drain + left
            after = np.arange(groups - 1, -1, -1) * of_group
            stores = max(groups * of_group, int(np.where(stored.last_rows >= 0, waits + after, 0).max(initial=0)) if left else 0)
            beside = groups * self.beside
            trips = max(cycles, stores, (tile.pieces if tile else 0) + beside)
            read = (tile.read if tile else 0) + beside
            beat = self._beat * PRECISION_BITS[self.engine.precision] / 8
            yield Phase(trips, read, stored.written, self.engine.ports.duplex_cycles(read * beat, stored.beats * beat))
            if computed is not None and computed.is_last:
                left = max(0, drain - (trips - cycles))
            else:
                left = max(0, left - trips)

    # --- tiles ------------------------------------------------------------------------------------------------------

    @property
    def _extents(self) -> tuple[int, int]:
        """Rows and columns of the product as the array sees it."""
        sides = self.call.pixels, self.call.channels
        return sides[::-1] if self.call.is_transposed else sides

    @property
    def _depth(self) -> int:
        """Products along k of a tile: those of a call are alike."""
        k, most, simd = self.call.depth, self.engine.tile.depth, self.engine.simd
        return ceil(ceil(k / ceil(k / most)) / simd) * simd

    @property
    def _drain(self) -> int:
        return ceil(self.engine.rows / self.engine.sums_per_cycle)

    @cached_property
    def _order(self) -> tuple[tuple[int, int, int, int], ...]:
        """Group, row, column and k of each tile."""
        tile, (rows, cols) = self.engine.tile, self._extents
        along = range(0, rows, tile.rows), range(0, cols, tile.cols)
        pairs = [(r, c) for c, r in product(*along[::-1])] if self.call.columns_outside else list(product(*along))
        deep = range(0, ceil(self.call.depth / tile.depth) * self._depth, self._depth)
        return tuple((group, *pair, k) for group in range(self.call.layer.groups) for pair in pairs for k in deep)

    @property
    def _places(self) -> Iterator[tuple[int, int, int] | None]:
        """Yield group, row and column of each tile whose sums are complete."""
        for group, row, col, k in self._order:
            yield (group, row, col) if k + self._depth >= self.call.depth else None

    def _lines(self, row: int, col: int) -> tuple[int, int]:
        (rows, cols), tile = self._extents, self.engine.tile
        return min(tile.rows, rows - row), min(tile.cols, cols - col)

    def _tiles(self) -> Iterator[TileTrips]:
        engine, call = self.engine, self.call
        before = None
        for group, row, col, k in self._order:
            rows, cols = self._lines(row, col)
            depth = min(self._depth, call.depth - k)
            pieces = read = 0
            if before is None or (group, row, k) != (before[0], before[1], before[3]):
                pieces, read = self._side(0, group, k, row, rows)
            if before is None or (group, col, k) != (before[0], before[2], before[3]):
                both = self._side(1, group, k, col, cols)
                pieces, read = pieces + both[0], read + both[1]
            channel, channels = (row, rows) if call.is_transposed else (col, cols)
            if before is None or (group, channel) != (before[0], before[1] if call.is_transposed else before[2]):
                constants = self._constants(group * call.channels + channel, channels)
                pieces, read = pieces + constants, read + constants
            folds = ceil(rows / engine.rows) * ceil(cols / engine.cols)
            yield TileTrips(pieces, read, folds, ceil(depth / engine.simd), k + depth == call.depth)
            before = group, row, col, k

    # --- what is read -----------------------------------------------------------------------------------------------

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

    def _source(self, side: int) -> Source:
        return self.call.of_pixels if bool(side) == self.call.is_transposed else self.call.of_weights

    def lines_log(self, side: int) -> int:
        """Return how many lines are read at once, as a power of two."""
        source, piece, best = self._source(side), self._piece(side), (0, 0)
        log = 0
        while piece // self.engine.simd % (1 << log) == 0:
            each, run = piece >> log, min(source.length, self._depth)
            bits = source.pixel_pitch | source.group_pitch | source.length | each | self._depth | self._word
            pitch = source.layer.stride_width * source.pixel_pitch
            span = ((1 << log) - 1) * pitch + min(each, run) + self._word - (bits & -bits)
            if log and span > self._beat:
                break
            trips = ceil(run / each) * ceil(source.layer.out_width / (1 << log))
            if log == 0 or trips < best[0]:
                best = trips, log
            log += 1
        return best[1]

    def _side(self, side: int, group: int, k: int, first: int, lines: int) -> tuple[int, int]:
        """Return the pieces of a tile, and how many of them are read."""
        trips, rests = self._trips_of_lines(side, group, k)
        log, banks = self.lines_log(side), (self.engine.rows, self.engine.cols)[side]
        if not log:
            read = int(trips[first : first + lines].sum())
            return read + int(rests[first : first + lines].sum()), read
        together, line, x, width = 0, 0, first % self._source(side).layer.out_width, self._source(side).layer.out_width
        while line < lines:
            taken = min(1 << log, lines - line, banks - line % banks, width - x)
            line, x, together = line + taken, (x + taken) % width, together + 1
        return together * int(trips[0] + rests[0]), together * int(trips[0])

    def _trips_of_lines(self, side: int, group: int, k: int) -> tuple[Counts, Counts]:
        """Return the pieces of each line, and whether a rest waits behind them; of the first line where all are alike."""
        log = self.lines_log(side)
        key = side, 0 if log else group, k
        if key not in self._known:
            self._known[key] = self._follow(self._source(side), group, k, self._piece(side) >> log, 1 if log else None)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[int, int, int], tuple[Counts, Counts]]:
        return {}

    def _follow(self, source: Source, group: int, k: int, each: int, count: int | None) -> tuple[Counts, Counts]:
        """Follow the runs of the lines; one line of several that are read at once never meets the end of a beat."""
        layer, (top, left) = source.layer, source.padding
        line = np.arange(count or source.lines)
        x, y = line % layer.out_width, line // layer.out_width % layer.out_height
        image = line // layer.out_width // layer.out_height
        depth, per_row = min(self._depth, self.call.depth - k), layer.kernel_width // source.taps
        run, at, done = np.full_like(line, k // source.length), np.full_like(line, k % source.length), np.zeros_like(line)
        trips, last = np.zeros_like(line), np.zeros_like(line)
        while (open_lines := done < depth).any():
            in_y = y * layer.stride_height - top + run // per_row * layer.dilation_height
            in_x = x * layer.stride_width - left + run % per_row * source.taps * layer.dilation_width
            begin = group * source.group_pitch + ((image * layer.in_height + in_y) * layer.in_width + in_x) * source.pixel_pitch
            before, inside = np.maximum(-in_x, 0), np.minimum(source.taps, layer.in_width - in_x)
            is_there = (in_y >= 0) & (in_y < layer.in_height) & (before < inside)
            low, high = np.maximum(np.where(is_there, before * source.channels, 0), at), np.where(is_there, inside * source.channels, 0)
            taken = np.minimum(np.minimum(each, source.length - at), depth - done)
            if count is None:
                room = low - at + self._beat - (begin + low) % self._word
                taken = np.where(high > low, np.minimum(taken, room), taken)
            taken = np.where(open_lines, taken, 0)
            trips, last = trips + open_lines, np.where(open_lines, taken, last)
            done, at = done + taken, at + taken
            run, at = run + (at == source.length), np.where(at == source.length, 0, at)
        return trips, ((depth - last) % each + last > each).astype(np.int64)

    def _constants(self, channel: int, channels: int) -> int:
        beat, word = (size * PRECISION_BITS[self.engine.precision] // 8 for size in (self._beat, self._word))
        trips, at, left = 0, CONSTANT_BYTES * channel, channels
        while left > 0:
            taken = min(left, (beat - at % word) // CONSTANT_BYTES)
            trips, at, left = trips + 1, at + CONSTANT_BYTES * taken, left - taken
        return trips

    # --- what leaves ------------------------------------------------------------------------------------------------

    def _groups(self, group: int, row: int, col: int) -> Groups:
        lines = self._lines(row, col)
        pixels, channels = lines[::-1] if self.call.is_transposed else lines
        pixel, channel = (col, row) if self.call.is_transposed else (row, col)
        firsts, counts, ends = self._walk(pixels, channels)
        of_group, of_pixel, of_channel = self.call.result_pitches
        places = group * of_group + (pixel + firsts[0]) * of_pixel + (channel + firsts[1]) * of_channel
        begin, end = places // self._beat, (places + counts - 1) // self._beat
        rows, cols = ends[::-1] if self.call.is_transposed else ends
        folds = (lines[0] - 1) // self.engine.rows, (lines[1] - 1) // self.engine.cols
        is_last = (rows // self.engine.rows == folds[0]) & (cols // self.engine.cols == folds[1])
        beats = int((end - begin).sum() + (begin[1:] != end[:-1]).sum() + 1)
        return Groups(np.where(is_last, rows % self.engine.rows, -1), int((end - begin + 1).sum()), beats)

    def _walk(self, pixels: int, channels: int) -> tuple[tuple[Counts, Counts], Counts, tuple[Counts, Counts]]:
        """Return the first pixel and channel of each group, how many results it has, and its last pixel and channel."""
        rows, cols = self.engine.rows, self.engine.cols
        join = max(1, min(self.engine.sums_per_cycle, self._beat // cols))
        lanes = min(join * cols, self._beat)
        _, of_pixel, of_channel = self.call.result_pitches
        is_transposed = self.call.is_transposed
        if of_channel == 1:
            if not is_transposed and channels <= cols and of_pixel == channels:
                starts, sizes = _cut(pixels, rows, join)
                nothing = np.zeros_like(starts)
                return (starts, nothing), sizes * channels, (starts + sizes - 1, nothing + channels - 1)
            starts, sizes = _cut(channels, channels, lanes)
            pixel, channel = np.repeat(np.arange(pixels), len(starts)), np.tile(starts, pixels)
            count = np.tile(sizes, pixels)
            return (pixel, channel), count, (pixel, channel + count - 1)
        starts, sizes = _cut(pixels, cols, min(cols, lanes)) if is_transposed else _cut(pixels, rows, join)
        pixel, channel = np.tile(starts, channels), np.repeat(np.arange(channels), len(starts))
        count = np.tile(sizes, channels)
        return (pixel, channel), count, (pixel + count - 1, channel)


def _cut(whole: int, fold: int, most: int) -> tuple[Counts, Counts]:
    """Return where parts of at most ``most`` begin that stay within their fold, and how large each is."""
    starts = np.array([at for begin in range(0, whole, fold) for at in range(begin, min(begin + fold, whole), most)])
    ends = np.minimum(np.minimum(starts + most, (starts // fold + 1) * fold), whole)
    return starts, ends - starts

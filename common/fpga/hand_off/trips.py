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
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import ceil

import numpy as np
from numpy.typing import NDArray

from common.fpga.hand_off.array_call import ArrayCall, LineSource
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.kernels.systolic.loading import CONSTANT_BYTES, SEGMENTS, Lanes, Lines, alike, largest_unit, line_words
from common.graphs.number_formats import PRECISION_BITS

Counts = NDArray[np.int64]
RunPlaces = tuple[Counts, Counts, NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a side of a tile takes: pieces that enter its banks, those of them that are read, and words of one port."""

    pieces: int = 0
    read: int = 0
    words: int = 0

    def __add__(self, other: Loaded) -> Loaded:
        return Loaded(self.pieces + other.pieces, self.read + other.read, self.words + other.words)


@dataclass(frozen=True, slots=True)
class Phase:
    """Trips of one phase."""

    steps: int  # of the array, with its waits for the sums of the fold before
    results: int  # groups that leave, with their waits for the last fold
    pieces: int  # that enter the banks, with the operands beside the results
    read: int  # of the loops that read memory
    words: int  # of one port that are read
    written: int  # of the loop that writes
    moved_bytes: float  # over the ports
    port_cycles: float  # that the ports take for them, as the plan counts them

    @property
    def cycles(self) -> int:
        """Trips of the loop ``cycle``."""
        return max(self.steps, self.results, self.pieces)


@dataclass(frozen=True, slots=True)
class TileTrips:
    place: tuple[int, int, int]  # group, row and column
    loaded: Loaded  # operands and constants
    folds: int  # of the tile
    steps: int  # of a fold
    is_last: bool  # whether its sums are complete


@dataclass(frozen=True)
class Together:
    """Lines that are read together."""

    starts: Counts  # the first line of each read
    counts: Counts  # how many lines it has
    each: int  # elements that a piece has of one line
    is_single: bool  # whether one line is read at once, wherever it lies


@dataclass(frozen=True)
class Groups:
    """The groups of results of a tile in their order."""

    # The last row of the array in each group, which the drain must have reached; -1 where the group has nothing of the
    # last fold
    last_rows: Counts
    written: int  # trips of the writing loop
    words: int  # of one port that are written
    words_beside: int  # of one port that a tensor of the same layout is read in


@dataclass(frozen=True)
class ArrayTrips:
    """The loops of one array's C++ in one call."""

    engine: SystolicArray
    call: ArrayCall
    beside: int = 0  # tensors that the steps behind the sums read, in the layout of the result
    # Packed weights that were followed already
    _known: dict[tuple[int, int, int, int], Loaded] = field(default_factory=dict, init=False, repr=False, compare=False)

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
        nothing = Groups(np.zeros(0, np.int64), 0, 0, 0)
        for number, tile in enumerate(tiles):
            computed = tiles[number - 1] if number else None
            done = tiles[number - 2] if number > 1 else None
            stored = self._groups(*done.place) if done and done.is_last else nothing
            groups = len(stored.last_rows)
            cycles = 0
            if computed is not None:
                first = max(computed.steps, left) if computed.is_last else computed.steps
                further = max(computed.steps, drain) if computed.is_last else computed.steps
                cycles = first + (computed.folds - 1) * further
            of_group, waits = max(1, self.beside), stored.last_rows // per_row + 2 - drain + left
            after = np.arange(groups - 1, -1, -1) * of_group
            ends = np.where(stored.last_rows >= 0, waits + after, 0).max(initial=0) if left else 0
            stores = max(groups * of_group, int(ends))
            beside = groups * self.beside
            loaded = tile.loaded if tile else Loaded()
            pieces, words = loaded.pieces + beside, loaded.words + self.beside * stored.words_beside
            trips = max(cycles, stores, pieces)
            moved = [count * self.engine.ports.word_bytes for count in (words, stored.words)]
            port_cycles = self.engine.ports.duplex_cycles(*moved)
            reads = loaded.read + beside
            yield Phase(cycles, stores, pieces, reads, words, stored.written, sum(moved), port_cycles)
            is_last = computed is not None and computed.is_last
            rest = drain - (trips - cycles) if is_last else left - trips
            left = max(0, rest)

    # --- tiles ------------------------------------------------------------------------------------------------------

    @property
    def _extents(self) -> tuple[int, int]:
        """Rows and columns of the product as the array sees it."""
        sides = self.call.pixels, self.call.channels
        return sides[::-1] if self.call.is_transposed else sides

    @property
    def _depth(self) -> int:
        """Products along k of a tile."""
        return alike(self.call.depth, self.engine.tile.depth, self.engine.simd)

    @cached_property
    def _tile(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        (rows, cols), engine = self._extents, self.engine
        return alike(rows, engine.tile.rows, engine.rows), alike(cols, engine.tile.cols, engine.cols)

    @property
    def _drain(self) -> int:
        return ceil(self.engine.rows / self.engine.sums_per_cycle)

    @property
    def _order(self) -> tuple[tuple[int, int, int, int], ...]:
        """Group, row, column and k of each tile."""
        tile, (rows, cols) = self._tile, self._extents
        along = range(0, rows, tile[0]), range(0, cols, tile[1])
        pairs = [(r, c) for c, r in product(*along[::-1])] if self.call.columns_outside else list(product(*along))
        deep = range(0, self.call.depth, self._depth)
        return tuple((group, *pair, k) for group in range(self.call.layer.groups) for pair in pairs for k in deep)

    def _lines(self, row: int, col: int) -> tuple[int, int]:
        (rows, cols), tile = self._extents, self._tile
        return min(tile[0], rows - row), min(tile[1], cols - col)

    def _tiles(self) -> Iterator[TileTrips]:
        engine, call = self.engine, self.call
        before = None
        for group, row, col, k in self._order:
            rows, cols = self._lines(row, col)
            depth = min(self._depth, call.depth - k)
            loaded = Loaded()
            if before is None or (group, row, k) != (before[0], before[1], before[3]):
                loaded += self._side(0, group, k, row, rows)
            if before is None or (group, col, k) != (before[0], before[2], before[3]):
                loaded += self._side(1, group, k, col, cols)
            channel, channels = (row, rows) if call.is_transposed else (col, cols)
            if before is None or (group, channel) != (before[0], before[1] if call.is_transposed else before[2]):
                loaded += self._constants(group * call.channels + channel, channels)
            folds = ceil(rows / engine.rows) * ceil(cols / engine.cols)
            yield TileTrips((group, row, col), loaded, folds, ceil(depth / engine.simd), k + depth == call.depth)
            before = group, row, col, k

    # --- what is read -----------------------------------------------------------------------------------------------

    @cached_property
    def _lanes(self) -> Lanes:
        return self.engine.lanes

    def _banks(self, side: int) -> int:
        return (self.engine.rows, self.engine.cols)[side]

    def _piece_groups(self, side: int) -> int:
        return self._lanes.groups(self._banks(side))

    def _source(self, side: int) -> LineSource:
        return self.call.of_pixels if bool(side) == self.call.is_transposed else self.call.of_weights

    def lines_at_once(self, side: int) -> int:
        """Return how many lines of a side that is not packed are read at once."""
        source, lanes = self._source(side), self._lanes
        unit = largest_unit(source.pixel_pitch, source.group_pitch, source.length)
        pitch = source.layer.stride_width * source.pixel_pitch
        lines = Lines(source.layer.out_width, source.length, pitch, unit)
        return lines.at_once(self._piece_groups(side), lanes.simd, self._depth, lanes)

    def _side(self, side: int, group: int, k: int, first: int, lines: int) -> Loaded:
        source = self._source(side)
        depth = min(self._depth, self.call.depth - k)
        if source.is_packed:
            whole = ceil(self.call.depth / self.engine.simd) * self.engine.simd
            return self._packed((group * source.lines + first) * whole + lines * k, lines, depth, side)
        starts, counts, at, width = [], [], 0, source.layer.out_width
        at_once, banks = self._at_once[side], self._banks(side)
        while at < lines:
            starts.append(first + at)
            counts.append(min(at_once, lines - at, banks - at % banks, width - (first + at) % width))
            at += counts[-1]
        each = self._piece_groups(side) // at_once * self.engine.simd
        together = Together(np.array(starts), np.array(counts), each, at_once == 1)
        return self._follow(side, group, (k, depth), together)

    @cached_property
    def _at_once(self) -> tuple[int, int]:
        return self.lines_at_once(0), self.lines_at_once(1)

    def _packed(self, place: int, lines: int, depth: int, side: int) -> Loaded:
        """Follow packed weights: fold by fold, step by step, line by line."""
        key = place % self._lanes.word, lines, depth, side
        if key in self._known:
            return self._known[key]
        simd, at = self.engine.simd, place % self._lanes.word
        most = max(self._piece_groups(0), self._piece_groups(1))
        pieces = words = 0
        for fold in range(0, lines, self._banks(side)):
            of_fold = min(self._banks(side), lines - fold)
            for _ in range(ceil(depth / simd)):
                line = 0
                while line < of_fold:
                    taken = min((self._lanes.beat - at % self._lanes.word) // simd, most, of_fold - line)
                    words += (at + taken * simd - 1) // self._lanes.word - at // self._lanes.word + 1
                    pieces, line, at = pieces + 1, line + taken, at + taken * simd
        self._known[key] = Loaded(pieces, pieces, words)
        return self._known[key]

    def _follow(self, side: int, group: int, along_k: tuple[int, int], together: Together) -> Loaded:
        """Follow the runs of lines that are read together, and the words that neighbours do not share."""
        source, (k, depth), word = self._source(side), along_k, self._lanes.word
        first, each = together.starts, together.each
        run, at = (np.full_like(first, number) for number in divmod(k, source.length))
        done, trips, last = (np.zeros_like(first) for _ in range(3))
        reads: list[tuple[Counts, Counts]] = []
        while (is_open := done < depth).any():
            filled, goes_on = np.zeros_like(first), is_open
            for _ in range(SEGMENTS):
                goes_on = goes_on & (done < depth) & (filled < each)
                most = np.minimum(np.minimum(each - filled, source.length - at), depth - done)
                places = self._places_of(source, group, first, run)
                taken, lines = self._read(source, places, together, at, most)
                for begins, ends in lines:
                    is_read = goes_on & (ends >= 0)
                    reads.append((np.where(is_read, begins // word, 0), np.where(is_read, ends // word, -1)))
                taken = np.where(goes_on, taken, 0)
                done, at, filled = done + taken, at + taken, filled + taken
                is_over = goes_on & (at == source.length)
                run, at = run + is_over, np.where(is_over, 0, at)
            trips, last = trips + is_open, np.where(is_open, filled, last)
        rests = int(((depth - last) % each + last > each).sum())
        read = int(trips.sum())
        begins, ends = (np.stack(each_read, axis=1).ravel() for each_read in zip(*reads, strict=True))
        return Loaded(read + rests, read, self._words(side, begins, ends))

    @staticmethod
    def _places_of(source: LineSource, group: int, lines: Counts, run: Counts) -> RunPlaces:
        """Return where the runs of lines begin: address in elements, column, and whether the row is in the map."""
        layer, (top, left) = source.layer, source.padding
        x, y = lines % layer.out_width, lines // layer.out_width % layer.out_height
        image = lines // layer.out_width // layer.out_height
        per_row = layer.kernel_width // source.taps
        row = y * layer.stride_height - top + run // per_row * layer.dilation_height
        column = x * layer.stride_width - left + run % per_row * source.taps * layer.dilation_width
        pixels = (image * layer.in_height + row) * layer.in_width + column
        is_inside = (row >= 0) & (row < layer.in_height)
        return group * source.group_pitch + pixels * source.pixel_pitch, column, is_inside

    def _read(
        self, source: LineSource, places: RunPlaces, together: Together, at: Counts, most: Counts
    ) -> tuple[Counts, list[tuple[Counts, Counts]]]:
        """Return how many elements a piece takes of runs, and the first and last address of each line; -1 if none."""
        (address, first_column, is_inside), stride, taken, lines = places, source.layer.stride_width, most, []
        for i in range(int(together.counts.max())):
            column = first_column + i * stride
            before, inside = np.maximum(-column, 0), np.minimum(source.taps, source.layer.in_width - column)
            is_there = is_inside & (before < inside) & (i < together.counts)
            low = np.maximum(np.where(is_there, before * source.channels, 0), at)
            high = np.where(is_there, inside * source.channels, 0)
            if together.is_single:
                room = low - at + self._lanes.beat - (address + low) % self._lanes.word
                taken = np.where(high > low, np.minimum(taken, room), taken)
            high = np.minimum(high, at + taken)
            start = address + i * stride * source.pixel_pitch
            lines.append((start + low, np.where(high > low, start + high - 1, -1)))
        return taken, lines

    def _words(self, side: int, begins: Counts, ends: Counts) -> int:
        """Return the words that the line buffer does not have when they are read, and let it keep them."""
        ports, words = int(self.engine.ports.count), 0
        for port in range(ports):
            last = ends - (ends - port) % ports
            at = (last // ports)[(last >= begins) & (ends >= 0)]
            places, tags, kept = at % self._kept.shape[1], 2 * at + side, self._kept[port]
            order = np.argsort(places, kind="stable")
            places, tags = places[order], tags[order]
            is_first = np.diff(places, prepend=-1) != 0
            before = np.where(is_first, kept[places], np.roll(tags, 1))
            words += int((before != tags).sum())
            is_last = np.diff(places, append=-1) != 0
            kept[places[is_last]] = tags[is_last]
        return words

    @cached_property
    def _kept(self) -> Counts:
        """What the places of the line buffer have, by port: -1 for nothing."""
        ports = self.engine.ports
        return np.full((int(ports.count), line_words(ports)), -1)

    def _constants(self, channel: int, channels: int) -> Loaded:
        bits, lanes = PRECISION_BITS[self.engine.precision], self._lanes
        beat, word = lanes.beat * bits // 8, lanes.word * bits // 8
        trips, words, at, left = 0, 0, CONSTANT_BYTES * channel, channels
        while left > 0:
            taken = min(left, (beat - at % word) // CONSTANT_BYTES)
            words += (at + CONSTANT_BYTES * taken - 1) // word - at // word + 1
            trips, at, left = trips + 1, at + CONSTANT_BYTES * taken, left - taken
        return Loaded(trips, trips, words)

    # --- what leaves ------------------------------------------------------------------------------------------------

    def _groups(self, group: int, row: int, col: int) -> Groups:
        lines = self._lines(row, col)
        pixels, channels = lines[::-1] if self.call.is_transposed else lines
        pixel, channel = (col, row) if self.call.is_transposed else (row, col)
        firsts, counts, ends = self._walk(pixels, channels)
        of_group, of_pixel, of_channel = self.call.result_pitches
        places = group * of_group + (pixel + firsts[0]) * of_pixel + (channel + firsts[1]) * of_channel
        begin, end = places // self._lanes.beat, (places + counts - 1) // self._lanes.beat
        rows, cols = ends[::-1] if self.call.is_transposed else ends
        folds = (lines[0] - 1) // self.engine.rows, (lines[1] - 1) // self.engine.cols
        is_last = (rows // self.engine.rows == folds[0]) & (cols // self.engine.cols == folds[1])
        first, last = places // self._lanes.word, (places + counts - 1) // self._lanes.word
        words = int((last - first).sum() + (first[1:] != last[:-1]).sum() + 1)
        last_rows = np.where(is_last, rows % self.engine.rows, -1)
        return Groups(last_rows, int((end - begin + 1).sum()), words, int((last - first + 1).sum()))

    def _walk(self, pixels: int, channels: int) -> tuple[tuple[Counts, Counts], Counts, tuple[Counts, Counts]]:
        """Return the first pixel and channel of each group, how many results it has, and its last pixel and channel."""
        rows, cols = self.engine.rows, self.engine.cols
        together = max(1, min(self.engine.sums_per_cycle, self._lanes.beat // cols))
        lanes = min(together * cols, self._lanes.beat)
        _, of_pixel, of_channel = self.call.result_pitches
        is_along_channels, fold = of_channel == 1, rows
        if self.call.is_transposed:
            fold = cols
            parts = max(1, min(lanes // channels, self._lanes.parts(channels)))
            together = parts if is_along_channels else min(cols, lanes)
        elif channels > cols and is_along_channels:
            together = 1
        if is_along_channels and together > 1 and of_pixel == channels:
            starts, sizes = _cut(pixels, fold, together)
            nothing = np.zeros_like(starts)
            return (starts, nothing), sizes * channels, (starts + sizes - 1, nothing + channels - 1)
        if is_along_channels:
            starts, sizes = _cut(channels, channels, lanes)
            pixel, channel = np.repeat(np.arange(pixels), len(starts)), np.tile(starts, pixels)
            count = np.tile(sizes, pixels)
            return (pixel, channel), count, (pixel, channel + count - 1)
        starts, sizes = _cut(pixels, fold, together)
        pixel, channel = np.tile(starts, channels), np.repeat(np.arange(channels), len(starts))
        count = np.tile(sizes, channels)
        return (pixel, channel), count, (pixel + count - 1, channel)


def _cut(whole: int, fold: int, most: int) -> tuple[Counts, Counts]:
    """Return where parts of at most ``most`` begin that stay within their fold, and how large each is."""
    starts = np.array([at for begin in range(0, whole, fold) for at in range(begin, min(begin + fold, whole), most)])
    ends = np.minimum(np.minimum(starts + most, (starts // fold + 1) * fold), whole)
    return starts, ends - starts

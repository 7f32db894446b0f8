"""How operands enter the banks of an array and results leave it, as in ``common/fpga/hand_off/templates/systolic.cpp``.

A piece of a window enters per cycle: elements of some neighbouring lines, from up to three runs at once, each within a
word of every port. A line of a map whose pixels lie side by side has a run for each row of the window, else one for
each tap. A line buffer keeps the words that were read last, so windows that share rows read them once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from common.fpga.kernels.ports import MemoryPorts
from common.workload.layers import Convolution, Matmul

SEGMENTS = 3  # parts of a line from which a piece takes its elements: of a run each, and within a beat
WIDE = 8  # groups of s elements that a piece may have though a beat has fewer
LINE_BUFFER_BYTES = 16384
CONSTANT_BYTES = 8  # bias and scale of a channel
ALIGNMENTS = 4  # of lines in their words, over which pieces are averaged


def alike(whole: int, most: int, unit: int) -> int:
    """Return the extent of the tiles of a call along an axis, which are alike: whole units, and at most ``most``."""
    return ceil(ceil(whole / ceil(whole / most)) / unit) * unit


def line_words(ports: MemoryPorts) -> int:
    """Return the words of each port that the line buffer keeps."""
    return int(max(1, LINE_BUFFER_BYTES // ports.bytes_per_cycle))


@dataclass(frozen=True, slots=True)
class Lanes:
    """What an array takes and gives per cycle."""

    rows: int
    cols: int
    simd: int
    sums: int  # d, which leave a column per cycle
    beat: int  # elements of a word of every port
    word: int  # elements of a word of one port

    def groups(self, banks: int) -> int:
        """Return the groups of s elements that enter the banks of a side per cycle."""
        return max(1, min(banks, max(self.beat // self.simd, min(SEGMENTS * self.beat // self.simd, WIDE))))

    def packed_pieces(self, lines: int, banks: int, depth: int) -> int:
        """Return the pieces of packed weights, which lie fold by fold, step by step, line by line."""
        at_once = max(1, min(self.beat // self.simd, max(self.groups(self.rows), self.groups(self.cols))))
        full, rest = divmod(lines, banks)
        return ceil(depth / self.simd) * (full * ceil(banks / at_once) + ceil(rest / at_once))

    def result_groups(self, pixels: int, channels: int, pitch: int, *, is_transposed: bool) -> int:
        """Return the cycles in which the results of a tile leave, as many at once as lie side by side in memory.

        ``pitch`` are channels of a pixel of the result; 0 where pixels lie side by side, as in a depthwise convolution.
        """
        together = max(1, min(self.sums, self.beat // self.cols))
        lanes, fold = min(together * self.cols, self.beat), self.cols if is_transposed else self.rows
        if is_transposed:
            together = max(1, min(lanes // channels, self.parts(channels))) if pitch else min(self.cols, lanes)
        elif channels > self.cols and pitch:
            together = 1
        folds, rest = divmod(pixels, fold)
        joined = folds * ceil(fold / together) + ceil(rest / together)
        if not pitch:
            return channels * joined
        return joined if together > 1 and pitch == channels else pixels * ceil(channels / lanes)

    def parts(self, channels: int) -> int:
        """Return into how many parts the columns of the banks are divided where channels are rows."""
        drain = ceil(self.rows / self.sums)
        shifts = (channels - 1) // self.rows * drain + (channels - 1) % self.rows // self.sums + 1
        return next(
            (parts for parts in range(self.cols, 1, -1) if self.cols % parts == 0 and self.cols // parts >= shifts), 1
        )


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of an operand that is not packed: windows of a map's pixels, or rows of a matrix."""

    width: int  # lines of a row of the map
    run: int  # elements that lie side by side
    pitch: int  # elements from line to line
    unit: int  # a power of two that divides the addresses of runs

    def at_once(self, groups: int, simd: int, depth: int, lanes: Lanes) -> int:
        """Return how many lines are read at once: those with the fewest pieces whose runs are within a beat."""
        best = 0, 1
        for lines in (lines for lines in range(1, groups + 1) if groups % lines == 0):
            each, run = groups // lines * simd, min(self.run, depth)
            unit = largest_unit(self.unit, each, depth, lanes.word)
            if lines > 1 and (lines - 1) * self.pitch + min(each, run) + lanes.word - unit > lanes.beat:
                break
            trips = max(ceil(depth / each), ceil(ceil(depth / run) / SEGMENTS)) * ceil(self.width / lines)
            if lines == 1 or trips < best[0]:
                best = trips, lines
        return best[1]

    def pieces(self, lines: int, banks: int, part: tuple[int, int], at_once: int, lanes: Lanes) -> float:
        """Return the pieces in which the elements of some lines enter the banks of their side.

        ``part`` is the first product of the tile, and how many it has.
        """
        each = lanes.groups(banks) // at_once * lanes.simd
        if at_once > 1:
            return _cut(lines, self.width, banks, at_once) * _pieces_of(self.run, part, each, self.run)
        unit = largest_unit(self.unit, lanes.word)
        count = min(ALIGNMENTS, max(1, lanes.word // unit))
        rooms = [lanes.beat - number * lanes.word // count // unit * unit for number in range(count)]
        return lines * sum(_pieces_of(self.run, part, each, lanes.beat, room) for room in rooms) / count


def largest_unit(*sizes: int) -> int:
    """Return the largest power of two that divides all sizes."""
    bits = 0
    for size in sizes:
        bits |= size
    return bits & -bits


@lru_cache(maxsize=65536)
def _pieces_of(run: int, part: tuple[int, int], each: int, beat: int, room: int = 0) -> int:
    """Follow the runs of one line: a piece has at most ``each`` elements, of three runs, each within a beat.

    Runs begin with ``room`` elements left of a beat; by default a beat has any of them. A last piece may leave a rest
    that enters a cycle later.
    """
    first, depth = part
    pieces = taken = filled = 0
    at = first % run
    while taken < depth:
        filled, pieces = 0, pieces + 1
        for _ in range(SEGMENTS):
            if filled == each or taken == depth:
                break
            within = room if at == 0 and room else beat
            count = min(each - filled, run - at, depth - taken, within)
            taken, filled, at = taken + count, filled + count, (at + count) % run
    return pieces + int((depth - filled) % each + filled > each)


@lru_cache(maxsize=4096)
def _cut(lines: int, width: int, fold: int, most: int) -> int:
    """Return into how many parts of at most ``most`` lines some lines are cut, which end with a row and with a fold."""
    ends = sorted({*range(width, lines, width), *range(fold, lines, fold), lines})
    return sum(ceil((end - begin) / most) for begin, end in zip([0, *ends], ends, strict=False))


def lines_of(layer: Matmul | Convolution) -> Lines:
    """Return the lines of the operand that a call reads as its map: the rows of a matrix, or windows of pixels."""
    if isinstance(layer, Matmul):
        return Lines(layer.m, layer.k, layer.k, largest_unit(layer.k))
    channels = layer.in_channels // layer.groups
    pixel = channels if layer.is_depthwise else layer.in_channels
    taps = layer.kernel_width if pixel == channels and layer.dilation_width == 1 else 1
    extents = layer.kernel_height, layer.kernel_width, layer.stride_height, layer.stride_width
    is_flat = extents == (1, 1, 1, 1)  # its pixels all lie side by side
    width = layer.batch * layer.out_height * layer.out_width if is_flat else layer.out_width
    unit = largest_unit(pixel, channels)
    return Lines(width, taps * channels, layer.stride_width * pixel, unit)


def whole_words(lines: Lines, lanes: Lanes) -> float:
    """Return how many times the elements of runs their words have: more than once where runs do not touch."""
    if lines.run >= lines.pitch:
        return 1.0
    words = (lines.run - largest_unit(lines.unit, lanes.word)) // lanes.word + 1
    return min(words * lanes.word, lines.pitch) / lines.run


@dataclass(frozen=True, slots=True)
class PixelWindow:
    """Windows of a map, whose neighbours share words that the line buffer keeps."""

    layer: Convolution
    pixel_words: float  # places of the line buffer that a pixel takes
    word_bytes: float  # of a place

    @classmethod
    def of(cls, layer: Convolution, is_apart: bool, word: int, word_bytes: float) -> PixelWindow:
        """Return the windows of a layer; ``is_apart`` if the channels of a group lie for themselves."""
        used, pitch = layer.in_channels // layer.groups / word, layer.in_channels / word
        # Words at a distance of a power of two share places with words that nobody reads.
        taken = used if is_apart else max(used, float(largest_unit(max(1, int(pitch)))))
        return cls(layer, taken, word_bytes)

    def kept(self, rows: float) -> float:
        """Return the share of some rows of the map that are still kept when they are read again in the same order."""
        taken = rows * self.layer.in_width * self.pixel_words * self.word_bytes
        return min(1.0, max(0.0, 1 - 2 * (taken - LINE_BUFFER_BYTES) / taken))

    @property
    def kept_map(self) -> float:
        return self.kept(self.layer.batch * self.layer.in_height)

    def read_share(self, pixels: int, part: tuple[int, int]) -> tuple[float, float]:
        """Return which share of its part of the map a tile of pixels reads, and which share of that is then kept.

        A tile along k has some rows of the window, from the first to the second number of ``part``.
        """
        layer, (first, last) = self.layer, part
        row = layer.kernel_width * layer.in_channels // layer.groups  # products of a row of the window
        used = min(layer.stride_height, layer.kernel_height)  # rows of the map that a row of pixels has for itself
        height = max(1.0, pixels / layer.out_width)

        def read(window: float) -> float:
            return min(1.0, (height * min(window, used) + max(0.0, window - used)) / (height * used))

        def taps(begin: int, end: int) -> float:
            """Return how many rows of the map the rows of the window read, from one product to another."""
            of_tap = layer.in_channels // layer.groups
            rows = range(0, layer.kernel_height * row, row)
            counts = [max(0, min(end, at + row) - max(begin, at)) / of_tap for at in rows]
            return sum(min(1.0, count / min(layer.stride_width, layer.kernel_width)) for count in counts)

        window = taps(first, last)
        apart = read(window) if window < layer.kernel_height else 1.0
        if window > used and self.kept((window - 1) * layer.dilation_height + 1) < 1:
            apart = window / used
        band = (height - 1) * layer.stride_height + (layer.kernel_height - 1) * layer.dilation_height + 1
        kept = self.kept(band)
        return kept * (read(taps(0, last)) - read(taps(0, first))) + (1 - kept) * apart, kept

"""One contraction through one buffer: the exact traffic of every tile and every order of the loops over tiles.

The buffer holds one tile of each operand. A tile stays while the loops inside the first loop that moves it run, so it
is moved as often as that loop and all loops around it run (Parashar et al., "Timeloop", ISPASS 2019, section V).
Where the innermost loop goes down the rows (or along the columns), the halo of the input stays, and each row is read
once in a pass. A result that leaves before all input channels are added comes back: it is written once for each tile
of input channels, and read once less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
import numpy.typing as npt

from common.design_space.groups.axis_tiles import tile_sizes
from common.design_space.memoized import memoized
from common.design_space.results.cache import remembered
from common.design_space.search.fronts import lower_corners
from common.workload.loop_nests import RELEVANT_LOOPS, LoopNest, window_extent

Numbers = npt.NDArray[np.int64]
OPERANDS = ("input", "weight", "output")


@dataclass(frozen=True, slots=True)
class NestTiling:
    """One way to compute a contraction."""

    # Extent of the tile along K, C, P and Q; one image and one group at a time, and the whole window
    tile: tuple[int, int, int, int]
    order: str  # loops over tiles, outermost first
    moved_bits: tuple[int, int, int]  # bits to and from memory of each operand
    peak_bits: int  # bits of one tile of each operand


# The orders that can differ in traffic: images, rows and columns stay together, in either order.
ORDERS = tuple("".join(order) for lines in ("NPQ", "NQP") for order in permutations(("K", "C", lines)))


@dataclass(frozen=True, slots=True)
class _Lines:
    """Tiles along one axis, for each size: how many there are, input lines of the largest, all, and without overlap."""

    sizes: Numbers
    counts: Numbers
    most: Numbers
    total: Numbers
    covered: Numbers


@lru_cache(maxsize=1024)
def _lines(outputs: int, taps: int, stride: int, dilation: int, pad: int, extent: int) -> _Lines:
    rows = []
    for size in tile_sizes(outputs):
        begin = np.arange(0, outputs, size)
        end = np.minimum(begin + size, outputs)
        low = np.clip(begin * stride - pad, 0, extent)
        high = np.clip(begin * stride - pad + window_extent(1, taps, stride, dilation) + (end - begin - 1) * stride,
                       low, extent)  # fmt: skip
        before = np.concatenate((low[:1], np.maximum.accumulate(high)[:-1]))
        covered = np.maximum(0, high - np.maximum(low, before)).sum()
        rows.append((size, len(begin), (high - low).max(), (high - low).sum(), covered))
    return _Lines(*np.array(rows, dtype=np.int64).T)


def best_tiling(nest: LoopNest, capacity_bits: int) -> NestTiling | None:
    """Return the tiling that moves the least of all that fit; None where not even the smallest tile fits."""
    front = _front(nest)
    at = bisect_right(front, capacity_bits, key=lambda tiling: tiling.peak_bits)
    return front[at - 1] if at else None


@lru_cache(maxsize=4096)
@remembered(NestTiling)
def _front(nest: LoopNest) -> tuple[NestTiling, ...]:
    """Return the tilings that move less than all that need no more room, by rising need."""
    space = _space(nest)
    total = np.stack([np.sum(space.moved_bits(order), axis=0) for order in ORDERS])
    chosen = np.argmin(total, axis=0)
    least = total[chosen, np.arange(total.shape[1])]
    return tuple(space.tiling(ORDERS[chosen[at]], int(at)) for at in lower_corners(space.peak_bits, least))


def every_tiling(nest: LoopNest) -> Iterator[NestTiling]:
    """Yield all tilings of the space, whatever they need."""
    space = _space(nest)
    for order in ORDERS:
        for at in range(len(space.peak_bits)):
            yield space.tiling(order, at)


@dataclass(frozen=True)
class _Space:
    """Every tile of a nest. ``tiles`` and ``counts`` are by loop; ``rows`` and ``columns`` index the lines."""

    nest: LoopNest
    tiles: dict[str, Numbers]
    counts: dict[str, Numbers]
    height: tuple[_Lines, Numbers]
    width: tuple[_Lines, Numbers]
    peak_bits: Numbers

    @memoized
    def moved_bits(self, order: str) -> tuple[Numbers, Numbers, Numbers]:
        """Return the bits that each operand moves, in all groups."""
        nest, bits, (rows, row), (columns, column) = self.nest, self.nest.operand_bits, self.height, self.width
        repeats = {operand: _repetitions(operand, order, self.counts) for operand in OPERANDS}
        innermost = _innermost_of_input(order, self.counts)
        height = np.where(innermost == "P", rows.covered[row], rows.total[row])
        width = np.where(innermost == "Q", columns.covered[column], columns.total[column])
        read = nest.n * nest.groups * nest.c * height * width * repeats["input"] * bits["input"]
        weights = nest.elements["weight"] * repeats["weight"] * bits["weight"]
        results = nest.elements["output"] * (2 * repeats["output"] - 1) * bits["output"]
        return read, weights, results

    def tiling(self, order: str, at: int) -> NestTiling:
        k, c, p, q = (int(self.tiles[loop][at]) for loop in "KCPQ")
        read, weights, results = (int(bits[at]) for bits in self.moved_bits(order))
        return NestTiling((k, c, p, q), order, (read, weights, results), int(self.peak_bits[at]))


def _space(nest: LoopNest) -> _Space:
    rows = _lines(nest.p, nest.r, nest.stride_p, nest.dilation_r, nest.pad_p, nest.stored_height)
    columns = _lines(nest.q, nest.s, nest.stride_q, nest.dilation_s, nest.pad_q, nest.stored_width)
    sizes = [np.array(tile_sizes(extent), dtype=np.int64) for extent in (nest.k, nest.c)]
    k, c, row, column = (
        axis.ravel()
        for axis in np.meshgrid(*(np.arange(len(axis)) for axis in (*sizes, rows.sizes, columns.sizes)), indexing="ij")
    )
    tile_k, tile_c = sizes[0][k], sizes[1][c]
    tiles = {"K": tile_k, "C": tile_c, "P": rows.sizes[row], "Q": columns.sizes[column]}
    counts = {
        "N": np.full(len(k), nest.n),
        "K": -(-nest.k // tile_k),
        "C": -(-nest.c // tile_c),
        "P": rows.counts[row],
        "Q": columns.counts[column],
    }
    bits = nest.operand_bits
    peak = tile_c * rows.most[row] * columns.most[column] * bits["input"]
    peak += tile_k * tile_c * nest.r * nest.s * bits["weight"]
    peak += tile_k * tiles["P"] * tiles["Q"] * bits["output"]
    return _Space(nest, tiles, counts, (rows, row), (columns, column), peak)


def _innermost_of_input(order: str, counts: dict[str, Numbers]) -> npt.NDArray[np.str_]:
    """Return the innermost loop that moves the input; blank where none does."""
    innermost = np.full(len(counts["K"]), " ")
    for loop in order:
        if loop in RELEVANT_LOOPS["input"]:
            innermost = np.where(counts[loop] > 1, loop, innermost)
    return innermost


def _repetitions(operand: str, order: str, counts: dict[str, Numbers]) -> Numbers:
    """Return how often each tile of an operand is moved: runs of loops that do not move it, around one that does."""
    repeats = np.ones(len(counts["K"]), dtype=np.int64)
    is_moved = np.zeros(len(counts["K"]), dtype=bool)  # by a loop further in
    for loop in reversed(order):
        if loop in RELEVANT_LOOPS[operand]:
            is_moved |= counts[loop] > 1
        else:
            repeats = np.where(is_moved, repeats * counts[loop], repeats)
    return repeats

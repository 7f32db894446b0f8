"""How an output-stationary array runs a loop nest, and what that costs by the cost function of the design space.

The array is that of :mod:`common.fpga.kernels.systolic.array`: output pixels are on its R rows, output channels on its
C columns, and an element adds s products of the window in a cycle. So its dataflow is fixed, and these choices are left
(a *run* is one of each):

- *The tile.* f·R pixels, f·C channels, f = 1, 2, 4 …: whole rows of the output where one fits, else a part of a row.
  Its depth is the part of the input channels that fits the banks, with the whole window, or with one row of it.
- *The outer loop*: over pixels or over channels. Sums stay in their elements until they are complete.
- *Pixels on rows*: the block of rows and columns of the output that takes the fewest steps. Products of an element are
  spread over channels and window in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import Hardware, Level, MultiplierArray
from common.design_space.mapping.cost import cost
from common.design_space.mapping.mappings import Mappings
from common.design_space.mapping.traffic import C, G, K, N, Nests, P, Q, R, S
from common.workload.loop_nests import LOOPS, LoopNest

Numbers = npt.NDArray[np.float64]
DRAM, INPUTS, WEIGHTS, SUMS = range(4)  # the levels
SUM_BYTES = 4
INNER = (S, R, C, Q, P, K, N, G)  # of a tile: the products of a sum follow each other
OUTER = ((S, R, C, K, Q, P, N, G), (S, R, C, Q, P, N, K, G))  # pixels in the outer loop, or channels


@dataclass(frozen=True, slots=True)
class Energies:
    """Energy of a multiply-accumulate, of a byte from the card's memory, and of a byte from the operand buffers."""

    mac_pj: float
    memory_pj_per_byte: float
    buffer_pj_per_byte: float


TileFolds = tuple[int, int, int]  # of the buffers: folds along rows and columns of an array, and steps of depth


class _Extents(NamedTuple):
    k: int
    c: int
    p: int
    q: int
    r: int
    s: int


@dataclass(frozen=True, slots=True)
class NestRuns:
    """The runs of a nest on an array, as arrays over the runs."""

    pixels: npt.NDArray[np.int64]  # outputs of a channel in a tile; it fits buffers with as many rows
    channels: npt.NDArray[np.int64]  # output channels of a tile; it fits buffers with as many columns
    depth: npt.NDArray[np.int64]  # products of a sum in a tile; it fits buffers as deep
    steps: Numbers  # cycles in which the array multiplies
    memory_bytes: Numbers  # read from the card's memory, and written to it
    energy_pj: Numbers  # of multiply-accumulates, memory and buffers

    def fit(self, pixels: int, channels: int, depth: int) -> npt.NDArray[np.bool_]:
        """Return which runs fit the tile of some buffers."""
        return np.asarray((self.pixels <= pixels) & (self.channels <= channels) & (self.depth <= depth))


def array_hardware(size: tuple[int, int, int], element_bytes: int, energies: Energies) -> Hardware:
    """Return the array as the design space describes accelerators; a cycle moves a byte of memory.

    A step of the array takes its operands from the buffers. The energy of sums is in that of a multiply-accumulate.
    """
    rows, columns, simd = size
    every_operand = frozenset({"weight", "input", "output"})
    levels = (
        _level("memory", every_operand, element_bytes, energies.memory_pj_per_byte, bytes_per_cycle=1.0),
        _level("input_banks", frozenset({"input"}), element_bytes, energies.buffer_pj_per_byte),
        _level("weight_banks", frozenset({"weight"}), element_bytes, energies.buffer_pj_per_byte),
        _level("sums", frozenset({"output"}), SUM_BYTES, 0.0),
    )
    return Hardware("array", "", 1.0, MultiplierArray(rows, columns * simd, energies.mac_pj, None, None), levels)


def _level(
    name: str, holds: frozenset[str], word_bytes: int, pj_per_byte: float, bytes_per_cycle: float | None = None
) -> Level:
    return Level(name, holds, "one", None, word_bytes, 1, bytes_per_cycle, "copy", pj_per_byte, 0.0, None)


def nest_runs(nest: LoopNest, size: tuple[int, int, int], tiles: Sequence[TileFolds], hardware: Hardware) -> NestRuns:
    """Return the runs of a nest on an array (R, C, s) whose buffers hold any of some tiles."""
    nest = with_one_pixel_loop(nest)
    extents = list(dict.fromkeys(extent for tile in tiles for extent in _tiles(nest, size, tile)))
    mappings = _mappings(nest, size, extents)
    costs = cost(mappings, Nests.of([nest]), hardware)
    k, c, p, q, r, s = np.repeat(np.array(extents), len(OUTER), axis=0).T
    parts = (np.asarray(part) for part in (costs.compute_cycles, costs.level_cycles[DRAM], costs.energy_pj))
    return NestRuns(p * q, k, c * r * s, *parts)


def with_one_pixel_loop(nest: LoopNest) -> LoopNest:
    """Return a nest whose outputs read one stored input each, in their order, with all of them in one loop."""
    is_product = nest.r == nest.s == nest.stride_p == nest.stride_q == 1
    if not is_product or (nest.stored_height, nest.stored_width) != (nest.p, nest.q):
        return nest
    return replace(nest, n=1, p=nest.n * nest.p * nest.q, q=1, height=0, width=0)


def _tiles(nest: LoopNest, size: tuple[int, int, int], tile: TileFolds) -> Iterator[_Extents]:
    pixels, columns, depth = (folds * side for folds, side in zip(tile, size, strict=True))
    p, q = (min(nest.p, pixels // nest.q), nest.q) if nest.q <= pixels else (1, pixels)
    p, q, k = _balanced(nest.p, p), _balanced(nest.q, q), min(nest.k, columns)
    for channels in dict.fromkeys((k, _balanced(nest.k, k))):
        for r in dict.fromkeys((nest.r, 1)):
            if r * nest.s <= depth:
                yield _Extents(channels, _balanced(nest.c, depth // (r * nest.s)), p, q, r, nest.s)


def _balanced(extent: int, most: int) -> int:
    """Return the smallest tile of which no more are needed than of tiles with ``most`` iterations."""
    return ceil(extent / ceil(extent / most))


def _mappings(nest: LoopNest, size: tuple[int, int, int], tiles: Sequence[_Extents]) -> Mappings:
    """Return the mappings of tiles, each in both orders of the outer loops."""
    rows, columns, simd = size
    shape = (len(tiles), len(OUTER), SUMS + 1, len(LOOPS))
    temporal, spatial = np.ones(shape), np.ones(shape)
    order = np.broadcast_to(np.array(INNER), shape).copy()
    order[:, :, DRAM] = OUTER
    temporal[:, :, DRAM, [N, G]] = nest.n, nest.groups
    for number, tile in enumerate(tiles):
        copies = {K: min(columns, tile.k)}
        copies[P], copies[Q] = spread((tile.p, tile.q), rows)
        copies[C], copies[R], copies[S] = spread((tile.c, tile.r, tile.s), simd)
        for loop, extent in zip((K, C, P, Q, R, S), tile, strict=True):
            level = {K: WEIGHTS, P: INPUTS, Q: INPUTS}.get(loop, SUMS)
            spatial[number, :, level, loop] = copies[loop]
            temporal[number, :, SUMS, loop] = ceil(extent / copies[loop])
            temporal[number, :, DRAM, loop] = ceil(nest.bounds[LOOPS[loop]] / extent)
    flat = (len(tiles) * len(OUTER), *shape[2:])
    return Mappings(temporal.reshape(flat), spatial.reshape(flat), order.reshape(flat))


@lru_cache(maxsize=100_000)
def spread(extents: tuple[int, ...], room: int) -> tuple[int, ...]:
    """Return how many copies of each loop take the fewest steps on ``room`` places, and of these the fewest copies."""
    if len(extents) == 1:
        return (ceil(extents[0] / ceil(extents[0] / min(extents[0], room))),)
    choices = ((first, *spread(extents[1:], room // first)) for first in range(1, min(extents[0], room) + 1))
    return min(choices, key=lambda copies: (_steps(extents, copies), sum(copies)))


def _steps(extents: tuple[int, ...], copies: tuple[int, ...]) -> int:
    return prod(ceil(extent / count) for extent, count in zip(extents, copies, strict=True))

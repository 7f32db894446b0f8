"""The tiles that Gemmini's own software takes, and the cycles of its RTL with them.

The rules are those of ``tiled_matmul_auto`` and ``tiled_conv_auto`` (github.com/ucb-bar/gemmini-rocc-tests,
include/gemmini.h), as ``imagenet/resnet50.c`` calls them: a window of one element is a matrix product of all pixels.
Half of each memory holds the tile that is computed, and half the next one. A row of a memory has as many words as the
array has columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, isqrt

import numpy as np

from common.design_space.accelerator.hardware import Hardware, NothingFitsError
from common.design_space.mapping.tiled_rtl import tiled_cycles
from common.design_space.mapping.traffic import Nests
from common.workload.loop_nests import LOOPS, LoopNest

SCRATCHPAD, ACCUMULATOR = 1, 2  # levels
Tile = tuple[int, ...]


def software_cycles(nest: LoopNest, hardware: Hardware, images: int) -> float:
    """Return the cycles of a layer of ResNet-50 on the RTL with the tiles of Gemmini's software, for some images.

    Args:
        hardware: Gemmini, which counts the cycles of its RTL.
    """
    is_product = nest.r == nest.s == 1
    if is_product:
        nest = LoopNest(p=images * nest.p * nest.q, c=nest.c, k=nest.k)
        tile = dict(zip("PKC", product_tile((nest.p, nest.k, nest.c), hardware), strict=True))
    else:
        nest = replace(nest, n=images)
        tile = dict(zip("NPQKRSC", window_tile(nest, hardware), strict=True))
    counts = np.array([[float(ceil(nest.bounds[loop] / tile.get(loop, nest.bounds[loop]))) for loop in LOOPS]])
    assert hardware.searched_rtl is not None
    return float(np.asarray(tiled_cycles(counts, Nests.of([nest]), hardware, hardware.searched_rtl))[0])


def product_tile(extents: Tile, hardware: Hardware) -> Tile:
    """Return the rows, columns and inner elements of a tile of a matrix product."""
    side, (inputs, sums) = hardware.array.columns, _rows(hardware)
    blocks = [ceil(extent / side) for extent in extents]
    most = isqrt(sums // side)
    tile = [min(blocks[0], most), min(blocks[1], most), min(blocks[2], inputs // 2 // side // most)]

    def fits(tile: Sequence[int]) -> bool:
        rows, columns, inner = tile
        return (rows + columns) * inner * side <= inputs and rows * columns * side <= sums

    while sum(_grow(tile, at, blocks, fits) for at in (1, 0, 2)):
        pass
    return tuple(side * size for size in tile)


def window_tile(nest: LoopNest, hardware: Hardware) -> Tile:
    """Return the images, rows, columns and kernels, the taps and the channels of a tile of a convolution.

    Raises:
        NothingFitsError: not even a tile of ones fits.
    """
    side, (inputs, sums) = hardware.array.columns, _rows(hardware)
    extents = [nest.n, nest.p, nest.q, nest.k, nest.r, nest.s, nest.c]
    tile = [*extents]

    def fits(tile: Sequence[int]) -> bool:
        n, p, q, k, r, s, c = tile
        window = (p * nest.stride_p + r - 1) * (q * nest.stride_q + s - 1)
        kernels = ceil(k / side)
        return ceil(c / side) * n * window + kernels * r * s * c <= inputs and kernels * n * p * q <= sums

    if not fits([1] * len(tile)):
        raise NothingFitsError("hardware", f"a tile of ones does not fit the memories of {hardware.name}", "")
    while not fits(tile):
        # A row of pixels that the array just holds is cut last.
        at = max((at for at in range(7) if not (at == 2 and tile[2] <= side and tile[1] > 1)), key=tile.__getitem__)
        by_side = at in (3, 6)  # channels lose whole sides of the array
        tile[at] = max(1, (tile[at] - 1) // side * side if by_side else tile[at] - 1)
    while _grow(tile, 2, extents, fits):
        pass
    while sum(_grow(tile, at, extents, fits) for at in range(7)):
        pass
    return tuple(tile)


def _rows(hardware: Hardware) -> tuple[int, int]:
    """Return half of the rows of the scratchpad and of the accumulator."""
    scratchpad, accumulator = hardware.levels[SCRATCHPAD], hardware.levels[ACCUMULATOR]
    return int(scratchpad.capacity_words / hardware.array.columns / 2), int(accumulator.capacity_words / 2)


def _grow(tile: list[int], at: int, most: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> bool:
    """Make a tile larger along one loop if it still fits; return whether it is."""
    larger = [*tile[:at], tile[at] + 1, *tile[at + 1 :]]
    if larger[at] > most[at] or not fits(larger):
        return False
    tile[at] = larger[at]
    return True

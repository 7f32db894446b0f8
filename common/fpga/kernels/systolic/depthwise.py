"""What a depthwise convolution takes of an array beyond its products: its windows, and turning its maps.

Each channel is a product of its own. Its windows enter the banks line by line: a word of every port brings the lines of
some neighbours, from up to three rows of the window at once (``common/fpga/hand_off/templates/systolic.cpp``). So
those of a channel take

    P · max(ceil(k / (G s / L)), ceil(rows of the window / 3)) + ceil(k / s) + 1 cycles

for G groups of s elements per cycle and the best L, where P parts of at most L pixels end with their line and with
their fold of the array. Meanwhile the tile before is computed. Its maps lie channel by channel, those of the layers
around it pixel by pixel: each is read and written once more.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from common.workload.layers import Convolution

ROWS_AT_ONCE = 3  # of a window, from which a piece takes its elements


def window_cycles(layer: Convolution, banks: int, tile: int, simd: int, beat: int, fold_cycles: int) -> float:
    """Return the cycles in which the windows of all channels enter the banks, beside computation.

    Args:
        banks: of the side of the array that has the pixels.
        tile: pixels of a tile.
        simd: products that an element adds per cycle.
        beat: elements of a word of every port.
        fold_cycles: in which the array computes as many pixels as it has banks.
    """
    groups, taps = max(1, min(banks, beat // simd)), layer.kernel_height * layer.kernel_width
    is_dense = layer.dilation_width == 1
    runs = layer.kernel_height if is_dense else taps
    fewest = 0
    for lines in (each for each in range(1, groups + 1) if groups % each == 0):
        span = (lines - 1) * layer.stride_width + (layer.kernel_width if is_dense else 1)
        if lines > 1 and span > beat:
            break
        pieces = max(ceil(taps / (groups // lines * simd)), ceil(runs / ROWS_AT_ONCE))
        cycles = _parts(layer, lines, banks) * pieces
        fewest = min(fewest or cycles, cycles)
    pixels = layer.batch * layer.out_height * layer.out_width
    each = ceil(ceil(pixels / ceil(pixels / tile)) / banks) * banks  # tiles are alike
    sizes = [min(each, pixels - first) for first in range(0, pixels, each)]
    weights = ceil(taps / simd) * (layer.out_channels // layer.groups) + 1
    of_group = 0.0
    for number, size in enumerate(sizes):
        computed = ceil(sizes[number - 1] / banks) * fold_cycles  # of the last one of the channel before, at first
        of_group += max(fewest * size / pixels + (0 if number else weights), computed)
    return layer.groups * of_group


def _parts(layer: Convolution, most: int, fold: int) -> int:
    """Return in how many parts of at most ``most`` pixels the lines of all maps are, cut where a fold ends."""
    pixels = layer.batch * layer.out_height * layer.out_width
    begins = np.union1d(np.arange(0, pixels, layer.out_width), np.arange(0, pixels, fold))
    return int((-(-np.diff([*begins, pixels]) // most)).sum())


def turned_elements(layer: Convolution) -> tuple[int, int]:
    """Return the elements of the two maps that change their order."""
    read = layer.batch * layer.in_channels * layer.in_height * layer.in_width
    return read, layer.batch * layer.out_channels * layer.out_height * layer.out_width

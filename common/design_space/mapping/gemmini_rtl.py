"""Cycles of Gemmini's RTL when its own software runs a mapping, tile by tile.

The software (github.com/ucb-bar/gemmini-rocc-tests, gemmini-data-collection) takes of a mapping its tile and its order
at DRAM. A tile is a fixed number of commands, loads of inputs and weights, and an instruction for each block of the
array's size. The three overlap, and tiles follow each other:

    cycles = tiles · max(command, load, compute)
    load = row · (rows of at most 64 bytes) + byte · bytes
    compute = block · blocks + pixel · (rows of inputs into the array) + weight row · (rows of weights into the array)

Analytic models miss that a tile takes its commands' time however small it is, and that a short row costs as much as a
long one. Three properties of that software change the number of tiles. Feature maps are square. A window of even size
has one more output in each direction. A product (one output column, a window of one) counts its tile in blocks of the
array, one for every sixteen elements of the mapping's tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from common.design_space.accelerator.hardware import RtlCosts
from common.design_space.mapping.mappings import Mappings
from common.design_space.mapping.traffic import C, K, N, Nests, P, Q, R, S

SIDES = np.array([4.0, 8.0, 16.0, 32.0, 64.0])  # of the arrays; a mapping runs on the smallest that holds its copies
ROW_BYTES = 64  # of one request to memory
PRODUCT_BLOCK = 16  # elements of a mapping's tile that count as a block

Numbers = npt.NDArray[np.float64]
Counts = Mapping[str, Numbers]


class _MappedLayers(NamedTuple):
    """Mapped layers as arrays whose first axis is the batch's; the last ones are the level and the loop."""

    temporal: Numbers
    spatial: Numbers
    extents: Numbers
    stride_p: Numbers

    @property
    def side(self) -> Numbers:
        copies = self.spatial.prod(axis=-2).max(axis=-1)
        return np.asarray(SIDES[np.minimum(np.searchsorted(SIDES, copies), len(SIDES) - 1)])

    @property
    def tile(self) -> Numbers:
        """The tile of each mapping: what all levels inside DRAM reach."""
        return np.asarray((self.temporal[:, 1:] * self.spatial[:, 1:]).prod(axis=1))


def rtl_cycles(mappings: Mappings, nests: Nests, costs: RtlCosts) -> Numbers:
    """Return the cycles of mapped layers; mappings and nests are NumPy's, with one batch axis."""
    layers = _MappedLayers(*map(np.asarray, (mappings.temporal, mappings.spatial, nests.extents, nests.stride_p)))
    is_product = (layers.extents[:, [Q, R, S]] == 1).all(axis=-1)
    product, window = _product_counts(layers), _window_counts(layers)
    counts = {name: np.where(is_product, product[name], window[name]) for name in product}
    command = np.where(is_product, costs.product_command_cycles, costs.window_command_cycles)
    load = costs.row_cycles * counts["rows"] + costs.byte_cycles * counts["bytes"]
    compute = (
        costs.block_cycles * counts["blocks"]
        + costs.pixel_cycles * counts["pixels"]
        + costs.weight_row_cycles * counts["weight_rows"]
    )
    return np.asarray(counts["tiles"] * np.maximum(np.maximum(command, load), compute))


def _window_counts(layers: _MappedLayers) -> Counts:
    """Return what a convolution takes: its tiles, and the work of one of them."""
    side, tile, extents, stride = layers.side, layers.tile, layers.extents, layers.stride_p
    p, q, k, c, r, s = (tile[:, loop] for loop in (P, Q, K, C, R, S))
    outputs = np.floor((extents[:, P] * stride - extents[:, R] + 2 * (extents[:, R] // 2)) / stride) + 1
    tiles_p, tiles_q = np.ceil(outputs / p), np.ceil(outputs / q)
    p, q = outputs / tiles_p, outputs / tiles_q  # of the mean tile
    inputs = ((p - 1) * stride + r) * ((q - 1) * stride + s)
    blocks = np.ceil(k / side) * np.ceil(c / side) * r * s
    return {
        "tiles": tiles_p * tiles_q * layers.temporal[:, 0][:, [R, S, C, K, N]].prod(axis=-1),
        "rows": inputs * np.ceil(c / ROW_BYTES) + r * s * c * np.ceil(k / ROW_BYTES),
        "bytes": inputs * c + r * s * c * k,
        "blocks": blocks * q * np.ceil(p / side),
        "pixels": blocks * p * q,
        "weight_rows": blocks * side,
    }


def _product_counts(layers: _MappedLayers) -> Counts:
    """Return what a matrix product takes: its tiles, and the work of one of them."""
    side, tile = layers.side, layers.tile
    blocks, tiles = list[Numbers](), np.ones(len(side))
    for loop in (P, K, C):
        needed = np.ceil(layers.extents[:, loop] / side)
        blocks.append(np.minimum(np.maximum(1, tile[:, loop] // PRODUCT_BLOCK), needed))
        tiles = tiles * np.ceil(needed / blocks[-1])
    p, k, c = (np.minimum(count * side, layers.extents[:, loop]) for count, loop in zip(blocks, (P, K, C), strict=True))
    weight_blocks = blocks[1] * blocks[2]
    return {
        "tiles": tiles,
        "rows": p * np.ceil(c / ROW_BYTES) + c * np.ceil(k / ROW_BYTES),
        "bytes": p * c + c * k,
        "blocks": blocks[0] * weight_blocks,
        "pixels": p * weight_blocks,
        "weight_rows": weight_blocks * side,
    }

"""The program of a network on an engine: the content of memory, and the descriptors of the three units.

A descriptor says how many descriptors of the other units must be over before it begins. So a tile's load waits until
the tile before the last one is computed, whose halves of the buffers it fills. A tile is computed when it is loaded and
when the results of the tile before the last one are stored. The layers follow one after the other: the first load of a
layer waits until all results before it are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, frexp, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.fpga.rtl.engine.design import COMPUTE_WORDS, CONSTANT_BYTES, EngineDesign, words_of
from common.fpga.rtl.engine.network import LEAST, Bytes, EngineLayer, EngineNetwork, EngineTensor, Residual
from common.fpga.rtl.engine.places import (
    CONSTANTS,
    INPUT,
    RESIDUAL,
    TABLE,
    WEIGHTS,
    MemoryPlaces,
    Transfer,
    loads_of,
    pixels_of,
)
from common.fpga.rtl.engine.rows import SHIFTS, RowWork
from common.fpga.rtl.engine.tiling import EngineTile, Piece, Tiling
from common.messages.errors import PipelineError

MANTISSA_BITS = 24
RESIDUAL_BITS = 25  # of the factors of a residual
PRODUCT_BITS = 17  # of the factor of a product of two tensors
POOL, ADDS, COMPLETES, ADDS_RESIDUAL = 1 << 4, 1 << 5, 1 << 6, 1 << 7
ROWS, SOFTMAX, NORMALIZATION, PER_CHANNEL = 1 << 8, 1 << 9, 1 << 10, 1 << 11
MULTIPLIES = 1 << 9  # of a call that is no row-wise work
TURNED = 1 << 5  # the rows of a load become columns of weights
LEAST_SHIFT, MOST_SHIFT = 1, 64


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What one unit does next: the unit, and the 32-bit words that the host writes to its queue."""

    unit: str  # load, compute or store
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Memory and descriptors of a network."""

    design: EngineDesign
    network: EngineNetwork
    memory: NDArray[np.uint8]  # its bytes before the run; tensors that the engine writes are zero
    addresses: Mapping[str, int]  # of each tensor, by name
    descriptors: tuple[Descriptor, ...]  # in the order in which the host gives them
    last_stores: tuple[int, ...]  # number of stores that are over when a layer is, by layer

    def filled(self, inputs: Mapping[str, Bytes]) -> NDArray[np.uint8]:
        """Return the memory with inputs in their places: (channels, height, width) of int8 by name."""
        memory = self.memory.copy()
        for tensor in self.network.inputs:
            content = laid_out(inputs[tensor.name], self.design).view(np.uint8)
            memory[self.addresses[tensor.name] :][: content.size] = content
        return memory

    def read(self, memory: NDArray[np.uint8], tensor: EngineTensor) -> Bytes:
        """Return a tensor from memory, as (channels, height, width)."""
        pitch = words_of(tensor.channels, self.design) * self.design.word_bytes
        size = tensor.height * tensor.width * pitch
        content = memory[self.addresses[tensor.name] :][:size].view(np.int8)
        shaped: Bytes = content.reshape(tensor.height, tensor.width, pitch)[:, :, : tensor.channels].transpose(2, 0, 1)
        return shaped


def laid_out(values: Bytes, design: EngineDesign) -> Bytes:
    """Return a map (channels, height, width) as it is in memory: pixel by pixel, its channels as whole folds."""
    pitch = words_of(values.shape[0], design) * design.word_bytes
    padded = np.zeros((*values.shape[1:], pitch), np.int8)
    padded[:, :, : values.shape[0]] = values.transpose(1, 2, 0)
    return padded.reshape(-1)


def program_of(network: EngineNetwork, tilings: Sequence[Tiling], design: EngineDesign) -> Program:
    """Return the program of a network whose layers are divided as given.

    Raises:
        PipelineError: a figure of a layer does not fit its field of a descriptor.
    """
    builder = _Builder(design, MemoryPlaces.of(network, design))
    for tensor, values in network.constants:
        builder.contents.append((builder.places.at(tensor), laid_out(values, design).view(np.uint8)))
    last = [0]
    for tiling in tilings:
        weights: dict[int, tuple[int, int]] = {}  # of blocks, by their first fold: weights and constants
        for tile in tiling.tiles:
            builder.tile(tiling, tile, last[-1], weights)
        last.append(builder.counts["store"])
    memory = np.zeros(builder.places.end, np.uint8)
    for address, content in builder.contents:
        memory[address : address + content.size] = content
    return Program(design, network, memory, builder.places.addresses, tuple(builder.descriptors), tuple(last[1:]))


@dataclass
class _Builder:
    design: EngineDesign
    places: MemoryPlaces
    contents: list[tuple[int, NDArray[np.uint8]]] = field(default_factory=list)
    descriptors: list[Descriptor] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"load": 0, "compute": 0, "store": 0})
    # After each tile: descriptors of `compute` and of `store` up to it.
    computed: list[int] = field(default_factory=lambda: [0, 0])
    stored: list[int] = field(default_factory=lambda: [0, 0])
    halves: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(5), 0))  # by the target of a load

    def _constant(self, content: NDArray[Any]) -> int:
        data = content.reshape(-1).view(np.uint8)
        address = self.places.allocate(data.size)
        self.contents.append((address, data))
        return address

    def _give(self, unit: str, words: Sequence[int]) -> None:
        self.descriptors.append(Descriptor(unit, tuple(word & 0xFFFFFFFF for word in words)))
        self.counts[unit] += 1

    def _move(self, unit: str, target: int, needs: tuple[int, int], moved: Transfer, place: int) -> None:
        """Give a load or a store, which begins at a word of the buffer."""
        rows, words = moved.rows, moved.words
        if words * self.design.word_bytes == moved.stride_bytes and not moved.is_turned:
            rows, words = 1, rows * words
        if words >= 1 << 16 or rows >= 1 << 16:
            raise PipelineError("load", f"{rows} rows of {words} words do not fit a descriptor")
        fields = (target, _pair(*needs), moved.address, _pair(place, words), rows << 16, moved.stride_bytes)
        self._give(unit, fields)

    def tile(self, tiling: Tiling, tile: EngineTile, before: int, weights: dict[int, tuple[int, int]]) -> None:
        layer, design = tiling.layer, self.design
        if tile.loads_weights and tile.first_fold not in weights:
            weights[tile.first_fold] = self._packed(tiling, tile)
        needs = (self.computed[-2], before)
        for moved in loads_of(tiling, tile, self.places, weights.get(tile.first_fold, (0, 0))):
            self._load(moved, needs)
        result = len(self.stored) % 2 * design.result_depth // 2
        for piece in tile.pieces:
            of_piece = self._row_work if layer.rows else self._compute
            self._give("compute", of_piece(tiling, tile, piece, result))
        self.computed.append(self.counts["compute"])
        results = pixels_of(tiling, tile, self.places, layer.y)
        self._move("store", 0, (self.counts["compute"], 0), results, result * design.words_per_fold)
        self.stored.append(self.counts["store"])

    def _packed(self, tiling: Tiling, tile: EngineTile) -> tuple[int, int]:
        """Place the weights, or the table, of a tile, and its constants; return their addresses."""
        layer = tiling.layer
        if layer.rows:
            first: NDArray[Any] = layer.rows.table
        else:
            first = np.zeros(0, np.int8) if layer.second else packed_weights(tiling, tile)
        return self._constant(first), self._constant(packed_constants(layer, tile, self.design))

    def _load(self, moved: Transfer, needs: tuple[int, int]) -> None:
        """Load into the half of a buffer that was not filled last, or behind what was loaded into it just before."""
        self.halves[moved.target] ^= moved.offset == 0
        place = self.halves[moved.target] * self._half(moved.target) + moved.offset
        if moved.is_turned:  # lines of a second tensor are columns of weights, else their steps
            place //= self.design.words_per_fold * self.design.word_bytes
        self._move("load", moved.target << 2 | (TURNED if moved.is_turned else 0), needs, moved, place)

    def _half(self, target: int) -> int:
        """Return the words of memory that half of a buffer holds."""
        design = self.design
        per_word = {
            INPUT: (design.input_depth, 1),
            WEIGHTS: (design.weight_depth, design.cols * design.simd // design.word_bytes),
            CONSTANTS: (design.channel_depth, design.cols * CONSTANT_BYTES // design.word_bytes),
            RESIDUAL: (design.result_depth, design.words_per_fold),
            TABLE: (0, 0),  # it has one place
        }
        depth, words = per_word[target]
        return depth // 2 * words

    def _row_work(self, tiling: Tiling, tile: EngineTile, _: Piece, result: int) -> list[int]:
        """Return the descriptor of row-wise work; a function sees all rows as a single one."""
        layer, design, work = tiling.layer, self.design, tiling.layer.rows
        assert work is not None
        flags = {"table": 0, "softmax": SOFTMAX, "normalization": NORMALIZATION}[work.kind]
        rows, words = tile.lines * layer.x.width, tiling.pitch
        if work.kind == "table":
            rows, words = 1, rows * words
        return [
            ROWS | flags | (PER_CHANNEL if work.is_per_channel else 0),
            _pair(self.counts["load"], self.stored[-2]),
            self.halves[INPUT] * design.input_depth // 2,
            _pair(rows, words),
            layer.x.channels,
            _pair(self.halves[CONSTANTS] * design.channel_depth // 2, result * design.words_per_fold),
            work.last_shift << 8 | SHIFTS[work.kind],
            work.addend & 0xFFFFFFFF,
            work.addend >> 32,
            *[0] * (COMPUTE_WORDS - 9),
        ]

    def _compute(self, tiling: Tiling, tile: EngineTile, piece: Piece, result: int) -> list[int]:
        layer, design = tiling.layer, self.design
        is_pool = not layer.is_product
        (height, width), (down, across), (top, left) = layer.kernel, layer.strides, layer.pads
        line = tile.first_line * down - top  # of the input, at which the first window begins
        row_pitch = layer.x.width * tiling.pitch
        first, _ = tiling.band(tile)
        base = self.halves[INPUT] * design.input_depth // 2
        base += (line - first) * row_pitch - left * tiling.pitch + piece.first_word
        before = tile.pieces[: tile.pieces.index(piece)]
        step = sum(each.folds * tiling.steps(each) for each in before) if not is_pool else 0
        fold = piece.first_fold - tile.first_fold
        flags = (POOL if is_pool else 0) | (0 if piece.is_first else ADDS) | (COMPLETES if piece.is_last else 0)
        residual = layer.residual
        if residual:
            flags |= ADDS_RESIDUAL | (MULTIPLIES if residual.is_factor else 0)
        place, span = result + fold, tile.folds
        if is_pool:
            # In words: the place of the first pixel, and the words from one pixel to the next.
            per_fold = design.words_per_fold
            place = result * per_fold + piece.first_word - tile.first_fold * per_fold
            span = tile.folds * per_fold
        # Zero points of weights and of maps are in the bias.
        zeros = _bytes(layer.second.tensor.zero, layer.x.zero) << 16 if layer.second else 0
        apart_down, apart_across = layer.dilations
        return [
            zeros | (apart_across - 1) << 12 | (apart_down - 1) | flags,
            _pair(self.counts["load"], self.stored[-2]),
            _pair(span, base),
            _pair(layer.x.height, layer.x.width),
            _pair(line, -left),
            _pair(layer.y.width, tile.lines * layer.y.width),
            height << 24 | width << 16 | piece.words,
            _pair(apart_across * tiling.pitch, apart_down * row_pitch),
            _pair(across * tiling.pitch, down * row_pitch),
            across << 24 | down << 16 | (LEAST if is_pool else layer.x.zero) % 256 << 8 | tiling.tail_steps(piece),
            _pair(tiling.window * piece.words, self.halves[WEIGHTS] * design.weight_depth // 2 + step),
            _pair(place, self.halves[CONSTANTS] * design.channel_depth // 2 + fold),
            _pair(self.halves[RESIDUAL] * design.result_depth // 2 + fold, span if is_pool else piece.folds),
            _pair(design.rows * span, (design.rows - 1) * span),
            _bytes(layer.own_zero, layer.low, layer.high, residual.other.zero if residual else 0),
            *_residual_words(residual, layer.y),
        ]


def _pair(upper: int, lower: int) -> int:
    return (upper & 0xFFFF) << 16 | lower & 0xFFFF


def _bytes(*values: int) -> int:
    word = 0
    for value in values:
        word = word << 8 | value & 0xFF
    return word


def residual_factors(residual: Residual, y: EngineTensor) -> tuple[int, int, int]:
    """Return the whole factors of a result and of a residual, and the shift: scale / scale(y) = factor / 2^shift.

    The larger factor has 25 bits. Of a product of both, the second factor is that of the product, with 17 bits.
    """
    if residual.is_factor:
        ratio = float(residual.own_scale) * float(residual.other.scale) / float(y.scale)
        shift = PRODUCT_BITS - 1 - floor(log2(ratio))
        factor = round(ratio * 2.0**shift)
        return (0, factor, shift) if factor < 1 << PRODUCT_BITS else (0, (factor + 1) // 2, shift - 1)
    ratios = [float(residual.own_scale) / float(y.scale), float(residual.other.scale) / float(y.scale)]
    shift = RESIDUAL_BITS - 1 - floor(log2(max(ratios)))
    own, other = (round(ratio * 2.0**shift) for ratio in ratios)
    if max(own, other) >= 1 << RESIDUAL_BITS:
        own, other, shift = (own + 1) // 2, (other + 1) // 2, shift - 1
    return own, other, shift


def _residual_words(residual: Residual | None, y: EngineTensor) -> list[int]:
    if residual is None:
        return [0, 0, 0]
    own, other, shift = residual_factors(residual, y)
    if not LEAST_SHIFT <= shift <= MOST_SHIFT:
        raise PipelineError(y.name, "its scale is too far from those of what is added")
    return [_bytes(y.zero, residual.low, residual.high, shift - 1), own, other]


def packed_weights(tiling: Tiling, tile: EngineTile) -> Bytes:
    """Return the weights of a tile as the array takes them: piece, fold, step, column, product of the step."""
    layer, design = tiling.layer, tiling.design
    count, first = tile.folds * design.cols, tile.first_fold * design.cols
    dense = np.zeros((count, ceil(layer.x.channels / design.word_bytes) * design.word_bytes, *layer.kernel), np.int8)
    outputs = range(first, min(first + count, layer.y.channels))
    dense[: len(outputs)] = layer.dense(dense.shape[1], outputs)
    parts = []
    for piece in tile.pieces:
        start = piece.first_word * design.word_bytes
        fold = piece.first_fold - tile.first_fold
        of_piece = dense[fold * design.cols : (fold + piece.folds) * design.cols]
        of_piece = of_piece[:, start : start + piece.words * design.word_bytes]
        shaped = of_piece.reshape(piece.folds, design.cols, piece.words, design.steps_per_word, design.simd, -1)
        # (folds, window, words, steps of a word, cols, simd)
        ordered = shaped.transpose(0, 5, 2, 3, 1, 4)
        flat = ordered.reshape(piece.folds, tiling.window, -1, design.cols, design.simd)
        steps = (piece.words - 1) * design.steps_per_word + tiling.tail_steps(piece)
        parts.append(flat[:, :, :steps].reshape(-1))
    return np.concatenate(parts)


def packed_constants(layer: EngineLayer, tile: EngineTile, design: EngineDesign) -> NDArray[np.uint8]:
    """Return the constants of a block's channels: bias less what the zero point adds, factor, shift less one."""
    if layer.rows:
        return _packed_factors(layer.rows, tile.folds * design.cols if layer.rows.is_per_channel else design.cols)
    count = tile.folds * design.cols
    words = np.zeros(count, np.uint64)
    channels = range(tile.first_fold * design.cols, min(layer.y.channels, tile.first_fold * design.cols + count))
    sums = np.zeros(layer.y.channels, np.int64)  # of a second tensor the array takes the zero points off
    if layer.weights is not None:
        sums = layer.weights.astype(np.int64).reshape(len(layer.weights), -1).sum(axis=1)
    for place, channel in enumerate(channels):
        bias = int(layer.bias[channel]) - layer.x.zero * int(sums[channel])
        if not -(1 << 31) <= bias < 1 << 31:
            raise PipelineError(layer.node, f"the bias of channel {channel} does not fit 32 bits")
        factor, shift = mantissa_and_shift(float(layer.factors[channel]))
        words[place] = np.uint64((bias & 0xFFFFFFFF) | factor << 32 | (shift - 1) << 56)
    return words.view(np.uint8)


def _packed_factors(work: RowWork, count: int) -> NDArray[np.uint8]:
    """Return b and g of each channel, or the same ones for all."""
    words = np.zeros((count, 2), np.int32)
    given = len(work.factors) if work.is_per_channel else count
    words[:given, 0], words[:given, 1] = work.offsets, work.factors
    return words.reshape(-1).view(np.uint8)


def mantissa_and_shift(factor: float) -> tuple[int, int]:
    """Return a float32 as a whole number of 24 bits and a shift: factor = number / 2^shift.

    A factor below 2^-41 makes every sum zero.

    Raises:
        PipelineError: it is negative, or 2^23 or more.
    """
    if not 0 <= factor < 1 << (MANTISSA_BITS - 1):
        raise PipelineError("factor", f"{factor:g} is no factor of a requantization")
    fraction, exponent = frexp(factor)
    shift = MANTISSA_BITS - exponent
    return (round(fraction * (1 << MANTISSA_BITS)), shift) if shift <= MOST_SHIFT else (0, 1)

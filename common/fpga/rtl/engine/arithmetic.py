"""The integers that the engine computes, by numpy: those of its Verilog, and of QuantizeLinear, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from common.fpga.rtl.engine.network import LEAST, MOST, Bytes, EngineLayer, EngineNetwork, EngineTensor
from common.fpga.rtl.engine.program import residual_factors
from common.fpga.rtl.engine.rows import ADDEND_UNIT, TABLE_ENTRIES, RowWork
from common.messages.errors import PipelineError

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
OPERAND_BITS = 17  # of q and of r, as rows.v has them
LARGEST_EXACT_SUM = 1 << 29  # times a factor of 24 bits, it is exact in float64


def tensors_of(network: EngineNetwork, inputs: Mapping[str, Bytes]) -> dict[str, Bytes]:
    """Return every tensor of the network by name.

    Args:
        inputs: by name, (samples, channels, height, width), all moved to int8.

    Raises:
        PipelineError: a sum is too large for its product with a factor to be exact here.
    """
    tensors = dict(inputs)
    samples = max(map(len, tensors.values()), default=1)
    for tensor, content in network.constants:
        tensors[tensor.name] = np.broadcast_to(content, (samples, tensor.channels, tensor.height, tensor.width))
    for layer in network.layers:
        result, whole = _result(layer, tensors), layer.y.whole
        if whole.name not in tensors:
            tensors[whole.name] = np.zeros((len(result), whole.channels, whole.height, whole.width), np.int8)
        _part(tensors, layer.y)[:] = result
    return tensors


def _part(tensors: Mapping[str, Bytes], tensor: EngineTensor) -> Bytes:
    """Return a tensor that may be a part of one in memory."""
    whole = tensors[tensor.whole.name].reshape(-1, tensor.whole.channels, tensor.whole.height, tensor.whole.width)
    channels = slice(tensor.first_channel, tensor.first_channel + tensor.channels)
    return whole[:, channels, tensor.first_line : tensor.first_line + tensor.height]


def _result(layer: EngineLayer, tensors: Mapping[str, Bytes]) -> Bytes:
    x = _part(tensors, layer.x)
    if layer.rows:
        return _rows(layer.rows, x.astype(np.int64))
    if layer.second:
        result = _scaled(layer, _sums_of_two(layer, x, _part(tensors, layer.second.tensor)))
    elif layer.weights is None:
        result = windows_of(layer, x.astype(np.float64), LEAST).max(axis=(4, 5))
    else:
        result = _scaled(layer, _sums(layer, x))
    if layer.residual:
        result = _with_residual(layer, result, _part(tensors, layer.residual.other))
    return result.astype(np.int8)


# --- the array, and what is behind it ---------------------------------------------------------------------------------


def windows_of(layer: EngineLayer, x: Numbers, outside: float) -> Numbers:
    """Return the windows: (samples, channels, output lines, output columns, lines, columns)."""
    x = x.reshape(len(x), layer.x.channels, layer.x.height, layer.x.width)
    (height, width), (down, across), (top, left) = layer.reach, layer.strides, layer.pads
    below = (layer.y.height - 1) * down + height - top - layer.x.height
    right = (layer.y.width - 1) * across + width - left - layer.x.width
    padding = ((0, 0), (0, 0), (top, max(below, 0)), (left, max(right, 0)))
    padded = np.pad(x, padding, constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    apart = windows[..., :: layer.dilations[0], :: layer.dilations[1]]
    return apart[:, :, ::down, ::across][:, :, : layer.y.height, : layer.y.width]


def _sums(layer: EngineLayer, x: Bytes) -> Numbers:
    """Return the sums with their biases; below 2^53 they are exact in float64, for which numpy has fast products."""
    assert layer.weights is not None
    windows = windows_of(layer, x.astype(np.float64) - layer.x.zero, 0.0)
    samples, channels, lines, columns = windows.shape[:4]
    inside = channels // layer.groups
    # (samples, groups, pixels, operands of a sum) times (groups, operands, output channels of a group)
    rows = windows.reshape(samples, layer.groups, inside, lines, columns, -1).transpose(0, 1, 3, 4, 2, 5)
    weights = layer.weights.astype(np.float64).reshape(layer.groups, len(layer.weights) // layer.groups, -1)
    sums = rows.reshape(samples, layer.groups, lines * columns, -1) @ weights.transpose(0, 2, 1)
    shaped: Numbers = sums.transpose(0, 1, 3, 2).reshape(samples, -1, lines, columns)
    return shaped + layer.bias.reshape(-1, 1, 1)


def _sums_of_two(layer: EngineLayer, x: Bytes, second: Bytes) -> Numbers:
    """Return the product of the lines of two maps of one column."""
    assert layer.second
    # (samples, lines, k) times (samples, k, channels of the result)
    lines = (x[..., 0].astype(np.float64) - layer.x.zero).swapaxes(1, 2)
    others = second[..., 0].astype(np.float64) - layer.second.tensor.zero
    product: Numbers = lines @ (others if layer.second.is_turned else others.swapaxes(1, 2))
    return product.swapaxes(1, 2)[..., None]


def _scaled(layer: EngineLayer, sums: Numbers) -> Numbers:
    if np.abs(sums).max(initial=0) >= LARGEST_EXACT_SUM:
        raise PipelineError(layer.node, f"has a sum of {np.abs(sums).max():,.0f}, which is beyond 2^29")
    rounded = np.rint(sums * layer.factors.astype(np.float64).reshape(-1, 1, 1)) + layer.own_zero
    limited: Numbers = np.clip(rounded, max(layer.low, LEAST), min(layer.high, MOST))
    return limited


def _with_residual(layer: EngineLayer, result: Numbers, other: Bytes) -> Numbers:
    residual = layer.residual
    assert residual
    own_factor, other_factor, shift = residual_factors(residual, layer.y)
    shape = result.shape if not residual.is_single_pixel else (*result.shape[:2], 1, 1)
    moved = other.reshape(shape).astype(np.float64) - residual.other.zero
    own = result - residual.own_zero
    # Two products of 9 and 25 bits, or one of 18 and 17: below 2^53, and a power of two divides without an error.
    total = own * moved * other_factor if residual.is_factor else own * own_factor + moved * other_factor
    added: Numbers = np.clip(np.rint(total / 2.0**shift) + layer.y.zero, residual.low, residual.high)
    return added


# --- row-wise work ----------------------------------------------------------------------------------------------------


def _rows(work: RowWork, x: Integers) -> Bytes:
    """Return the results of rows.v for each row, which is the channels of a pixel."""
    pixels = np.moveaxis(x, 1, -1)
    rows = pixels.reshape(-1, pixels.shape[-1])
    if work.kind == "table":
        scaled = work.table.astype(np.int64)[rows % TABLE_ENTRIES]
    else:
        operands, scalars = _of_softmax(work, rows) if work.kind == "softmax" else _of_normalization(work, rows)
        reciprocals, shifts = (np.array(each, np.int64)[:, None] for each in zip(*scalars, strict=True))
        scaled = ((operands * reciprocals >> (shifts - 1)) + 1) >> 1
    results = np.clip((scaled * work.factors + work.offsets) >> work.last_shift, LEAST, MOST)
    maps: Bytes = np.moveaxis(results.reshape(pixels.shape), -1, 1).astype(np.int8)
    return maps


def _of_softmax(work: RowWork, rows: Integers) -> tuple[Integers, list[tuple[int, int]]]:
    """Return the exponentials, and for each row the reciprocal of their sum with its shift."""
    exponentials = work.table.astype(np.int64)[rows.max(axis=1, keepdims=True) - rows]
    totals = [(total, total.bit_length() - OPERAND_BITS) for total in exponentials.sum(axis=1).tolist()]
    return exponentials, [(_reciprocal(total >> k), 17 + k) for total, k in totals]


def _of_normalization(work: RowWork, rows: Integers) -> tuple[Integers, list[tuple[int, int]]]:
    """Return n times the distances from the mean, and for each row the reciprocal of the root with its shift."""
    count = rows.shape[1]
    sums = rows.sum(axis=1)
    scalars = []
    for squares in (count * (rows * rows).sum(axis=1) - sums * sums).tolist():
        variance = ADDEND_UNIT * squares + work.addend
        # The root has 17 bits: an even number of zeros behind the variance, and eight bits of it less.
        zeros = (42 - variance.bit_length()) // 2 * 2
        scalars.append((_reciprocal(isqrt((variance << zeros) >> 8)), 22 - zeros // 2))
    return count * rows - sums[:, None], scalars


def _reciprocal(root_or_sum: int) -> int:
    return min((1 << 33) // root_or_sum, (1 << OPERAND_BITS) - 1)

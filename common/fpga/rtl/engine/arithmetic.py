"""The integers that the engine computes, by numpy: those of its Verilog, and of QuantizeLinear, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from common.fpga.rtl.engine.network import LEAST, MOST, Bytes, EngineLayer, EngineNetwork
from common.fpga.rtl.engine.program import residual_factors
from common.messages.errors import PipelineError

Numbers = NDArray[np.float64]
LARGEST_EXACT_SUM = 1 << 29  # times a factor of 24 bits, it is exact in float64


def tensors_of(network: EngineNetwork, inputs: Mapping[str, Bytes]) -> dict[str, Bytes]:
    """Return every tensor of the network by name.

    Args:
        inputs: by name, (samples, channels, height, width), all moved to int8.

    Raises:
        PipelineError: a sum is too large for its product with a factor to be exact here.
    """
    tensors = dict(inputs)
    for layer in network.layers:
        x = tensors[layer.x.name]
        result = _maximum(layer, x) if layer.weights is None else _scaled(layer, _sums(layer, x))
        if layer.residual:
            result = _with_residual(layer, result, tensors[layer.residual.other.name])
        tensors[layer.y.name] = result.astype(np.int8)
    return tensors


def _windows(layer: EngineLayer, x: NDArray[np.float64], outside: float) -> Numbers:
    """Return the windows: (samples, channels, output lines, output columns, lines, columns)."""
    x = x.reshape(len(x), layer.x.channels, layer.x.height, layer.x.width)
    (height, width), (down, across), (top, left) = layer.kernel, layer.strides, layer.pads
    below = (layer.y.height - 1) * down + height - top - layer.x.height
    right = (layer.y.width - 1) * across + width - left - layer.x.width
    padding = ((0, 0), (0, 0), (top, max(below, 0)), (left, max(right, 0)))
    padded = np.pad(x, padding, constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    return windows[:, :, ::down, ::across][:, :, : layer.y.height, : layer.y.width]


def _maximum(layer: EngineLayer, x: Bytes) -> Numbers:
    greatest: Numbers = _windows(layer, x.astype(np.float64), LEAST).max(axis=(4, 5))
    return greatest


def _sums(layer: EngineLayer, x: Bytes) -> Numbers:
    """Return the sums with their biases; below 2^53 they are exact in float64, for which numpy has fast products."""
    assert layer.weights is not None
    windows = _windows(layer, x.astype(np.float64) - layer.x.zero, 0.0)
    samples, channels, lines, columns = windows.shape[:4]
    inside = channels // layer.groups
    # (samples, groups, pixels, operands of a sum) times (groups, operands, output channels of a group)
    rows = windows.reshape(samples, layer.groups, inside, lines, columns, -1).transpose(0, 1, 3, 4, 2, 5)
    weights = layer.weights.astype(np.float64).reshape(layer.groups, len(layer.weights) // layer.groups, -1)
    sums = rows.reshape(samples, layer.groups, lines * columns, -1) @ weights.transpose(0, 2, 1)
    shaped: Numbers = sums.transpose(0, 1, 3, 2).reshape(samples, -1, lines, columns)
    return shaped + layer.bias.reshape(-1, 1, 1)


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
    moved = other.reshape(result.shape).astype(np.float64) - residual.other.zero
    # Two products of 9 and 25 bits: below 2^53, and a power of two divides without an error.
    total = (result - residual.own_zero) * own_factor + moved * other_factor
    added: Numbers = np.clip(np.rint(total / 2.0**shift) + layer.y.zero, residual.low, residual.high)
    return added

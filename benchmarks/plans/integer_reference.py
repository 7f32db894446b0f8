"""A quantized network (QDQ) in integers as an engine rounds: exact products, each rounded once, ties to even.

It shares no code with the engine's programs: it follows the nodes of the model, and sums by the positions of a window.
A sum becomes an element by scale(x) * scale(w) / scale(y) as a float32, with which the product is exact. An addition
scales both operands by whole factors over a power of two, of which the larger has 25 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Whole = NDArray[np.int64]
FACTOR_BITS = 25


@dataclass(frozen=True)
class Number:
    """Integers that mean (values - zero) * scale; the scale is one number, or one for each channel (axis 1).

    ``low`` and ``high`` are limits as real numbers, which hold when it is quantized.
    """

    values: Whole
    scale: NDArray[np.float32]
    zero: int = 0
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class Sum:
    """Two numbers that are added when they are quantized, and the limits of the sum as a real number."""

    left: Number
    right: Number
    low: float = -np.inf
    high: float = np.inf


def outputs(model: onnx.ModelProto, feeds: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
    """Return every tensor of the network; integers where it is quantized."""
    tensors: dict[str, Any] = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    tensors |= feeds
    for node in model.graph.node:
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        operands = [tensors[name] if name else None for name in node.input]
        tensors[node.output[0]] = OPERATORS[node.op_type](operands, attributes)
    return tensors


def _constant(_: list[Any], attributes: Mapping[str, Any]) -> NDArray[Any]:
    ((kind, value),) = attributes.items()
    if kind == "value":
        return numpy_helper.to_array(value)
    return np.array(value, np.float32 if kind.startswith("value_float") else np.int64)


def _dequantize(operands: list[Any], _: Mapping[str, Any]) -> Number:
    values, scale, zero = (*operands, None)[:3]
    scales = np.asarray(scale, np.float32)
    return Number(
        values.astype(np.int64),
        scales.reshape(()) if scales.size == 1 else scales,
        0 if zero is None else int(np.ravel(zero)[0]),
    )


def _quantize(operands: list[Any], attributes: Mapping[str, Any]) -> NDArray[Any]:
    x, given, zero = (*operands, None)[:3]
    scale = np.float32(given.item())
    if zero is None:
        kind = attributes.get("output_dtype", 0) or onnx.TensorProto.UINT8
        zero = np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(kind))
    limits = np.iinfo(zero.dtype)
    if isinstance(x, Number):
        # 24 bits times less than 29 bits: float64 has the product without an error.
        assert np.abs(x.values - x.zero).max() < 1 << 29
        factor = _along(np.asarray(x.scale / scale, np.float32).astype(np.float64), x.values)
        rounded = np.rint((x.values - x.zero) * factor)
    elif isinstance(x, Sum):
        rounded = _added(x, Fraction(float(scale)))
    else:
        rounded = np.rint(x / scale)
    if isinstance(x, Number | Sum):
        # Rounding is monotonic: a limit may be rounded by itself.
        rounded = np.clip(rounded, np.rint(np.float32(x.low) / scale), np.rint(np.float32(x.high) / scale))
    cut: NDArray[Any] = np.clip(rounded + zero.item(), limits.min, limits.max).astype(zero.dtype)
    return cut


def _added(x: Sum, scale: Fraction) -> NDArray[np.float64]:
    ratios = [Fraction(float(part.scale)) / scale for part in (x.left, x.right)]
    shift = next(s for s in range(64, -64, -1) if max(round(ratio * 2**s) for ratio in ratios) < 1 << FACTOR_BITS)
    left, right = (
        (part.values - part.zero) * round(ratio * 2**shift)
        for part, ratio in zip((x.left, x.right), ratios, strict=True)
    )
    rounded: NDArray[np.float64] = np.rint((left + right) / 2.0**shift)  # below 2^53: exact
    return rounded


def _convolution(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x, w, *bias = operands
    top, left, bottom, right = attributes.get("pads", [0] * 4)
    down, across = attributes.get("strides", [1, 1])
    groups = attributes.get("group", 1)
    moved = np.pad(x.values - x.zero, ((0, 0), (0, 0), (top, bottom), (left, right)))
    out, inside, height, width = w.values.shape
    lines, columns = (moved.shape[2] - height) // down + 1, (moved.shape[3] - width) // across + 1
    weights = (w.values - w.zero).reshape(groups, out // groups, inside, height, width)
    sums = np.zeros((len(moved), groups, out // groups, lines, columns), np.int64)
    for row in range(height):
        for column in range(width):
            part = moved[:, :, row : row + down * lines : down, column : column + across * columns : across]
            part = part.reshape(len(moved), groups, inside, lines, columns)
            sums += np.einsum("goi,bgihw->bgohw", weights[:, :, :, row, column], part)
    total = sums.reshape(len(moved), out, lines, columns)
    if bias and bias[0] is not None:
        total = total + bias[0].values.reshape(1, -1, 1, 1)
    return Number(total, (x.scale * w.scale).astype(np.float32))


def _gemm(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x, w, *bias = operands
    weights = w.values - w.zero
    total = (x.values - x.zero) @ (weights.T if attributes.get("transB") else weights)
    if bias and bias[0] is not None:
        total = total + bias[0].values
    return Number(total, (x.scale * w.scale).astype(np.float32))


def _mean(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x: Number = operands[0]
    height, width = attributes.get("kernel_shape", x.values.shape[2:])
    down, across = attributes.get("strides", [1, 1])
    windows = np.lib.stride_tricks.sliding_window_view(x.values - x.zero, (height, width), axis=(2, 3))
    scale = np.float32(x.scale * np.float32(1 / (height * width)))
    return Number(windows[:, :, ::down, ::across].sum(axis=(4, 5)), np.asarray(scale))


def _maximum(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x: Number = operands[0]
    top, left, bottom, right = attributes.get("pads", [0] * 4)
    down, across = attributes.get("strides", [1, 1])
    padded = np.pad(x.values, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-(1 << 30))
    windows = np.lib.stride_tricks.sliding_window_view(padded, attributes["kernel_shape"], axis=(2, 3))
    return replace(x, values=windows[:, :, ::down, ::across].max(axis=(4, 5)))


def _relu(operands: list[Any], _: Mapping[str, Any]) -> Number | Sum:
    return _limited(operands[0], 0.0, np.inf)


def _clip(operands: list[Any], attributes: Mapping[str, Any]) -> Number | Sum:
    x, low, high = (*operands, None, None)[:3]
    low = attributes.get("min") if low is None else low
    high = attributes.get("max") if high is None else high
    return _limited(x, -np.inf if low is None else float(low), np.inf if high is None else float(high))


def _limited(x: Number | Sum, low: float, high: float) -> Number | Sum:
    """Return a number with further limits: those it had are limited too, as every value is."""
    return replace(x, low=min(max(x.low, low), high), high=min(max(x.high, low), high))


def _flatten(operands: list[Any], attributes: Mapping[str, Any]) -> Any:
    axis = attributes.get("axis", 1)
    return _reshaped(operands[0], lambda shape: (int(np.prod(shape[:axis])), -1))


def _reshape(operands: list[Any], attributes: Mapping[str, Any]) -> Any:
    x, given = operands
    keeps = not attributes.get("allowzero")
    return _reshaped(
        x, lambda shape: [shape[axis] if keeps and side == 0 else int(side) for axis, side in enumerate(given)]
    )


def _reshaped(x: Any, extents: Callable[[tuple[int, ...]], Sequence[int]]) -> Any:
    if isinstance(x, Sum):
        return replace(x, left=_reshaped(x.left, extents), right=_reshaped(x.right, extents))
    if isinstance(x, Number):
        return replace(x, values=x.values.reshape(extents(x.values.shape)))
    return x.reshape(extents(x.shape))


def _along(per_channel: NDArray[Any], values: Whole) -> NDArray[Any]:
    return per_channel if per_channel.ndim == 0 else per_channel.reshape(1, -1, *[1] * (values.ndim - 2))


OPERATORS: Mapping[str, Callable[[list[Any], Mapping[str, Any]], Any]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "Constant": _constant,
    "Conv": _convolution,
    "Gemm": _gemm,
    "MatMul": _gemm,
    "GlobalAveragePool": _mean,
    "AveragePool": _mean,
    "MaxPool": _maximum,
    "Relu": _relu,
    "Clip": _clip,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Add": lambda operands, _: Sum(*operands),
}

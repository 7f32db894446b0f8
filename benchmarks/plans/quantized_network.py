"""A quantized network (QDQ) in integers, by numpy alone: what an array computes, and what its epilogue makes of a sum.

A convolution or a product adds integers. Its sum becomes an element as QLinearConv says: as a float32, times
scale(x) · scale(w) / scale(y), to the nearest integer with ties to even, plus the zero point, cut off. Everything else
computes in float32 between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Matrix = NDArray[np.int64]
Product = Callable[[str, Matrix, Matrix], Matrix]  # name of the node, (m, k), (k, n): their product


@dataclass(frozen=True, slots=True)
class Whole:
    """Integers that mean ``(values - zero) * scale``; scale and zero are scalars or have one entry per channel."""

    values: Matrix
    scale: NDArray[np.float32]
    zero: Matrix

    @property
    def floats(self) -> NDArray[np.float32]:
        whole = (self.values - _along_channels(self.zero, self.values)).astype(np.float32)
        numbers: NDArray[np.float32] = whole * _along_channels(self.scale, self.values)
        return numbers


def by_numpy(_: str, a: Matrix, b: Matrix) -> Matrix:
    """Multiply two matrices of integers."""
    product: Matrix = a @ b
    return product


def run(model: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]], product: Product = by_numpy) -> dict[str, Any]:
    """Return every tensor of the network: Whole after DequantizeLinear and for sums, else an array.

    Args:
        model: nodes in topological order: CONTRACTIONS, without groups and dilations, and OPERATORS.
        feeds: inputs by name.
        product: multiplies the operands of a contraction.
    """
    tensors: dict[str, Any] = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    tensors |= feeds
    for node in model.graph.node:
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        operands = [tensors[name] for name in node.input]
        if node.op_type in CONTRACTIONS:
            tensors[node.output[0]] = CONTRACTIONS[node.op_type](
                operands, attributes, lambda a, b, name=node.name: product(name, a, b)
            )
        else:
            tensors[node.output[0]] = OPERATORS[node.op_type](operands, attributes)
    return tensors


def _convolution(operands: list[Any], attributes: Mapping[str, Any], multiply: Callable[..., Matrix]) -> Whole:
    x, w, *bias = operands
    top, left, bottom, right = attributes["pads"]
    # Padding is a zero as a number, and so the zero point as an integer.
    padded = np.pad(x.values, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=int(x.zero))
    (out, _, height, width), (down, across) = w.values.shape, attributes["strides"]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))[:, :, ::down, ::across]
    batch, _, out_height, out_width, _, _ = windows.shape
    # Rows are pixels; along k come the window's rows, its columns, then the channels.
    a = windows.transpose(0, 2, 3, 4, 5, 1).reshape(batch * out_height * out_width, -1)
    b = w.values.transpose(0, 2, 3, 1).reshape(out, -1).T
    sums = multiply(a, b) + _constant(x, w.values.reshape(out, -1), bias)
    shaped = sums.reshape(batch, out_height, out_width, out).transpose(0, 3, 1, 2)
    return Whole(shaped, x.scale * w.scale, np.zeros(out, np.int64))


def _gemm(operands: list[Any], attributes: Mapping[str, Any], multiply: Callable[..., Matrix]) -> Whole:
    x, w, *bias = operands
    weights = w.values if attributes.get("transB") else w.values.T
    sums = multiply(x.values, weights.T) + _constant(x, weights, bias)
    return Whole(sums, x.scale * w.scale, np.zeros(len(weights), np.int64))


def _constant(x: Whole, weights: Matrix, bias: list[Whole]) -> Matrix:
    """Return what every sum of a channel gets: the bias, less what the zero point of the input adds."""
    constant: Matrix = -int(x.zero) * weights.sum(axis=1)
    return constant + bias[0].values if bias else constant


CONTRACTIONS: Mapping[str, Callable[..., Whole]] = {"Conv": _convolution, "Gemm": _gemm}


def _quantize(operands: list[Any], _: Mapping[str, Any]) -> NDArray[Any]:
    x, scale, zero = operands
    if isinstance(x, Whole):
        factor = _along_channels((x.scale / scale).astype(np.float32), x.values)
        scaled = np.rint(x.values.astype(np.float32) * factor)
    else:
        scaled = np.rint(x / scale)
    limits = np.iinfo(zero.dtype)
    cut: NDArray[Any] = np.clip(scaled + np.float32(zero), limits.min, limits.max).astype(zero.dtype)
    return cut


def _dequantize(operands: list[Any], _: Mapping[str, Any]) -> Whole:
    values, scale, zero = operands
    return Whole(values.astype(np.int64), scale, zero.astype(np.int64))


def _relu(operands: list[Any], _: Mapping[str, Any]) -> Any:
    (x,) = operands
    return Whole(np.maximum(x.values, 0), x.scale, x.zero) if isinstance(x, Whole) else np.maximum(x, 0)


def _flatten(operands: list[Any], _: Mapping[str, Any]) -> Whole:
    (x,) = operands
    return Whole(x.values.reshape(len(x.values), -1), x.scale, x.zero)


def _mean(operands: list[Any], _: Mapping[str, Any]) -> NDArray[np.float32]:
    mean: NDArray[np.float32] = operands[0].floats.mean(axis=(2, 3), keepdims=True, dtype=np.float32)
    return mean


def _sum(operands: list[Any], _: Mapping[str, Any]) -> Any:
    return operands[0].floats + operands[1].floats


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "Relu": _relu,
    "Flatten": _flatten,
    "GlobalAveragePool": _mean,
    "Add": _sum,
}


def _along_channels(per_channel: NDArray[Any], values: Matrix) -> NDArray[Any]:
    """Return figures of channels (axis 1 of maps and rows, axis 0 of a vector) so that numpy pairs them with values."""
    if per_channel.ndim == 0 or values.ndim == 1:
        return per_channel
    return per_channel.reshape(1, -1, *[1] * (values.ndim - 2))

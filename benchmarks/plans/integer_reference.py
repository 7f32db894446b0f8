"""A quantized network (QDQ) in integers as an engine rounds: exact products, each rounded once, ties to even.

It shares no code with the engine's programs: it follows the nodes of the model, and sums by the positions of a window.
A sum becomes an element by scale(x) * scale(w) / scale(y) as a float32, with which the product is exact. An addition
scales both operands by whole factors over a power of two, of which the larger has 25 bits. A chain of functions of one
tensor is computed in float32. Softmax and LayerNormalization follow the formulas of common/fpga/rtl/engine/rows.v.
"""

from __future__ import annotations

import math
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
    """Integers that mean (values - zero) * scale; the scale is one number, or one for each channel.

    ``low`` and ``high`` are limits as real numbers, which hold when it is quantized. Sums are no tensor yet.
    """

    values: Whole
    scale: NDArray[np.float32]
    zero: int = 0
    low: float = -np.inf
    high: float = np.inf
    channel_axis: int = 1
    is_sums: bool = False

    @property
    def floats(self) -> NDArray[np.float32]:
        return np.asarray((self.values - self.zero).astype(np.float32) * self.scale)


@dataclass(frozen=True)
class Rows:
    """Row-wise work on a number: Softmax, or LayerNormalization with its scale, bias and epsilon."""

    x: Number
    normal: tuple[NDArray[np.float64], NDArray[np.float64], float] | None = None

    def quantized(self, scale: float, zero: int) -> Whole:
        width = self.x.values.shape[-1]
        rows = [self._row([int(each) for each in row]) for row in self.x.values.reshape(-1, width)]
        bits = 16 if self.normal is None else 12
        gamma, beta = (np.ones(1), np.zeros(1)) if self.normal is None else self.normal[:2]
        factors, offsets = gamma / scale * 2.0**-bits, beta / scale + zero
        for last in range(30, 0, -1):
            g, b = np.rint(factors * 2.0**last), np.rint(offsets * 2.0**last) + 2 ** (last - 1)
            if np.abs(g).max() < 1 << 17 and np.abs(b).max() < 1 << 31:
                break
        results = (np.array(rows, np.int64) * g.astype(np.int64) + b.astype(np.int64)) >> last
        shaped: Whole = results.reshape(self.x.values.shape)
        return shaped

    def _row(self, x: list[int]) -> list[int]:
        """Return t of each value of a row."""
        if self.normal is None:
            operands = [round(math.exp(-(max(x) - each) * float(self.x.scale)) * 131071) for each in x]
            k = sum(operands).bit_length() - 17
            q, shift = sum(operands) >> k, 17 + k
        else:
            addend = max(1, round(64 * len(x) ** 2 * self.normal[2] / float(self.x.scale) ** 2))
            operands = [len(x) * each - sum(x) for each in x]
            variance = 64 * (len(x) * sum(each * each for each in x) - sum(x) ** 2) + addend
            zeros = (42 - variance.bit_length()) // 2 * 2
            q, shift = math.isqrt((variance << zeros) >> 8), 22 - zeros // 2
        r = min((1 << 33) // q, 131071)
        return [((each * r >> (shift - 1)) + 1) >> 1 for each in operands]


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
    if isinstance(x, Rows):
        move = 128 if limits.min == 0 else 0
        rows: NDArray[Any] = np.clip(x.quantized(float(scale), zero.item() - move) + move, limits.min, limits.max)
        return rows.astype(zero.dtype)
    if isinstance(x, Number):
        # 24 bits times less than 29 bits: float64 has the product without an error.
        assert np.abs(x.values - x.zero).max() < 1 << 29
        factor = _along(np.asarray(x.scale / scale, np.float32).astype(np.float64), x)
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
    return Number(total, (x.scale * w.scale).astype(np.float32), is_sums=True)


def _gemm(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x, w, *bias = operands
    weights = w.values - w.zero
    total = (x.values - x.zero) @ (weights.T if attributes.get("transB") else weights)
    if bias and bias[0] is not None:
        total = total + bias[0].values
    return Number(total, (x.scale * w.scale).astype(np.float32), channel_axis=total.ndim - 1, is_sums=True)


def _mean(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x: Number = operands[0]
    height, width = attributes.get("kernel_shape", x.values.shape[2:])
    down, across = attributes.get("strides", [1, 1])
    windows = np.lib.stride_tricks.sliding_window_view(x.values - x.zero, (height, width), axis=(2, 3))
    scale = np.float32(x.scale * np.float32(1 / (height * width)))
    return Number(windows[:, :, ::down, ::across].sum(axis=(4, 5)), np.asarray(scale), is_sums=True)


def _reduced(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x: Number = operands[0]
    axes = tuple(attributes.get("axes") or operands[1].tolist())
    sums = (x.values - x.zero).sum(axis=axes, keepdims=bool(attributes.get("keepdims", 1)))
    scale = np.float32(x.scale * np.float32(1 / (x.values.size // sums.size)))
    return Number(sums, np.asarray(scale), is_sums=True)


def _maximum(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x: Number = operands[0]
    top, left, bottom, right = attributes.get("pads", [0] * 4)
    down, across = attributes.get("strides", [1, 1])
    padded = np.pad(x.values, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-(1 << 30))
    windows = np.lib.stride_tricks.sliding_window_view(padded, attributes["kernel_shape"], axis=(2, 3))
    return replace(x, values=windows[:, :, ::down, ::across].max(axis=(4, 5)), is_sums=True)


def _relu(operands: list[Any], _: Mapping[str, Any]) -> Any:
    return _limited(operands[0], 0.0, np.inf)


def _clip(operands: list[Any], attributes: Mapping[str, Any]) -> Any:
    x, low, high = (*operands, None, None)[:3]
    low = attributes.get("min") if low is None else low
    high = attributes.get("max") if high is None else high
    return _limited(x, -np.inf if low is None else float(low), np.inf if high is None else float(high))


def _limited(x: Any, low: float, high: float) -> Any:
    """Return a number with further limits: those it had are limited too, as every value is."""
    if not isinstance(x, Sum) and not (isinstance(x, Number) and x.is_sums):
        return np.clip(_floats(x), np.float32(low), np.float32(high))
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


def _along(per_channel: NDArray[Any], x: Number) -> NDArray[Any]:
    shape = [1] * x.values.ndim
    shape[x.channel_axis] = -1
    return per_channel if per_channel.ndim == 0 else per_channel.reshape(shape)


def _transpose(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x: Number = operands[0]
    return replace(x, values=x.values.transpose(attributes["perm"]))


def _normalization(operands: list[Any], attributes: Mapping[str, Any]) -> Rows:
    x, gamma, beta = (*operands, None)[:3]
    gammas = _floats(gamma).astype(np.float64)
    betas = np.zeros_like(gammas) if beta is None else _floats(beta).astype(np.float64)
    return Rows(x, (gammas, betas, attributes.get("epsilon", 1e-5)))


def _added_up(operands: list[Any], _: Mapping[str, Any]) -> Any:
    if all(isinstance(each, Number) and each.values.size > 1 for each in operands):
        return Sum(*operands)
    return np.add(*map(_floats, operands))


def _floats(x: Any) -> NDArray[np.float32]:
    return x.floats if isinstance(x, Number) else np.asarray(x, np.float32)


def _by(function: Callable[..., Any]) -> Callable[[list[Any], Mapping[str, Any]], NDArray[np.float32]]:
    """Return an operator on floats."""
    return lambda operands, _: np.asarray(function(*map(_floats, operands)), np.float32)


def _erf(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(np.vectorize(math.erf)(x), np.float32)


def _hard_sigmoid(operands: list[Any], attributes: Mapping[str, Any]) -> NDArray[np.float32]:
    alpha, beta = (np.float32(attributes.get(name, default)) for name, default in (("alpha", 0.2), ("beta", 0.5)))
    return np.asarray(np.clip(_floats(operands[0]) * alpha + beta, 0, 1), np.float32)


def _gelu(operands: list[Any], attributes: Mapping[str, Any]) -> NDArray[np.float32]:
    x = _floats(operands[0]).astype(np.float64)
    if attributes.get("approximate", b"none") == b"tanh":
        inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    else:
        inner = np.vectorize(math.erf)(x / math.sqrt(2))
    return np.asarray(0.5 * x * (1 + inner), np.float32)


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
    "ReduceMean": _reduced,
    "Relu": _relu,
    "Clip": _clip,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Add": _added_up,
    "Transpose": _transpose,
    "Softmax": lambda operands, _: Rows(operands[0]),
    "LayerNormalization": _normalization,
    "Div": _by(np.divide),
    "Erf": _by(_erf),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _by(lambda x: x * np.clip(x * np.float32(1 / 6) + np.float32(0.5), np.float32(0), np.float32(1))),
    "Mul": _by(np.multiply),
    "Pow": _by(np.power),
    "Sigmoid": _by(lambda x: 1 / (1 + np.exp(-x))),
    "Sqrt": _by(np.sqrt),
    "Sub": _by(np.subtract),
    "Tanh": _by(np.tanh),
}

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
    axis: int = -1

    def quantized(self, scale: float, zero: int) -> Whole:
        last = np.moveaxis(self.x.values, self.axis, -1)
        rows = [self._row([int(each) for each in row]) for row in last.reshape(-1, last.shape[-1])]
        bits = 16 if self.normal is None else 12
        gamma, beta = (np.ones(1), np.zeros(1)) if self.normal is None else self.normal[:2]
        factors, offsets = gamma / scale * 2.0**-bits, beta / scale + zero
        for shift in range(30, 0, -1):
            g, b = np.rint(factors * 2.0**shift), np.rint(offsets * 2.0**shift) + 2 ** (shift - 1)
            if np.abs(g).max() < 1 << 17 and np.abs(b).max() < 1 << 31:
                break
        results = (np.array(rows, np.int64) * g.astype(np.int64) + b.astype(np.int64)) >> shift
        shaped: Whole = np.moveaxis(results.reshape(last.shape), -1, self.axis)
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
class Joined:
    """Numbers of several scales that are joined along an axis."""

    parts: tuple[Number, ...]
    axis: int

    def quantized(self, scale: NDArray[np.float32], zero: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([_quantize([part, scale, zero], {}) for part in self.parts], self.axis)


@dataclass(frozen=True)
class Sum:
    """Two numbers that are added when they are quantized, and the limits of the sum as a real number."""

    left: Number
    right: Number
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True)
class Product:
    """Two numbers that are multiplied when they are quantized, and the limits of the product as a real number."""

    left: Number
    right: Number
    low: float = -np.inf
    high: float = np.inf


def outputs(model: onnx.ModelProto, feeds: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
    """Return every tensor of the network; integers where it is quantized."""
    tensors: dict[str, Any] = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    tensors |= feeds
    sources = {name: name for name in feeds}  # of what tensor another one is a function, value by value
    for node in model.graph.node:
        of = [sources[name] for name in node.input if name in sources]
        if of:
            is_function = len(set(of)) == 1 and (node.op_type in FUNCTIONS or _adds_a_number(node, tensors, of))
            sources |= {name: of[0] if is_function else name for name in node.output}
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        operands = [tensors[name] if name else None for name in node.input]
        is_product = node.op_type == "Mul" and len(set(of)) == 2
        by = _multiplied if is_product else OPERATORS[node.op_type]
        if node.op_type == "Split":
            tensors |= zip(node.output, _split(operands, attributes, len(node.output)), strict=True)
        else:
            tensors[node.output[0]] = by(operands, attributes)
    return tensors


def _adds_a_number(node: onnx.NodeProto, tensors: Mapping[str, Any], of: Sequence[str]) -> bool:
    others = (tensors[name] for name in node.input)
    return node.op_type == "Add" and len(of) == 1 and any(getattr(each, "values", each).size == 1 for each in others)


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
    if isinstance(x, Joined):
        return x.quantized(given, zero)
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
    elif isinstance(x, Product):
        rounded = _scaled_product(x, Fraction(float(scale)))
    elif isinstance(x, Sum):
        rounded = _added(x, Fraction(float(scale)))
    else:
        rounded = np.rint(x / scale)
    if isinstance(x, Number | Sum | Product):
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


def _multiplied(operands: list[Any], _: Mapping[str, Any]) -> Product:
    return Product(*operands)


def _scaled_product(x: Product, scale: Fraction) -> NDArray[np.float64]:
    """Return the exact product times a factor of 17 bits, rounded once."""
    ratio = Fraction(float(x.left.scale)) * Fraction(float(x.right.scale)) / scale
    shift = next(s for s in range(64, -64, -1) if round(ratio * 2**s) < 1 << 17)
    product = (x.left.values - x.left.zero) * (x.right.values - x.right.zero) * round(ratio * 2**shift)
    rounded: NDArray[np.float64] = np.rint(product / 2.0**shift)  # below 2^34: exact
    return rounded


def _pads(attributes: Mapping[str, Any], extents: Sequence[int], window: Sequence[int]) -> list[int]:
    """Return pads above, to the left, below and to the right; the formulas are ONNX's for SAME_UPPER and SAME_LOWER."""
    kind = attributes.get("auto_pad", b"NOTSET")
    if kind == b"NOTSET":
        return list(attributes.get("pads", [0] * 4))
    if kind == b"VALID":
        return [0] * 4
    begins, ends = [], []
    for extent, side, stride in zip(extents, window, attributes.get("strides", [1, 1]), strict=True):
        total = max((math.ceil(extent / stride) - 1) * stride + side - extent, 0)
        halves = total // 2, total - total // 2
        begins.append(halves[0] if kind == b"SAME_UPPER" else halves[1])
        ends.append(halves[1] if kind == b"SAME_UPPER" else halves[0])
    return begins + ends


def _spans(attributes: Mapping[str, Any], kernel: Sequence[int]) -> list[int]:
    return [(side - 1) * apart + 1 for side, apart in zip(kernel, attributes.get("dilations", [1, 1]), strict=True)]


def _convolution(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x, w, *bias = operands
    out, inside, height, width = w.values.shape
    spans = _spans(attributes, (height, width))
    top, left, bottom, right = _pads(attributes, x.values.shape[2:], spans)
    down, across = attributes.get("strides", [1, 1])
    (apart_y, apart_x), groups = attributes.get("dilations", [1, 1]), attributes.get("group", 1)
    moved = np.pad(x.values - x.zero, ((0, 0), (0, 0), (top, bottom), (left, right)))
    lines, columns = (moved.shape[2] - spans[0]) // down + 1, (moved.shape[3] - spans[1]) // across + 1
    weights = (w.values - w.zero).reshape(groups, out // groups, inside, height, width)
    sums = np.zeros((len(moved), groups, out // groups, lines, columns), np.int64)
    for row in range(height):
        for column in range(width):
            y, z = row * apart_y, column * apart_x
            part = moved[:, :, y : y + down * lines : down, z : z + across * columns : across]
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


def _pool_windows(x: Number, attributes: Mapping[str, Any], outside: int) -> Whole:
    """Return the windows of a pool: their lines and columns are the last two axes; outside of the map is one value."""
    kernel = attributes.get("kernel_shape", x.values.shape[2:])
    spans = _spans(attributes, kernel)
    top, left, bottom, right = _pads(attributes, x.values.shape[2:], spans)
    down, across = attributes.get("strides", [1, 1])
    if attributes.get("ceil_mode"):  # one window more where some positions are left, which begins inside of the map
        extents = zip(x.values.shape[2:], spans, (down, across), ((top, bottom), (left, right)), strict=True)
        more = []
        for extent, span, stride, (begin, end) in extents:
            count = math.ceil((extent + begin + end - span) / stride) + 1
            count -= (count - 1) * stride >= extent + begin
            more.append(max((count - 1) * stride + span - extent - begin - end, 0))
        bottom, right = bottom + more[0], right + more[1]
    padded = np.pad(x.values, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(2, 3))
    apart_y, apart_x = attributes.get("dilations", [1, 1])
    found: Whole = windows[:, :, ::down, ::across, ::apart_y, ::apart_x]
    return found


def _mean(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    """Return an average whose divisor is the same everywhere: what is outside of the map counts as zero."""
    x: Number = operands[0]
    windows = _pool_windows(x, attributes, x.zero)
    scale = np.float32(x.scale * np.float32(1 / (windows.shape[4] * windows.shape[5])))
    return Number((windows - x.zero).sum(axis=(4, 5)), np.asarray(scale), is_sums=True)


def _reduced(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x: Number = operands[0]
    axes = tuple(attributes.get("axes") or operands[1].tolist())
    sums = (x.values - x.zero).sum(axis=axes, keepdims=bool(attributes.get("keepdims", 1)))
    scale = np.float32(x.scale * np.float32(1 / (x.values.size // sums.size)))
    return Number(sums, np.asarray(scale), is_sums=True)


def _maximum(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x: Number = operands[0]
    return replace(x, values=_pool_windows(x, attributes, -(1 << 30)).max(axis=(4, 5)), is_sums=True)


def _relu(operands: list[Any], _: Mapping[str, Any]) -> Any:
    return _limited(operands[0], 0.0, np.inf)


def _clip(operands: list[Any], attributes: Mapping[str, Any]) -> Any:
    x, low, high = (*operands, None, None)[:3]
    low = attributes.get("min") if low is None else low
    high = attributes.get("max") if high is None else high
    return _limited(x, -np.inf if low is None else float(low), np.inf if high is None else float(high))


def _limited(x: Any, low: float, high: float) -> Any:
    """Return a number with further limits: those it had are limited too, as every value is."""
    if isinstance(x, Joined):
        return replace(x, parts=tuple(_limited(replace(part, is_sums=True), low, high) for part in x.parts))
    if not isinstance(x, Sum | Product) and not (isinstance(x, Number) and x.is_sums):
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


def _slice(operands: list[Any], attributes: Mapping[str, Any]) -> Number:
    x, *given = operands
    inputs = zip(("starts", "ends", "axes", "steps"), (each.tolist() for each in given), strict=False)
    named = {**dict(inputs), **attributes}
    count = len(named["starts"])
    places = [slice(None)] * x.values.ndim
    for place in range(count):
        step = named.get("steps", [1] * count)[place]
        places[named.get("axes", range(count))[place]] = slice(named["starts"][place], named["ends"][place], step)
    values: Whole = x.values[tuple(places)]
    return Number(values, x.scale, x.zero)


def _split(operands: list[Any], attributes: Mapping[str, Any], count: int = 1) -> list[Number]:
    x, *given = operands
    axis = attributes.get("axis", 0)
    extent = x.values.shape[axis]
    sizes = attributes.get("split") or (given[0].tolist() if given and given[0] is not None else None)
    ends = np.cumsum(sizes) if sizes else np.arange(1, count + 1) * math.ceil(extent / count)
    return [replace(x, values=part) for part in np.split(x.values, ends[:-1], axis)]


def _joined(operands: list[Any], attributes: Mapping[str, Any]) -> Joined:
    return Joined(tuple(operands), attributes["axis"])


def _squeeze(operands: list[Any], attributes: Mapping[str, Any]) -> Any:
    x, *given = operands
    axes = attributes.get("axes") or (given[0].tolist() if given else None)
    sides = x.values.shape
    left = {axis for axis, side in enumerate(sides) if side == 1} if axes is None else {a % len(sides) for a in axes}
    return _reshaped(x, lambda shape: [side for axis, side in enumerate(shape) if axis not in left])


def _unsqueeze(operands: list[Any], attributes: Mapping[str, Any]) -> Any:
    x, *given = operands
    axes = attributes.get("axes") or given[0].tolist()
    return replace(x, values=np.expand_dims(x.values, tuple(axes)))


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


def _leaky(operands: list[Any], attributes: Mapping[str, Any]) -> NDArray[np.float32]:
    x = _floats(operands[0])
    return np.where(x < 0, x * np.float32(attributes.get("alpha", 0.01)), x)


def _elu(operands: list[Any], attributes: Mapping[str, Any]) -> NDArray[np.float32]:
    x = _floats(operands[0])
    return np.where(x < 0, np.float32(attributes.get("alpha", 1.0)) * (np.exp(x) - 1), x).astype(np.float32)


def _selu(operands: list[Any], attributes: Mapping[str, Any]) -> NDArray[np.float32]:
    alpha, gamma = attributes.get("alpha", 1.67326319217681884765625), attributes.get("gamma", 1.0507010221481323)
    return np.asarray(np.float32(gamma) * _elu(operands, {"alpha": alpha}), np.float32)


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
    "GlobalMaxPool": _maximum,
    "Slice": _slice,
    "Split": _split,
    "Gather": lambda operands, attributes: replace(
        operands[0], values=operands[0].values.take(operands[1], attributes.get("axis", 0))
    ),
    "Concat": _joined,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Identity": lambda operands, _: operands[0],
    "Dropout": lambda operands, _: operands[0],
    "Softmax": lambda operands, attributes: Rows(operands[0], axis=attributes.get("axis", -1)),
    "LayerNormalization": _normalization,
    "Abs": _by(np.abs),
    "Div": _by(np.divide),
    "Elu": _elu,
    "Erf": _by(_erf),
    "Exp": _by(np.exp),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _by(lambda x: x * np.clip(x * np.float32(1 / 6) + np.float32(0.5), np.float32(0), np.float32(1))),
    "LeakyRelu": _leaky,
    "Mul": _by(np.multiply),
    "Neg": _by(np.negative),
    "Pow": _by(np.power),
    "Selu": _selu,
    "Sigmoid": _by(lambda x: 1 / (1 + np.exp(-x))),
    "Softplus": _by(lambda x: np.log1p(np.exp(x))),
    "Sqrt": _by(np.sqrt),
    "Sub": _by(np.subtract),
    "Tanh": _by(np.tanh),
}
# What computes each value of a result from one value of a tensor, where the others are constants.
FUNCTIONS = (
    *("QuantizeLinear", "DequantizeLinear", "Identity", "Relu", "Clip", "Abs", "Div", "Elu", "Erf", "Exp", "Gelu"),
    *("HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Neg", "Pow", "Selu", "Sigmoid", "Softplus", "Sqrt", "Sub"),
    "Tanh",
)

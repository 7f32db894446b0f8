"""One planted cause per function, with and without its mend; ``PLANTED`` is the table of all pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.planted.networks import CONTRIB, Array, Network

Build = Callable[..., onnx.ModelProto]


@dataclass(frozen=True, slots=True)
class Plant:
    """A model with a cause, and the same model without it."""

    rule: str  # that should find the cause first
    name: str
    build: Build  # returns the model; ``mended=True`` its twin
    optimization: str = "all"  # level at which both are measured
    threads: int = 1  # with which both are measured
    sizes: Mapping[str, int] = field(default_factory=dict)  # of unbound dimensions of the model with the cause
    returns_the_same: bool = True  # whether both models return the same; a remedy of the design returns something else


PLAIN, BASIC = "disable", "basic"  # levels of optimization that leave apart what is planted
SIZE = 56  # of maps


def unaligned_channels(channels: int, size: int, *, mended: bool) -> onnx.ModelProto:
    """Three convolutions; the inner tensors have channels that the blocked layout does not take unless padded."""
    more = -channels % 4 if mended else 0
    net = Network(1, 16, size, size)
    x = net.add("Relu", net.conv("x", 16, channels, padding=(more, 0)))
    for _ in range(2):
        x = net.add("Relu", net.conv(x, channels, channels, padding=(more, more)))
    return net.ended(net.conv(x, channels, 16, padding=(0, more)), (1, 16, size, size))


def few_too_many_channels(channels: int, size: int, *, mended: bool) -> onnx.ModelProto:
    """Channels a little beyond whole blocks; the remedy of the design is to have as many as whole blocks hold."""
    inner, net = channels // 16 * 16 if mended else channels, Network(1, 16, size, size)
    x = net.add("Relu", net.conv("x", 16, inner))
    for _ in range(2):
        x = net.add("Relu", net.conv(x, inner, inner))
    return net.ended(net.conv(x, inner, 16), (1, 16, size, size))


def weights_as_inputs(channels: int, size: int, *, mended: bool) -> onnx.ModelProto:
    net, x = Network(1, channels, size, size), "x"
    for _ in range(3):
        x = net.add("Relu", net.conv(x, channels, channels))
    return net.ended(x, (1, channels, size, size), are_inputs=not mended)


def normalized_weights_as_inputs(channels: int, size: int, *, mended: bool) -> onnx.ModelProto:
    net, x = Network(1, channels, size, size), "x"
    for _ in range(3):
        x = net.norm(net.conv(x, channels, channels), channels)
    return net.ended(x, (1, channels, size, size), are_inputs=not mended)


def unfused_activation(channels: int, size: int, kernel: int, *, mended: bool) -> onnx.ModelProto:
    """Convolutions with an activation, at a level of optimization that leaves them apart; one operator does both."""
    net, x = Network(1, channels, size, size), "x"
    for _ in range(3):
        x = net.conv(x, channels, channels, kernel)
        if not mended:
            x = net.add("Relu", x)
        else:
            last = net.nodes[-1]
            last.op_type, last.domain = "FusedConv", CONTRIB
            last.attribute.append(helper.make_attribute("activation", "Relu"))
    return net.ended(x, (1, channels, size, size))


def normalization_first(channels: int, size: int, *, mended: bool) -> onnx.ModelProto:
    """A normalization before a convolution of 1 × 1, which could compute it."""
    net = Network(1, channels, size, size)
    x = net.add("Relu", net.conv("x", channels, channels, 1))
    for _ in range(3):
        gain, bias, mean = (net.values(channels) + 2 for _ in range(3))
        weight = net.values(channels, channels, 1, 1, scale=0.1)
        if mended:  # of variances of 1
            shift = weight[:, :, 0, 0] @ (bias - gain * mean)
            x = net.add("Conv", x, net.weight(weight * gain[:, None, None]), net.weight(shift))
        else:
            parts = (gain, bias, mean, np.ones(channels, np.float32))
            norm = net.add("BatchNormalization", x, *map(net.weight, parts), epsilon=0.0)
            x = net.add("Conv", norm, net.weight(weight))
        x = net.add("Relu", x)
    return net.ended(x, (1, channels, size, size))


def merged_sums(length: int, count: int, *, mended: bool) -> onnx.ModelProto:
    """Sums of a tensor with constants of its size; their sum is one constant."""
    net, x = Network(1, length), "x"
    constants = [net.values(1, length) for _ in range(count)]
    for constant in [np.sum(constants, axis=0)] if mended else constants:
        x = net.add("Add", x, net.weight(constant))
    return net.ended(x, (1, length))


def merged_scales(channels: int, size: int, count: int, *, mended: bool) -> onnx.ModelProto:
    """Products and sums with a constant per channel."""
    net = Network(1, channels, size, size)
    return net.ended(_scaled(net, (1, channels, 1, 1), count, mended=mended), (1, channels, size, size))


def _scaled(net: Network, shape: tuple[int, ...], count: int, *, mended: bool) -> str:
    """Multiply and add constants so many times, or once with what they come to."""
    x = "x"
    parts: list[tuple[Array, Array]] = [((net.values(*shape) + 3) / 3, net.values(*shape)) for _ in range(count)]
    if mended:
        scale: Array = np.ones(shape, np.float32)
        shift: Array = np.zeros(shape, np.float32)
        for by, plus in parts:
            scale, shift = scale * by, shift * by + plus
        parts = [(scale, shift)]
    for by, plus in parts:
        x = net.add("Add", net.add("Mul", x, net.weight(by)), net.weight(plus))
    return x


def spelled_swish(channels: int, size: int, *, mended: bool) -> onnx.ModelProto:
    """X · sigmoid(x) as two operators, at a level of optimization that leaves them apart."""
    net, x = Network(1, channels, size, size), "x"
    for _ in range(2):
        x = net.add("QuickGelu", x, domain=CONTRIB, alpha=1.0) if mended else net.add("Mul", x, net.add("Sigmoid", x))
    return net.ended(x, (1, channels, size, size))


def gathered_columns(rows: int, columns: int, step: int, *, mended: bool) -> onnx.ModelProto:
    """A part of each row, taken by a list of indices."""
    net, half = Network(rows, columns), columns // 2
    places = np.arange(0, half * step, step, dtype=np.int64)
    if mended:
        ends = [np.array([value], np.int64) for value in (0, half * step, 1, step)]
        x = net.add("Slice", "x", *map(net.weight, ends))
    else:
        x = net.add("Gather", "x", net.weight(places), axis=1)
    return net.ended(net.add("Relu", x), (rows, half))


def einsum_scores(*, mended: bool) -> onnx.ModelProto:
    """Scores of attention: queries times keys."""
    net = Network(1, 8, 256, 64)
    x = net.add("Softmax", _scores(net, "x", "x", mended=mended))
    return net.ended(net.add("MatMul", x, "x"), (1, 8, 256, 64))


def _scores(net: Network, queries: str, keys: str, *, mended: bool) -> str:
    if mended:
        return net.add("MatMul", queries, net.add("Transpose", keys, perm=[0, 1, 3, 2]))
    return net.add("Einsum", queries, keys, equation="bhqd,bhkd->bhqk")


def einsum_heads(*, mended: bool) -> onnx.ModelProto:
    """Scores of attention from tensors whose heads come third."""
    net = Network(1, 256, 8, 64)
    if mended:
        left = net.add("Transpose", "x", perm=[0, 2, 1, 3])
        right = net.add("Transpose", "x", perm=[0, 2, 3, 1])
        return net.ended(net.add("MatMul", left, right), (1, 8, 256, 256))
    return net.ended(net.add("Einsum", "x", "x", equation="bqhd,bkhd->bhqk"), (1, 8, 256, 256))


def einsum_projection(*, mended: bool) -> onnx.ModelProto:
    """A projection into heads."""
    net = Network(1, 128, 512)
    weight = net.values(512, 8, 64, scale=0.05)
    if mended:
        flat = net.add("MatMul", "x", net.weight(weight.reshape(512, 512)))
        result = net.add("Reshape", flat, net.weight(np.array([1, 128, 8, 64], np.int64)))
    else:
        result = net.add("Einsum", "x", net.weight(weight), equation="bsd,dhe->bshe")
    return net.ended(result, (1, 128, 8, 64))


def plain_maximum(channels: int, size: int, kernel: int, *, mended: bool) -> onnx.ModelProto:
    """Max(x, 0) between convolutions: the blocked layout has a Relu, and no Max."""
    net, x = Network(1, channels, size, size), "x"
    for _ in range(4):
        x = net.conv(x, channels, channels, kernel)
        x = net.add("Relu", x) if mended else net.add("Max", x, net.weight(np.float32(0)))
    return net.ended(x, (1, channels, size, size))


def undone_transposes(op_type: str, rows: int, columns: int, *, mended: bool) -> onnx.ModelProto:
    """Two transposes that undo each other around an operator on the last axis, or on single elements."""
    net, x = Network(1, 8, rows, columns), "x"
    scale = [net.weight(net.values(columns) + 2)] if op_type == "LayerNormalization" else []
    for _ in range(2):
        before = x if mended else net.add("Transpose", x, perm=[0, 2, 1, 3])
        done = net.add(op_type, before, *scale)
        x = done if mended else net.add("Transpose", done, perm=[0, 2, 1, 3])
    return net.ended(x, (1, 8, rows, columns))


def halves(rows: int, width: int, *, mended: bool) -> onnx.ModelProto:
    """Products in fp16, which a processor computes in fp32, with reshapes in fp16 between them."""
    wide, half = TensorProto.FLOAT, TensorProto.FLOAT16
    net, x = Network(8, rows, width, element_type=half), "x"
    if mended:
        x = net.add("Cast", x, to=wide)
    for _ in range(3):
        x = net.add("MatMul", x, net.weight(net.values(width, width, scale=0.1)))
        x = net.add("Reshape", x, net.weight(np.array([8, rows, width], np.int64)))
    if mended:
        x = net.add("Cast", x, to=half)
    else:
        for name, array in net.weights.items():
            net.weights[name] = array.astype(np.float16) if array.dtype == np.float32 else array
    return net.ended(x, (8, rows, width))


def island(length: int, *, mended: bool) -> onnx.ModelProto:
    """A Softmax in fp64 between operators in fp32."""
    net = Network(8, length)
    x = net.add("Softmax", "x")
    if mended:
        x = net.add("Softmax", x)
    else:
        inner = net.add("Softmax", net.add("Cast", x, to=TensorProto.DOUBLE))
        x = net.add("Cast", inner, to=TensorProto.FLOAT)
    return net.ended(net.add("Softmax", x), (8, length))


def unbound_product(rows: int, inner: int, *, mended: bool) -> onnx.ModelProto:
    """Products with a bias whose batch is unbound, so that the runtime leaves them apart."""
    batch: int | str = 1 if mended else "n"
    net, x = Network(batch, rows, inner), "x"
    for _ in range(4):
        weight = net.weight(net.values(inner, inner, scale=0.1))
        x = net.add("Add", net.add("MatMul", x, weight), net.weight(net.values(inner)))
    return net.ended(x, (batch, rows, inner))


def spelled_gelu(length: int, *, mended: bool) -> onnx.ModelProto:
    net, x = Network(64, length), "x"
    if mended:
        return net.ended(net.add("Gelu", x, domain=CONTRIB), (64, length))
    one, half, root = (net.weight(np.float32(value)) for value in (1, 0.5, 2**0.5))
    plus = net.add("Add", net.add("Erf", net.add("Div", x, root)), one)
    return net.ended(net.add("Mul", net.add("Mul", x, plus), half), (64, length))


def spelled_norm(rows: int, length: int, *, mended: bool) -> onnx.ModelProto:
    net, x = Network(rows, length), "x"
    gain, bias = net.weight(net.values(length) + 2), net.weight(net.values(length))
    if mended:
        return net.ended(net.add("LayerNormalization", x, gain, bias, epsilon=1e-5), (rows, length))
    axes = net.weight(np.array([-1], np.int64))
    two, epsilon = (net.weight(np.float32(value)) for value in (2, 1e-5))
    less = net.add("Sub", x, net.add("ReduceMean", x, axes))
    variance = net.add("ReduceMean", net.add("Pow", less, two), axes)
    scaled = net.add("Div", less, net.add("Sqrt", net.add("Add", variance, epsilon)))
    return net.ended(net.add("Add", net.add("Mul", scaled, gain), bias), (rows, length))


def running_sums(rows: int, length: int, count: int, *, mended: bool) -> onnx.ModelProto:
    net, x = Network(rows, length), "x"
    axis, ones = net.weight(np.array(1, np.int64)), net.weight(np.triu(np.ones((length, length), np.float32)))
    for _ in range(count):
        x = net.add("MatMul", x, ones) if mended else net.add("CumSum", x, axis)
        x = net.add("Softmax", x)
    return net.ended(x, (rows, length))


def resize_first(channels: int, outputs: int, size: int, *, mended: bool) -> onnx.ModelProto:
    """An enlarging Resize before a convolution of 1 × 1 with fewer channels."""
    net = Network(1, channels, size, size)
    weight = net.weight(net.values(outputs, channels, 1, 1, scale=0.1))
    scales = net.weight(np.array([1, 1, 4, 4], np.float32))
    settings = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if mended:
        result = net.add("Resize", net.add("Conv", "x", weight), "", scales, **settings)
    else:
        result = net.add("Conv", net.add("Resize", "x", "", scales, **settings), weight)
    return net.ended(result, (1, outputs, 4 * size, 4 * size))


def narrow_products(count: int, rows: int, size: int, *, mended: bool) -> onnx.ModelProto:
    """Many products of few rows with one and the same matrix, which one product could do."""
    net = Network(count, rows, size)
    weight = net.values(size, size, scale=0.1)
    if not mended:
        weight = np.broadcast_to(weight, (count, size, size)).copy()
    return net.ended(net.add("MatMul", "x", net.weight(weight)), (count, rows, size))


def line_convolutions(channels: int, length: int, *, mended: bool) -> onnx.ModelProto:
    """Convolutions over lines; the blocked layout is of maps, and a line is a map of one row."""
    net = Network(1, channels, length)
    axis, x = net.weight(np.array([2], np.int64)), "x"
    if mended:
        x = net.add("Unsqueeze", x, axis)
    for _ in range(3):
        weight = net.values(channels, channels, 3, scale=(1.0 / channels) ** 0.5)
        pads = [0, 1, 0, 1] if mended else [1, 1]
        x = net.add("Conv", x, net.weight(weight[:, :, None] if mended else weight), pads=pads)
        x = net.add("Relu", x)
    return net.ended(net.add("Squeeze", x, axis) if mended else x, (1, channels, length))


def small_steps(count: int, *, mended: bool) -> onnx.ModelProto:
    """Many operators on a few numbers, of which one product and one sum would do."""
    net = Network(1, 8)
    return net.ended(net.add("Softmax", _scaled(net, (8,), count // 2, mended=mended)), (1, 8))


def shapes_of_data(count: int, *, mended: bool) -> onnx.ModelProto:
    """Reshapes whose shapes are computed from an unbound batch."""
    batch: int | str = 1 if mended else "n"
    net, x = Network(batch, 4, 16), "x"
    first, zero = net.weight(np.array([0], np.int64)), net.weight(np.array([0], np.int64))
    rest = [net.weight(np.array(shape, np.int64)) for shape in ((64,), (4, 16))]
    fixed = [net.weight(np.array([1, *shape], np.int64)) for shape in ((64,), (4, 16))]
    for index in range(count):
        if mended:
            target = fixed[index % 2]
        else:
            size = net.add("Gather", net.add("Shape", x), first, axis=0)
            target = net.add("Concat", net.add("Add", size, zero), rest[index % 2], axis=0)
        x = net.add("Relu", net.add("Reshape", x, target))
    return net.ended(x, None)


def _plants(rule: str, build: Build, cases: Sequence[tuple[object, ...]], **facts: object) -> list[Plant]:
    """Return a plant for each case, which is the arguments of the function."""
    name = build.__name__.replace("_", " ")
    return [
        Plant(rule, f"{name} {' '.join(map(str, case))}".strip(), partial(build, *case), **facts)  # type: ignore[arg-type]
        for case in cases
    ]


UNBOUND = {"sizes": {"n": 1}}
PLANTED: tuple[Plant, ...] = (
    *_plants("odd_channels", few_too_many_channels, [(17, SIZE), (33, SIZE)], returns_the_same=False),
    *_plants("outside_blocked_layout", unaligned_channels, [(30, SIZE), (62, 28)]),
    *_plants("outside_blocked_layout", weights_as_inputs, [(32, SIZE), (64, 28)]),
    *_plants("unfused_conv", normalized_weights_as_inputs, [(16, SIZE), (32, SIZE)]),
    *_plants("unfused_conv", unfused_activation, [(16, 112, 1), (32, SIZE, 1)], optimization=BASIC),
    *_plants("normalization_as_convolution", normalization_first, [(16, 112), (32, 112)]),
    *_plants("element_wise_chain", merged_sums, [(1 << 21, 6), (1 << 18, 4)]),
    *_plants("element_wise_chain", merged_scales, [(32, 112, 3), (64, SIZE, 2)]),
    *_plants("element_wise_chain", spelled_swish, [(32, 112)], optimization=BASIC),
    *_plants("gathers", gathered_columns, [(2048, 512, 1), (1024, 1024, 2)]),
    *_plants("einsum", einsum_scores, [()]),
    *_plants("einsum", einsum_heads, [()]),
    *_plants("einsum", einsum_projection, [()]),
    *_plants("layout_conversions", plain_maximum, [(32, SIZE, 1), (16, 112, 1)]),
    *_plants("transposes", undone_transposes, [("LayerNormalization", 256, 128), ("LayerNormalization", 64, 512)]),
    *_plants("format_conversions", halves, [(256, 64), (512, 32)]),
    *_plants("format_island", island, [(1 << 16,), (1 << 13,)]),
    *_plants("unfused_product", unbound_product, [(256, 32), (128, 64)], **UNBOUND),
    *_plants("unfused_gelu", spelled_gelu, [(1 << 14,), (1 << 11,)], optimization=PLAIN),
    *_plants("unfused_norm", spelled_norm, [(512, 768), (2048, 128)], optimization=PLAIN),
    *_plants("below_memory_roof", running_sums, [(4096, 32, 1), (1024, 64, 4)]),
    *_plants("single_thread", running_sums, [(1024, 128, 1), (2048, 64, 2)], threads=2),
    *_plants("below_memory_roof", resize_first, [(64, 8, 28), (32, 4, SIZE)]),
    *_plants("below_memory_roof", narrow_products, [(256, 4, 64), (64, 8, 128)]),
    *_plants("below_compute_roof", line_convolutions, [(64, 1024), (32, 4096)]),
    *_plants("tiny_nodes", small_steps, [(60,), (200,)]),
    *_plants("tiny_nodes", shapes_of_data, [(20,)], **UNBOUND),
    *_plants("padding", few_too_many_channels, [(20, SIZE), (36, SIZE)], returns_the_same=False),
)

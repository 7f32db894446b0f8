"""Models without a planted cause: shapes that the runtime computes as well as it can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import onnx

from benchmarks.planted.networks import Network


def convolutions(channels: int, size: int, kernel: int) -> onnx.ModelProto:
    net, x = Network(1, channels, size, size), "x"
    for _ in range(4):
        x = net.add("Relu", net.conv(x, channels, channels, kernel))
    return net.ended(x, (1, channels, size, size))


def residual(channels: int, size: int) -> onnx.ModelProto:
    net = Network(1, channels, size, size)
    x = net.add("Relu", net.conv("x", channels, channels))
    for _ in range(2):
        y = net.conv(net.add("Relu", net.conv(x, channels, channels)), channels, channels)
        x = net.add("Relu", net.add("Add", y, x))
    return net.ended(x, (1, channels, size, size))


def pooled(channels: int, size: int) -> onnx.ModelProto:
    net = Network(1, channels, size, size)
    x = net.add("Relu", net.conv("x", channels, channels))
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("Relu", net.conv(x, channels, 2 * channels))
    return net.ended(net.add("GlobalAveragePool", x), (1, 2 * channels, 1, 1))


def perceptron(rows: int, width: int) -> onnx.ModelProto:
    net, x = Network(rows, width), "x"
    for _ in range(3):
        weight, bias = (net.weight(net.values(*shape, scale=0.05)) for shape in ((width, width), (width,)))
        x = net.add("Relu", net.add("Gemm", x, weight, bias))
    return net.ended(x, (rows, width))


def products(rows: int, width: int) -> onnx.ModelProto:
    net, x = Network(1, rows, width), "x"
    for _ in range(2):
        x = net.add("MatMul", x, net.weight(net.values(width, width, scale=0.05)))
    return net.ended(x, (1, rows, width))


def attention(length: int, width: int) -> onnx.ModelProto:
    net = Network(1, length, width)
    q, k, v = (net.add("MatMul", "x", net.weight(net.values(width, width, scale=0.05))) for _ in range(3))
    scores = net.add("Softmax", net.add("MatMul", q, net.add("Transpose", k, perm=[0, 2, 1])))
    return net.ended(net.add("MatMul", scores, v), (1, length, width))


SOUND: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType(
    {
        "convolutions 64 56 3": partial(convolutions, 64, 56, 3),
        "convolutions 128 28 3": partial(convolutions, 128, 28, 3),
        "convolutions 64 56 1": partial(convolutions, 64, 56, 1),
        "residual 64 28": partial(residual, 64, 28),
        "pooled 32 112": partial(pooled, 32, 112),
        "perceptron 128 1024": partial(perceptron, 128, 1024),
        "perceptron 64 768": partial(perceptron, 64, 768),
        "products 512 512": partial(products, 512, 512),
        "products 256 1024": partial(products, 256, 1024),
        "attention 256 256": partial(attention, 256, 256),
    }
)

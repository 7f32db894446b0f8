"""Quantized networks of maps for the engine in Verilog, one for each thing that it computes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.graph_builder import IR_VERSION


class Net:
    """A quantized network of one input, layer by layer; scales are such that results use their range."""

    def __init__(self, channels, height, width, seed=0, unsigned=False):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants, self.count = [], [], 0
        self.dtype = np.uint8 if unsigned else np.int8
        self.shape = (channels, height, width)
        self.input = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, *self.shape])
        self.top = self.quantized("input", 0.0625, 3)

    def constant(self, value):
        self.count += 1
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{self.count}"))
        return f"c{self.count}"

    def node(self, kind, inputs, **attributes):
        self.count += 1
        self.nodes.append(helper.make_node(kind, inputs, [f"t{self.count}"], f"n{self.count}", **attributes))
        return f"t{self.count}"

    def quantized(self, name, scale, zero):
        place = [self.constant(np.float32(scale)), self.constant(self.dtype(zero + 128 * (self.dtype == np.uint8)))]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [name, *place]), *place])

    def weights(self, shape, scale):
        low = self.random.integers(-127, 128, shape).astype(np.int8)
        scale = np.asarray(scale, np.float32)
        constants = [self.constant(low), self.constant(scale), self.constant(np.zeros(scale.shape, np.int8))]
        return self.node("DequantizeLinear", constants, axis=0)

    def convolution(
        self,
        x,
        out,
        kernel,
        stride=1,
        pad=0,
        groups=1,
        scale=0.05,
        zero=-5,
        relu=False,
        limit=None,
        per_tensor=False,
        apart=1,
        auto=None,
    ):
        channels = self.shape[0]
        scales = self.random.uniform(0.5, 1.5, () if per_tensor else out).astype(np.float32) * np.float32(
            0.01 / (kernel * (channels / groups) ** 0.5)
        )
        weights = self.weights((out, channels // groups, kernel, kernel), scales)
        bias = self.random.integers(-2000, 2000, out).astype(np.int32)
        biases = [
            self.constant(bias),
            self.constant((scales * np.float32(0.0625)).astype(np.float32)),
            self.constant(np.zeros(scales.shape, np.int32)),
        ]
        y = self.node(
            "Conv",
            [x, weights, self.node("DequantizeLinear", biases, axis=0)],
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            group=groups,
            dilations=[apart] * 2,
            **({"auto_pad": auto} if auto else {"pads": [pad] * 4}),
        )
        y = self.node("Relu", [y]) if relu else y
        if limit is not None:
            y = self.node("Clip", [y, self.constant(np.float32(0)), self.constant(np.float32(limit))])
        reach = (kernel - 1) * apart + 1
        sides = (-(-side // stride) if auto else (side + 2 * pad - reach) // stride + 1 for side in self.shape[1:])
        self.shape = (out, *sides)
        return self.quantized(y, scale, zero)

    def model(self, output):
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", [self.input], [result], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=IR_VERSION)
        return onnx.shape_inference.infer_shapes(model)


def one(channels, height, width, *given, **named):
    net = Net(channels, height, width, seed=channels + height, unsigned=named.pop("unsigned", False))
    return net.model(net.convolution(net.top, *given, **named))


def added():
    net = Net(8, 7, 5)
    other = net.convolution(net.top, 12, 1, scale=0.03, zero=-128, relu=True)
    net.shape = (8, 7, 5)
    own = net.convolution(net.top, 12, 3, pad=1, scale=0.041, zero=7)
    total = net.node("Relu", [net.node("Add", [own, other])])
    return net.model(net.quantized(total, 0.055, -100))


def product():
    net = Net(10, 1, 1)
    y = net.node("Flatten", [net.top], axis=1)
    return net.model(net.quantized(net.node("Gemm", [y, net.weights((7, 10), 0.01)], transB=1), 0.2, 0))


def pooled():
    net = Net(6, 9, 8)
    y = net.node("MaxPool", [net.top], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = net.quantized(y, 0.0625, 3)
    net.shape = (6, 5, 4)
    y = net.convolution(y, 10, 2, zero=-128, relu=True)
    y = net.quantized(net.node("GlobalAveragePool", [y]), 0.02, -128)
    y = net.node("Flatten", [y], axis=1)
    weights = net.weights((7, 10), np.full(7, 0.01, np.float32))
    return net.model(net.quantized(net.node("Gemm", [y, weights], transB=1), 0.02, 0))


def limited_sum(low=None, high=None):
    """An addition and Clip with one limit, or with both."""
    net = Net(8, 7, 5)
    other = net.convolution(net.top, 12, 1, scale=0.03, zero=-128)
    net.shape = (8, 7, 5)
    own = net.convolution(net.top, 12, 1, scale=0.041, zero=7)
    limits = ["" if limit is None else net.constant(np.float32(limit)) for limit in (low, high)]
    return net.model(net.quantized(net.node("Clip", [net.node("Add", [own, other]), *limits]), 0.055, -20))


def limited_sums(low=None, high=None):
    net = Net(4, 5, 5)
    net.convolution(net.top, 8, 1)
    sums = next(node.output[0] for node in net.nodes if node.op_type == "Conv")
    limits = ["" if limit is None else net.constant(np.float32(limit)) for limit in (low, high)]
    return net.model(net.quantized(net.node("Clip", [sums, *limits]), 0.05, -5))


def product_of_lines():
    """A map that Reshape makes a vector of, with a QuantizeLinear behind it; MatMul, and no zero points."""
    net = Net(6, 3, 4)
    y = net.quantized(net.node("Reshape", [net.top, net.constant(np.array([0, -1]))]), 0.0625, 3)
    y = net.node("MatMul", [y, net.weights((72, 7), 0.01)])
    scale = net.constant(np.float32(0.4))
    return net.model(net.node("DequantizeLinear", [net.node("QuantizeLinear", [y, scale]), scale]))


CASES = {
    "one word": lambda: one(3, 5, 6, 4, 3, pad=1),
    "several words, a stride": lambda: one(9, 8, 7, 13, 3, 2, 1),
    "a scale per tensor": lambda: one(7, 5, 6, 9, 3, pad=1, per_tensor=True),
    "unsigned": lambda: one(5, 6, 5, 6, 3, pad=1, relu=True, unsigned=True, zero=-128),
    "parts of sums": lambda: one(21, 4, 5, 9, 3, pad=1),
    "limits": lambda: one(4, 5, 5, 8, 1, limit=2.0, zero=-128),
    "for each channel": lambda: one(10, 7, 6, 10, 3, 1, 1, groups=10),
    "groups": lambda: one(16, 4, 4, 24, 1, groups=4),
    "a single pixel": lambda: one(24, 1, 1, 5, 1),
    "a product with a scale per tensor": product,
    "addition": added,
    "an addition with a lower limit": lambda: limited_sum(-1.0),
    "an addition with an upper limit": lambda: limited_sum(high=2.0),
    "an addition with limits": lambda: limited_sum(-1.0, 2.0),
    "a lower limit": lambda: limited_sums(-1.0),
    "an upper limit": lambda: limited_sums(high=2.0),
    "a product of all lines": product_of_lines,
    "pools and a product": pooled,
    "a sum with a later pool": lambda: sum_of(with_a_later_pool),
    "a sum with a later sum": lambda: sum_of(with_an_addition),
    "x + x": lambda: sum_of(twice),
    "a pixel that is added to a map": lambda: sum_of(with_a_pixel),
    "a sum of inputs": lambda: sum_of(with_the_input_alone),
}


def sum_of(operands):
    net = Net(8, 7, 5)
    return net.model(net.quantized(net.node("Add", operands(net)), 0.055, 0))


def with_a_later_pool(net):
    own = net.convolution(net.top, 8, 3)
    pool = net.node("MaxPool", [net.top], kernel_shape=[3, 3])
    return [own, net.quantized(pool, 0.0625, 3)]


def twice(net):
    return [net.convolution(net.top, 8, 1)] * 2


def with_a_pixel(net):
    net.shape = (8, 7, 5)
    wide = net.convolution(net.top, 8, 3, pad=1)
    pixel = net.node("AveragePool", [net.top], kernel_shape=[3, 3], strides=[7, 5])
    return [net.quantized(pixel, 0.03, 0), wide]


def with_the_input_alone(net):
    return [net.top, net.quantized("input", 0.5, 0)]


def with_an_addition(net):
    first = net.convolution(net.top, 8, 1)
    net.shape = (8, 7, 5)
    second = net.convolution(net.top, 8, 1)
    return [first, net.quantized(net.node("Add", [first, second]), 0.05, 0)]


def one_pool(kind, *, height=9, width=8, **attributes):
    net = Net(6, height, width)
    y = net.node(kind, [net.top], kernel_shape=[3, 3], **attributes)
    return net.model(net.quantized(y, 0.0625 if kind == "MaxPool" else 0.03, 3))


def joined(*channels):
    """A map and convolutions of it, side by side."""
    net = Net(channels[0], 6, 5)
    parts = [net.top]
    for place, count in enumerate(channels[1:]):
        net.shape = (channels[0], 6, 5)
        parts.append(net.convolution(net.top, count, 1, scale=0.04 + 0.01 * place))
    y = net.quantized(net.node("Concat", parts, axis=1), 0.0625, -2)
    net.shape = (sum(channels), 6, 5)
    return net.model(net.convolution(y, 9, 3))


def taken_apart(*channels):
    """Parts of the channels, of which one is pooled, one is convolved, and one is added."""
    net = Net(5, 7, 6)
    y = net.convolution(net.top, sum(channels), 1, scale=0.0625)
    net.count += 1
    names = [f"p{place}" for place in range(len(channels))]
    sizes = net.constant(np.array(channels, np.int64))
    net.nodes.append(helper.make_node("Split", [y, sizes], names, "split", axis=1))
    net.shape = (channels[0], 7, 6)
    first = net.convolution(names[0], channels[1], 3, pad=1, groups=1)
    pool = net.quantized(net.node("MaxPool", [names[1]], kernel_shape=[3, 3], pads=[1] * 4), 0.0625, -5)
    total = net.quantized(net.node("Add", [first, pool]), 0.07, 0)
    total = net.quantized(net.node("Add", [total, names[1]]), 0.0625, 3)
    net.shape = (channels[1], 7, 6)
    return net.model(net.convolution(total, 6, 1))


def lines_of_a_map():
    net = Net(5, 9, 6)
    y = net.convolution(net.top, 8, 1, scale=0.0625)
    places = [net.constant(np.array(each, np.int64)) for each in ([2, 0], [-1, 99], [2, 3])]
    y = net.node("Slice", [y, *places])
    net.shape = (8, 6, 6)
    return net.model(net.convolution(y, 6, 3))


def multiplied(factor=False):
    net = Net(6, 3, 5)
    own = net.convolution(net.top, 10, 1, scale=0.03)
    net.shape = (6, 3, 5)
    other = net.convolution(net.top, 10, 1, scale=0.041, zero=7)
    if factor:
        other = net.quantized(net.node("GlobalAveragePool", [other]), 0.02, -9)
    y = net.node("Mul", [other, own])
    return net.model(net.quantized(y, 0.02, 4))


def another_number_format():
    net = Net(6, 7, 5)
    y = net.convolution(net.top, 10, 1, scale=0.03)
    return net.model(net.quantized(y, 0.05, 9))


CASES |= {
    "dilations": lambda: one(6, 9, 10, 9, 3, pad=2, apart=2),
    "dilations for each channel": lambda: one(8, 11, 9, 8, 3, 2, pad=3, groups=8, apart=3),
    "automatic pads": lambda: one(5, 8, 9, 7, 3, 2, auto="SAME_UPPER"),
    "automatic pads above": lambda: one(5, 8, 9, 7, 4, 3, auto="SAME_LOWER"),
    "an average with pads that count": lambda: one_pool("AveragePool", pads=[1, 0, 1, 2], count_include_pad=1),
    "a maximum whose extents are rounded up": lambda: one_pool("MaxPool", strides=[2, 2], ceil_mode=1, height=8),
    "a maximum with dilations": lambda: one_pool("MaxPool", dilations=[2, 3], pads=[1, 1, 0, 2]),
    "a maximum with automatic pads": lambda: one_pool("MaxPool", strides=[2, 3], auto_pad="SAME_UPPER"),
    "whole folds that are joined": lambda: joined(8, 4, 5),
    "parts of folds that are joined": lambda: joined(5, 6, 7),
    "whole folds that are taken apart": lambda: taken_apart(4, 8, 4),
    "parts of folds that are taken apart": lambda: taken_apart(3, 6, 5),
    "lines of a map": lines_of_a_map,
    "a product of two tensors": multiplied,
    "a product with a factor for each channel": lambda: multiplied(factor=True),
    "another number format": another_number_format,
}

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
        self, x, out, kernel, stride=1, pad=0, groups=1, scale=0.05, zero=-5, relu=False, limit=None, per_tensor=False
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
            pads=[pad] * 4,
            group=groups,
        )
        y = self.node("Relu", [y]) if relu else y
        if limit is not None:
            y = self.node("Clip", [y, self.constant(np.float32(0)), self.constant(np.float32(limit))])
        self.shape = (out, *((side + 2 * pad - kernel) // stride + 1 for side in self.shape[1:]))
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


def with_the_input_alone(net):
    return [net.top, net.quantized("input", 0.5, 0)]


def with_an_addition(net):
    first = net.convolution(net.top, 8, 1)
    net.shape = (8, 7, 5)
    second = net.convolution(net.top, 8, 1)
    return [first, net.quantized(net.node("Add", [first, second]), 0.05, 0)]

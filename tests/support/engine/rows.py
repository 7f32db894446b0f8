"""Networks of rows for the engine in Verilog, quantized by ONNX Runtime."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.plans.engine_networks import quantized
from models.transformers.encoder import build_encoder


def network(shape, body, *, seed=0, **constants):
    """A float network of one input, written as ONNX's text, quantized by ONNX Runtime."""
    extents = ",".join(map(str, shape))
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(f"{head} net (float[{extents}] input) => (float[{extents}] output) {{ {body} }}")
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.name = node.name or f"/{node.output[0]}"
    return onnx.shape_inference.infer_shapes(quantized(_with_output(model), seed))


def _with_output(model):
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)


def numbers(*shape, seed=3, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def attention(tokens=13, width=16, heads=2):
    """Queries and keys are the input, values are functions of it."""
    split = np.array([1, tokens, heads, width // heads])
    body = """
        a = MatMul(input, w) q = Reshape(a, split) qt = Transpose <perm = [0, 2, 1, 3]> (q)
        k = Reshape(input, split) kt = Transpose <perm = [0, 2, 3, 1]> (k)
        s = MatMul(qt, kt) p = Softmax <axis = -1> (s)
        v = Transpose <perm = [0, 2, 1, 3]> (k) c = MatMul(p, v)
        ct = Transpose <perm = [0, 2, 1, 3]> (c) output = Reshape(ct, whole)
    """
    whole = np.array([1, tokens, width])
    return network((1, tokens, width), body, split=split, whole=whole, w=numbers(width, width, scale=width**-0.5))


def single_head():
    """A product of rows of three axes, whose second operand is transposed."""
    body = """
        t = Transpose <perm = [0, 2, 1]> (input) s = MatMul(input, t)
        p = Softmax <axis = 2> (s) output = MatMul(p, input)
    """
    return network((1, 10, 8), body)


def normalized(width=11, beta=True):
    constants = {"gamma": numbers(width), **({"beta": numbers(width, seed=4)} if beta else {})}
    body = f"output = LayerNormalization <axis = -1, epsilon = 0.00001> (input, gamma{', beta' if beta else ''})"
    return network((1, 7, width), body, **constants)


CASES = {
    "two heads": attention,
    "one head": single_head,
    "normalization": normalized,
    "normalization without a bias": lambda: normalized(20, beta=False),
    "softmax": lambda: network((1, 5, 23), "output = Softmax <axis = -1> (input)"),
    "a function": lambda: network((1, 5, 9), "a = MatMul(input, w) b = Tanh(a) output = MatMul(b, w)", w=numbers(9, 9)),
    "a function of its own operand": lambda: network((1, 6, 12), "s = Sigmoid(input) output = Mul(input, s)"),
    "a chain of functions": lambda: network(
        (1, 6, 12),
        "d = Div(input, root) e = Erf(d) a = Add(e, one) m = Mul(input, a) output = Mul(m, half)",
        root=np.float32([math.sqrt(2)]),
        one=np.float32([1]),
        half=np.float32([0.5]),
    ),
    "rows and a bias for each channel": lambda: network(
        (1, 9, 12), "a = Sigmoid(input) output = Add(a, b)", b=numbers(12)
    ),
    "a sum of a tensor and its function": lambda: network((1, 9, 12), "a = Relu(input) output = Add(input, a)"),
    "a function of heads": lambda: network(
        (1, 6, 16),
        """
        m = MatMul(input, w) r = Reshape(m, split) t = Transpose <perm = [0, 2, 1, 3]> (r) a = Sigmoid(t)
        s = Add(t, a) b = Transpose <perm = [0, 2, 1, 3]> (s) output = Reshape(b, whole)
        """,
        split=np.array([1, 6, 2, 8]),
        whole=np.array([1, 6, 16]),
        w=numbers(16, 16),
    ),
    "patches of a map, and their mean": lambda: network(
        (1, 3, 4, 4),
        "m = Conv <kernel_shape = [2, 2], strides = [2, 2]> (input, w) f = Reshape(m, rows)"
        " t = Transpose <perm = [0, 2, 1]> (f) p = Add(t, places) n = LayerNormalization(p, g, b)"
        " a = ReduceMean <axes = [1], keepdims = 0> (n) output = Gemm(a, last)",
        w=numbers(16, 3, 2, 2, scale=0.3),
        rows=np.array([1, 16, 4]),
        places=numbers(1, 4, 16),
        g=numbers(16, seed=4),
        b=numbers(16, seed=5),
        last=numbers(16, 5),
    ),
    "an encoder": lambda: quantized(build_encoder(tokens=10, width=16, heads=2, feed=24, depth=1), 0),
    "queries, keys and values side by side": lambda: side_by_side(
        "q0, k0, v0 = Split <axis = -1> (m, thirds)"
        " q1 = Reshape(q0, split) k1 = Reshape(k0, split) v1 = Reshape(v0, split)"
        " q = Transpose <perm = [0, 2, 1, 3]> (q1) k = Transpose <perm = [0, 2, 3, 1]> (k1)"
        " v = Transpose <perm = [0, 2, 1, 3]> (v1)",
    ),
    "several tensors that are piled": lambda: side_by_side(
        "r = Reshape(m, five) t = Transpose <perm = [2, 0, 3, 1, 4]> (r) q = Gather <axis = 0> (t, zero)"
        " k2 = Gather <axis = 0> (t, one) v = Gather <axis = 0> (t, two) k3 = Transpose <perm = [0, 1, 3, 2]> (k2)"
        " k = Mul(k3, half)",
    ),
    "a class token": lambda: network(
        (1, 5, 12),
        "m = MatMul(input, w) j = Concat <axis = 1> (token, m) p = Add(j, places) n = LayerNormalization(p, g, b)"
        " c = Gather <axis = 1> (n, zero) output = Gemm(c, last)",
        w=numbers(12, 12, scale=0.3),
        token=numbers(1, 1, 12),
        places=numbers(1, 6, 12, seed=6),
        g=numbers(12, seed=4),
        b=numbers(12, seed=5),
        zero=np.array(0),
        last=numbers(12, 5),
    ),
    "softmax of the channels of a map": lambda: network(
        (1, 6, 4, 5), "m = Conv(input, w) output = Softmax <axis = 1> (m)", w=numbers(9, 6, 1, 1)
    ),
    "a vector": lambda: network(
        (1, 6, 2, 2),
        "m = GlobalAveragePool(input) s = Squeeze(m, axes) g = Gemm(s, w) n = LayerNormalization(g, gamma)"
        " output = Softmax(n)",
        axes=np.array([2, 3]),
        w=numbers(6, 11),
        gamma=numbers(11),
    ),
}


def side_by_side(heads, tokens=6, width=16, count=2):
    body = f"""
        m = MatMul(input, w) {heads} s = MatMul(q, k) p = Softmax <axis = -1> (s) c = MatMul(p, v)
        ct = Transpose <perm = [0, 2, 1, 3]> (c) output = Reshape(ct, whole)
    """
    return network(
        (1, tokens, width),
        body,
        w=numbers(width, 3 * width, scale=width**-0.5),
        thirds=np.full(3, width),
        split=np.array([1, tokens, count, width // count]),
        five=np.array([1, tokens, 3, count, width // count]),
        whole=np.array([1, tokens, width]),
        zero=np.array(0),
        one=np.array(1),
        two=np.array(2),
        half=np.float32([0.5]),
    )

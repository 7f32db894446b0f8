"""Tiny models for tests: a graph of each shape that the stages must cope with, in prime sizes.

Two factors of a product cannot be swapped unseen when they are different primes, so a test can write its arithmetic
out. Batch and sequence length are dynamic unless given.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import onnx

from models.graph_builder import FLOAT, INT64, Dim, GraphBuilder, Spec
from models.transformers.parts import OPSET, layer_norm

IMAGE = (13, 17)
CHANNELS = (3, 7)
CNN_CLASSES = 11
MLP_WIDTHS = (13, 29, 31, 11)
HEADS, HEAD_SIZE = 3, 7
HIDDEN = HEADS * HEAD_SIZE
FEED_FORWARD = 37
VOCABULARY, EMBEDDING, LABELS = 97, 19, 5


def build_tiny_cnn(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """Conv, BatchNorm, ReLU, a residual block, pooling, Gemm: (batch, 3, 13, 17) to (batch, 11)."""
    builder = GraphBuilder("tiny-cnn", seed=seed)
    trunk = builder.node("Relu", [_conv_bn(builder, "input", "stem", *CHANNELS)], "stem")
    branch = _conv_bn(builder, trunk, "block", CHANNELS[1], CHANNELS[1])
    x = builder.node("Relu", [builder.node("Add", [branch, trunk], "block")], "block")
    x = builder.node("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = builder.node("Flatten", [builder.node("GlobalAveragePool", [x], "head")], "head", axis=1)
    builder.gemm(x, "head", CHANNELS[1], CNN_CLASSES, output="output")
    return builder.model({"input": (FLOAT, (batch, CHANNELS[0], *IMAGE))}, {"output": (FLOAT, (batch, CNN_CLASSES))})


def build_tiny_mlp(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """Three Gemm with ReLU between them and a Softmax: (batch, 13) to (batch, 11)."""
    builder = GraphBuilder("tiny-mlp", seed=seed)
    x = "input"
    for layer, (width, wider) in enumerate(pairwise(MLP_WIDTHS)):
        x = builder.gemm(x, f"fc{layer}", width, wider)
        if wider != MLP_WIDTHS[-1]:
            x = builder.node("Relu", [x], f"fc{layer}")
    builder.node("Softmax", [x], "head", output="output", axis=-1)
    return builder.model({"input": (FLOAT, (batch, MLP_WIDTHS[0]))}, {"output": (FLOAT, (batch, MLP_WIDTHS[-1]))})


def build_tiny_unnamed(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """The tiny MLP with no node named, as some converters leave it."""
    model = build_tiny_mlp(seed=seed, batch=batch)
    for node in model.graph.node:
        node.ClearField("name")
    return model


def build_tiny_two_inputs(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """Mean of the embeddings that a mask selects: int64 ids and a float32 mask, (batch, seq), to (batch, 5)."""
    builder = GraphBuilder("tiny-two-inputs", seed=seed)
    table = builder.he_normal("embedding.weight", (VOCABULARY, EMBEDDING))
    words = builder.node("Gather", [table, "ids"], "embedding", axis=0)
    weights = builder.node("Unsqueeze", ["mask"], "mask", axes=[2])
    x = builder.node("ReduceMean", [builder.node("Mul", [words, weights], "mask")], "mask", axes=[1], keepdims=0)
    builder.gemm(x, "head", EMBEDDING, LABELS, output="output")
    inputs: dict[str, Spec] = {"ids": (INT64, (batch, "seq")), "mask": (FLOAT, (batch, "seq"))}
    return builder.model(inputs, {"output": (FLOAT, (batch, LABELS))})


def build_tiny_transformer(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """One encoder block, three heads of seven: (batch, seq, 21) to the same, GELU written out with Erf."""
    builder = GraphBuilder("tiny-transformer", seed=seed)
    y = builder.node("Add", [_attention(builder, "input"), "input"], "attention/residual")
    x = layer_norm(builder, y, "attention/norm", HIDDEN, 1e-5)
    wide = _gelu(builder, _linear(builder, x, "mlp/up", HIDDEN, FEED_FORWARD))
    narrow = _linear(builder, wide, "mlp/down", FEED_FORWARD, HIDDEN)
    y = builder.node("Add", [narrow, x], "mlp/residual")
    layer_norm(builder, y, "mlp/norm", HIDDEN, 1e-5, output="output")
    shape: tuple[Dim, ...] = (batch, "seq", HIDDEN)
    return builder.model({"input": (FLOAT, shape)}, {"output": (FLOAT, shape)}, opset=OPSET)


def _attention(builder: GraphBuilder, x: str) -> str:
    """softmax(Q·Kᵀ / √d)·V over heads, and the output projection (Vaswani et al. 2017, arXiv:1706.03762, eq. 1)."""
    split = builder.weight("attention.split", np.array([0, 0, HEADS, HEAD_SIZE], np.int64))
    heads = {}
    # K is turned once more than Q and V: (batch, heads, size, seq).
    for name, order in {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}.items():
        path = f"attention/{name}"
        y = builder.node("Reshape", [_linear(builder, x, path, HIDDEN, HIDDEN), split], path)
        heads[name] = builder.node("Transpose", [y], path, perm=order)
    scores = builder.node("MatMul", [heads["query"], heads["key"]], "attention/scores")
    root = builder.weight("attention.root", np.array(math.sqrt(HEAD_SIZE), np.float32))
    weights = builder.node("Softmax", [builder.node("Div", [scores, root], "attention/scores")], "attention", axis=-1)
    y = builder.node("MatMul", [weights, heads["value"]], "attention/context")
    y = builder.node("Transpose", [y], "attention/context", perm=[0, 2, 1, 3])
    merge = builder.weight("attention.merge", np.array([0, 0, HIDDEN], np.int64))
    return _linear(
        builder, builder.node("Reshape", [y, merge], "attention/context"), "attention/output", HIDDEN, HIDDEN
    )


def _gelu(builder: GraphBuilder, x: str) -> str:
    """GELU, x · (1 + erf(x / √2)) / 2, as exporters write it (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    root, one, half = (
        builder.weight(f"gelu.{name}", np.array(value, np.float32))
        for name, value in (("root", math.sqrt(2)), ("one", 1), ("half", 0.5))
    )
    y = builder.node("Erf", [builder.node("Div", [x, root], "mlp/gelu")], "mlp/gelu")
    y = builder.node("Mul", [x, builder.node("Add", [y, one], "mlp/gelu")], "mlp/gelu")
    return builder.node("Mul", [y, half], "mlp/gelu/half")


def _linear(builder: GraphBuilder, x: str, path: str, width: int, wider: int) -> str:
    """MatMul and Add, as exporters write a linear layer over a sequence."""
    values = builder.random.standard_normal((width, wider), dtype=np.float32)
    weight = builder.weight(f"{path}.weight", values / np.float32(math.sqrt(width)))  # variance 1 / fan-in
    bias = builder.weight(f"{path}.bias", np.zeros(wider, np.float32))
    return builder.node("Add", [bias, builder.node("MatMul", [x, weight], path)], path)


def _conv_bn(builder: GraphBuilder, x: str, path: str, channels: int, filters: int) -> str:
    """3×3 convolution without bias that keeps the size, and its BatchNorm."""
    weight = builder.he_normal(f"{path}.conv.weight", (filters, channels, 3, 3))
    y = builder.node("Conv", [x, weight], path, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    uniform = {name: builder.random.uniform(0.9, 1.1, filters) for name in ("weight", "running_var")}
    normal = {name: builder.random.normal(0.0, 0.1, filters) for name in ("bias", "running_mean")}
    values = {**uniform, **normal}
    names = [
        builder.weight(f"{path}.norm.{name}", values[name].astype(np.float32))
        for name in ("weight", "bias", "running_mean", "running_var")
    ]
    return builder.node("BatchNormalization", [y, *names], path, epsilon=1e-5)

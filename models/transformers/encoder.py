"""A transformer encoder over rows of numbers, whose shapes are all fixed, as an engine without a host computes it.

Each layer normalizes before attention and before the feed-forward net (Xiong et al. 2020, arXiv:2002.04745).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from models.graph_builder import FLOAT, GraphBuilder, dotted
from models.transformers.parts import OPSET, gelu, layer_norm

EPSILON = 1e-5
BIAS_DEVIATION = 0.1


def build_encoder(
    *, seed: int = 0, tokens: int = 64, width: int = 64, heads: int = 4, feed: int = 256, depth: int = 2
) -> onnx.ModelProto:
    """A few layers with random weights: ``input`` float32 (1, tokens, width) to ``output`` of the same shape."""
    builder = GraphBuilder("encoder", seed=seed)
    x = "input"
    for layer in range(depth):
        path = f"layers/layers.{layer}"
        y = layer_norm(builder, x, f"{path}/norm1", width, EPSILON)
        x = builder.node("Add", [x, _attention(builder, y, f"{path}/attention", (tokens, width, heads))], path)
        y = layer_norm(builder, x, f"{path}/norm2", width, EPSILON)
        y = gelu(builder, _linear(builder, y, f"{path}/up", width, feed), f"{path}/act")
        x = builder.node("Add", [x, _linear(builder, y, f"{path}/down", feed, width)], path)
    layer_norm(builder, x, "norm", width, EPSILON, output="output")
    shape = (FLOAT, (1, tokens, width))
    return builder.model({"input": shape}, {"output": shape}, opset=OPSET)


def _attention(builder: GraphBuilder, x: str, path: str, sizes: tuple[int, int, int]) -> str:
    """Attention of all tokens to all, head by head."""
    tokens, width, heads = sizes
    apart = [1, tokens, heads, width // heads]
    q, k, v = (_reshape(builder, _linear(builder, x, f"{path}/{name}", width, width), apart, path) for name in "qkv")
    q, v = (builder.node("Transpose", [each], path, perm=[0, 2, 1, 3]) for each in (q, v))
    k = builder.node("Transpose", [k], path, perm=[0, 2, 3, 1])
    root = builder.constant(path, math.sqrt(width / heads), np.float32)
    scores = builder.node("Div", [builder.node("MatMul", [q, k], path), root], path)
    y = builder.node("MatMul", [builder.node("Softmax", [scores], path, axis=-1), v], path)
    y = builder.node("Transpose", [y], path, perm=[0, 2, 1, 3])
    return _linear(builder, _reshape(builder, y, [1, tokens, width], path), f"{path}/out", width, width)


def _linear(builder: GraphBuilder, x: str, path: str, width: int, wider: int) -> str:
    weight = builder.normal(f"{dotted(path)}.weight", (width, wider), 1 / width)
    bias = builder.weight(f"{dotted(path)}.bias", builder.random.normal(0, BIAS_DEVIATION, wider).astype(np.float32))
    return builder.node("Add", [builder.node("MatMul", [x, weight], path), bias], path)


def _reshape(builder: GraphBuilder, x: str, shape: Sequence[int], path: str) -> str:
    return builder.node("Reshape", [x, builder.constant(path, shape)], path)

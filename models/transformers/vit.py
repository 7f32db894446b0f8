"""Vision transformer as exporters write it (Dosovitskiy et al., ICLR 2021, arXiv:2010.11929, table 1).

ViT-B/16 has 86,567,656 parameters with its head of 1000 classes. Each of its 12 layers normalizes before attention and
before the feed-forward net; queries, keys and values come out of one matrix product and are parted by a Gather.
"""

from __future__ import annotations

import numpy as np
import onnx

from models.graph_builder import FLOAT, Dim, GraphBuilder
from models.transformers.parts import (
    BRANCH_VARIANCE,
    OPSET,
    feed_forward,
    layer_norm,
    patch_rows,
    reshape,
    size_of,
    unsqueeze,
)

EPSILON = 1e-6


def build_vit(
    *,
    seed: int = 0,
    batch: Dim = "batch",
    image: int = 224,
    patch: int = 16,
    depth: int = 12,
    width: int = 768,
    heads: int = 12,
    feed: int = 3072,
    classes: int = 1000,
    has_weights: bool = True,
) -> onnx.ModelProto:
    """ViT-B/16 with random weights: ``input`` float32 (batch, 3, 224, 224) to ``output`` (batch, 1000)."""
    builder = GraphBuilder("vit", seed=seed, has_weights=has_weights)
    x = _embed(builder, image, patch, width)
    for layer in range(depth):
        path = f"blocks/blocks.{layer}"
        y = _attention(builder, layer_norm(builder, x, f"{path}/norm1", width, EPSILON), f"{path}/attn", width, heads)
        x = builder.node("Add", [x, y], path)
        y = layer_norm(builder, x, f"{path}/norm2", width, EPSILON)
        paths = (f"{path}/mlp/fc1", f"{path}/mlp/act", f"{path}/mlp/fc2")
        y = feed_forward(builder, y, paths, width, feed, variance=BRANCH_VARIANCE)
        x = builder.node("Add", [x, y], path)
    x = layer_norm(builder, x, "norm", width, EPSILON)
    x = builder.node("Gather", [x, builder.constant("", 0)], "", axis=1)  # the class token
    builder.gemm(x, "head", width, classes, output="output")
    inputs = {"input": (FLOAT, (batch, 3, image, image))}
    return builder.model(inputs, {"output": (FLOAT, (batch, classes))}, opset=OPSET)


def build_tiny_vit(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """Two layers of the vision transformer, 25 patches, three heads of seven: (batch, 3, 35, 35) to (batch, 11)."""
    return build_vit(seed=seed, batch=batch, image=35, patch=7, depth=2, width=21, heads=3, feed=37, classes=11)


def _embed(builder: GraphBuilder, image: int, patch: int, width: int) -> str:
    """Add the class token before the rows of the patches, and the position of each."""
    tokens = (image // patch) ** 2
    x = patch_rows(builder, "patch_embed", "proj", tokens, patch, width)
    token = builder.weight("cls_token", builder.random.normal(0, 1, (1, 1, width)).astype(np.float32))
    x = builder.node("Concat", [_repeated(builder, token, x), x], "", axis=1)
    positions = builder.random.normal(0, 0.5, (1, tokens + 1, width)).astype(np.float32)
    return builder.node("Add", [x, builder.weight("pos_embed", positions)], "")


def _repeated(builder: GraphBuilder, token: str, like: str) -> str:
    """``token.expand(batch, -1, -1)``: the exporter turns every -1 into 1 where it runs, by Equal and Where."""
    count = unsqueeze(builder, size_of(builder, like, 0, ""), "")
    sizes = builder.node("Concat", [count, builder.constant("", [-1]), builder.constant("", [-1])], "", axis=0)
    ones = builder.node(
        "ConstantOfShape", [builder.constant("", [3])], "", value=onnx.numpy_helper.from_array(np.ones(1, np.int64))
    )
    kept = builder.node("Equal", [sizes, builder.node("Mul", [ones, builder.constant("", -1)], "")], "")
    return builder.node("Expand", [token, builder.node("Where", [kept, ones, sizes], "")], "")


def _attention(builder: GraphBuilder, x: str, path: str, width: int, heads: int) -> str:
    """softmax(Q·Kᵀ / √d)·V (Vaswani et al. 2017, eq. 1) with one product for Q, K and V; Q is scaled before."""
    batch, tokens = size_of(builder, x, 0, path), size_of(builder, x, 1, path)
    packed = builder.linear(x, f"{path}/qkv", width, 3 * width)
    packed = reshape(builder, packed, [batch, tokens, 3, heads, width // heads], path)
    packed = builder.node("Transpose", [packed], path, perm=[2, 0, 3, 1, 4])
    query, key, value = (
        builder.node("Gather", [packed, builder.constant(path, index)], path, axis=0) for index in range(3)
    )
    query = builder.node("Mul", [query, builder.constant(path, (width // heads) ** -0.5, np.float32)], path)
    key = builder.node("Transpose", [key], path, perm=[0, 1, 3, 2])
    weights = builder.node("Softmax", [builder.node("MatMul", [query, key], path)], path, axis=-1)
    y = builder.node("MatMul", [weights, value], path)
    y = builder.node("Transpose", [y], path, perm=[0, 2, 1, 3])
    y = reshape(builder, y, [batch, tokens, width], path)
    return builder.linear(y, f"{path}/proj", width, width, variance=BRANCH_VARIANCE)

"""Vision encoder of a small vision-language model, as exporters write it, with the linear layer into its text model.

SigLIP base with patches of 16 at 512x512 (Zhai et al. 2023, arXiv:2303.15343) has no class token, separate products for
Q, K and V, and a tanh-GELU. The connector is SmolVLM-500M's (Marafioti et al. 2025, arXiv:2504.05299): a pixel shuffle
lays 4 x 4 neighbouring patches side by side, 1024 rows of 768 to 64 rows of 12288, and one product without a bias takes
each to the text model's 960.

It has 98,229,504 parameters, and does 107,659,395,072 multiply-accumulates for one image: 1024·768² for the patches,
12 layers of 1024·(4·768² + 2·768·3072) and 2·768·1024² over pairs of patches, and 64·12288·960 in the connector.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from models.graph_builder import FLOAT, Dim, GraphBuilder
from models.transformers.parts import BRANCH_VARIANCE, OPSET, layer_norm, patch_rows, reshape, size_of

EPSILON = 1e-6


def build_vision_encoder(
    *,
    seed: int = 0,
    batch: Dim = "batch",
    image: int = 512,
    patch: int = 16,
    depth: int = 12,
    width: int = 768,
    heads: int = 12,
    feed: int = 3072,
    shuffle: int = 4,
    text_width: int = 960,
) -> onnx.ModelProto:
    """SigLIP base at 512x512 and a connector, random weights: (batch, 3, 512, 512) to (batch, 64, 960)."""
    builder = GraphBuilder("vision_encoder", seed=seed)
    side = image // patch
    x = patch_rows(builder, "embeddings", "patch_embedding", side * side, patch, width)
    positions = builder.random.normal(0, 0.5, (1, side * side, width)).astype(np.float32)
    x = builder.node("Add", [x, builder.weight("embeddings.position_embedding.weight", positions)], "embeddings")
    for layer in range(depth):
        path = f"encoder/layers.{layer}"
        normed = layer_norm(builder, x, f"{path}/layer_norm1", width, EPSILON)
        x = builder.node("Add", [x, _attention(builder, normed, f"{path}/self_attn", width, heads)], path)
        y = builder.linear(
            layer_norm(builder, x, f"{path}/layer_norm2", width, EPSILON), f"{path}/mlp/fc1", width, feed
        )
        y = _tanh_gelu(builder, y, f"{path}/mlp/activation_fn")
        y = builder.linear(y, f"{path}/mlp/fc2", feed, width, variance=BRANCH_VARIANCE)
        x = builder.node("Add", [x, y], path)
    x = layer_norm(builder, x, "post_layernorm", width, EPSILON)
    x = _pixel_shuffle(builder, x, "connector", side, width, shuffle)
    wide, rows = width * shuffle**2, (side // shuffle) ** 2
    values = builder.random.standard_normal((wide, text_width), dtype=np.float32) * np.float32(wide**-0.5)
    projection = builder.weight("connector.proj.weight", values)
    builder.node("MatMul", [x, projection], "connector/modality_projection/proj", output="output")
    inputs = {"input": (FLOAT, (batch, 3, image, image))}
    return builder.model(inputs, {"output": (FLOAT, (batch, rows, text_width))}, opset=OPSET)


def build_tiny_vision_encoder(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """Two layers of the vision encoder, 36 patches, three heads of seven: (batch, 3, 30, 30) to (batch, 9, 13)."""
    return build_vision_encoder(
        seed=seed, batch=batch, image=30, patch=5, depth=2, width=21, heads=3, feed=37, shuffle=2, text_width=13
    )


def _attention(builder: GraphBuilder, x: str, path: str, width: int, heads: int) -> str:
    """softmax(Q·Kᵀ / √d)·V over heads (Vaswani et al. 2017, arXiv:1706.03762, eq. 1)."""
    batch, tokens, size = size_of(builder, x, 0, path), size_of(builder, x, 1, path), width // heads
    parts = {}
    for name in ("q", "k", "v"):
        y = builder.linear(x, f"{path}/{name}_proj", width, width)
        y = reshape(builder, y, [batch, tokens, heads, size], path)
        parts[name] = builder.node("Transpose", [y], path, perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])
    scores = builder.node("MatMul", [parts["q"], parts["k"]], path)
    scores = builder.node("Mul", [scores, builder.constant(path, size**-0.5, np.float32)], path)
    weights = builder.node("Softmax", [scores], path, axis=-1)
    y = builder.node("MatMul", [weights, parts["v"]], path)
    y = builder.node("Transpose", [y], path, perm=[0, 2, 1, 3])
    y = reshape(builder, y, [batch, tokens, width], path)
    return builder.linear(y, f"{path}/out_proj", width, width, variance=BRANCH_VARIANCE)


def _tanh_gelu(builder: GraphBuilder, x: str, path: str) -> str:
    """Half of x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""

    def scaled(value: str, factor: float) -> str:
        return builder.node("Mul", [value, builder.constant(path, factor, np.float32)], path)

    cube = builder.node("Mul", [builder.node("Mul", [x, x], path), x], path)
    inner = scaled(builder.node("Add", [x, scaled(cube, 0.044715)], path), math.sqrt(2 / math.pi))
    y = builder.node("Add", [builder.node("Tanh", [inner], path), builder.constant(path, 1, np.float32)], path)
    return scaled(builder.node("Mul", [x, y], path), 0.5)


def _pixel_shuffle(builder: GraphBuilder, x: str, path: str, side: int, width: int, factor: int) -> str:
    """Lay ``factor`` × ``factor`` neighbouring patches side by side; the model's own order of reshapes."""
    batch, fewer = size_of(builder, x, 0, path), side // factor
    x = reshape(builder, x, [batch, side, fewer, width * factor], path)
    x = builder.node("Transpose", [x], path, perm=[0, 2, 1, 3])
    x = reshape(builder, x, [batch, fewer, fewer, width * factor**2], path)
    x = builder.node("Transpose", [x], path, perm=[0, 2, 1, 3])
    return reshape(builder, x, [batch, fewer * fewer, width * factor**2], path)

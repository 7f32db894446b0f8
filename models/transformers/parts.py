"""Parts of a transformer encoder, in the nodes that ``torch.onnx`` writes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from models.graph_builder import GraphBuilder, dotted

OPSET = 17  # the first with LayerNormalization
# Every layer adds two branches to the stream: a quarter of the variance each keeps 24 additions within one decade.
BRANCH_VARIANCE = 0.25


def layer_norm(
    builder: GraphBuilder, x: str, path: str, width: int, epsilon: float, *, output: str | None = None
) -> str:
    """LayerNormalization over the last axis with a scale near one."""
    scale = builder.weight(f"{dotted(path)}.weight", builder.random.uniform(0.9, 1.1, width).astype(np.float32))
    bias = builder.weight(f"{dotted(path)}.bias", np.zeros(width, np.float32))
    return builder.node("LayerNormalization", [x, scale, bias], path, output=output, axis=-1, epsilon=epsilon)


def gelu(builder: GraphBuilder, x: str, path: str) -> str:
    """Half of x · (1 + erf(x / √2)) (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    root = builder.constant(path, math.sqrt(2), np.float32)
    y = builder.node("Erf", [builder.node("Div", [x, root], path)], path)
    y = builder.node("Add", [y, builder.constant(path, 1, np.float32)], path)
    y = builder.node("Mul", [x, y], path)
    return builder.node("Mul", [y, builder.constant(path, 0.5, np.float32)], path)


def feed_forward(
    builder: GraphBuilder, x: str, paths: tuple[str, str, str], width: int, wide: int, *, variance: float = 1.0
) -> str:
    """Linear, GELU, linear; ``paths`` name the three, ``variance`` is that of the second one's weights × fan-in."""
    up, activation, down = paths
    y = gelu(builder, builder.linear(x, up, width, wide), activation)
    return builder.linear(y, down, wide, width, variance=variance)


def patch_rows(builder: GraphBuilder, path: str, name: str, tokens: int, patch: int, width: int) -> str:
    """Add a linear map of every patch of ``input`` as a strided convolution, with a row per patch."""
    weight = builder.he_normal(f"{path}.{name}.weight", (width, 3, patch, patch))
    bias = builder.weight(f"{path}.{name}.bias", np.zeros(width, np.float32))
    square = [patch, patch]
    x = builder.node(
        "Conv", ["input", weight, bias], f"{path}/{name}", kernel_shape=square, strides=square, pads=[0] * 4
    )
    x = reshape(builder, x, [size_of(builder, x, 0, path), width, tokens], path)
    return builder.node("Transpose", [x], path, perm=[0, 2, 1])


def size_of(builder: GraphBuilder, x: str, axis: int, path: str) -> str:
    """The size of one axis as a scalar: Shape and Gather, as a traced ``x.shape[axis]`` is written."""
    shape = builder.node("Shape", [x], path)
    return builder.node("Gather", [shape, builder.constant(path, axis)], path, axis=0)


def reshape(builder: GraphBuilder, x: str, sizes: Sequence[int | str], path: str) -> str:
    """Reshape to numbers and scalar tensors: an Unsqueeze for each, and a Concat of them."""
    parts = [
        builder.constant(path, [size]) if isinstance(size, int) else unsqueeze(builder, size, path) for size in sizes
    ]
    return builder.node("Reshape", [x, builder.node("Concat", parts, path, axis=0)], path)


def unsqueeze(builder: GraphBuilder, size: str, path: str) -> str:
    return builder.node("Unsqueeze", [size, builder.constant(path, [0])], path)

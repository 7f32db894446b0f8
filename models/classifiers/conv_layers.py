"""Convolution and normalization as exporters of image classifiers write them: every operator its own node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from models.graph_builder import FLOAT, Dim, GraphBuilder, dotted

CLASSES = 1000


def conv(
    builder: GraphBuilder,
    x: str,
    path: str,
    shape: tuple[int, int, int, int],
    *,
    stride: int = 1,
    pad: int | None = None,
    groups: int = 1,
    bias: bool = False,
) -> str:
    """Add a convolution whose padding keeps the size at stride 1, unless ``pad`` is given."""
    kernel = shape[2]
    operands = [x, builder.he_normal(f"{dotted(path)}.weight", shape)]
    if bias:
        operands.append(builder.weight(f"{dotted(path)}.bias", np.zeros(shape[0], np.float32)))
    return builder.node(
        "Conv",
        operands,
        path,
        dilations=[1, 1],
        group=groups,
        kernel_shape=[kernel] * 2,
        pads=[kernel // 2 if pad is None else pad] * 4,
        strides=[stride] * 2,
    )


def conv_relu(
    builder: GraphBuilder,
    x: str,
    path: str,
    shape: tuple[int, int, int, int],
    *,
    stride: int = 1,
    pad: int | None = None,
) -> str:
    return builder.node("Relu", [conv(builder, x, path, shape, stride=stride, pad=pad, bias=True)], path)


def batch_norm(builder: GraphBuilder, x: str, path: str, channels: int, *, scale: float = 1.0) -> str:
    """BatchNorm with seeded statistics near those of a trained net."""
    random = builder.random
    statistics = {
        "weight": scale * random.uniform(0.9, 1.1, channels),
        "bias": random.normal(0.0, 0.1, channels),
        "running_mean": random.normal(0.0, 0.1, channels),
        "running_var": random.uniform(0.9, 1.1, channels),
    }
    names = [builder.weight(f"{dotted(path)}.{key}", value.astype(np.float32)) for key, value in statistics.items()]
    return builder.node("BatchNormalization", [x, *names], path, epsilon=1e-5, momentum=0.9)


def max_pool(
    builder: GraphBuilder, x: str, path: str, kernel: int, stride: int, *, pad: int = 0, ceil: bool = False
) -> str:
    """Add max pooling; ``ceil`` keeps a last window that extends over the edge."""
    return builder.node(
        "MaxPool", [x], path, ceil_mode=int(ceil), kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2
    )


def classifier(builder: GraphBuilder, x: str, path: str, channels: int, image: Sequence[Dim]) -> onnx.ModelProto:
    """Add global average pooling and a linear layer, and return the finished model."""
    x = builder.node("GlobalAveragePool", [x], "avgpool")
    builder.gemm(builder.node("Flatten", [x], "", axis=1), path, channels, CLASSES, output="output")
    return closed(builder, image)


def closed(builder: GraphBuilder, image: Sequence[Dim]) -> onnx.ModelProto:
    """The model from ``input`` of that shape to ``output`` of 1000 classes."""
    return builder.model({"input": (FLOAT, image)}, {"output": (FLOAT, (image[0], CLASSES))})

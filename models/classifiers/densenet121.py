"""DenseNet-121 as exporters write it: every BatchNorm and ReLU its own node (Huang et al., arXiv:1608.06993, table 1).

Growth 32, blocks of 6, 12, 24 and 16 layers, bottlenecks of four times the growth, half of the channels kept by each
transition. 7,978,856 trainable parameters as in torchvision, and 83,648 running statistics; 120 convolutions and one
linear layer. Each layer reads all maps before it in its block: the exporter writes a Concat even where that is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from models.classifiers.conv_layers import CLASSES, batch_norm, conv
from models.graph_builder import FLOAT, Dim, GraphBuilder

BLOCKS = (6, 12, 24, 16)
GROWTH = 32
STEM = 64
BOTTLENECK = 4  # of the growth


def build_densenet121(
    *,
    seed: int = 0,
    batch: Dim = "N",
    image: int = 224,
    blocks: Sequence[int] = BLOCKS,
    growth: int = GROWTH,
    stem: int = STEM,
    classes: int = CLASSES,
) -> onnx.ModelProto:
    """DenseNet-121 with random weights: ``input`` float32 (batch, 3, 224, 224) to ``output`` (batch, 1000)."""
    builder = GraphBuilder("densenet", seed=seed)
    x = conv(builder, "input", "features/conv0", (stem, 3, 7, 7), stride=2)
    x = _norm_relu(builder, x, "features", "0", stem)
    x = builder.node("MaxPool", [x], "features/pool0", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    channels = stem
    for number, layers in enumerate(blocks, start=1):
        x, channels = _block(builder, x, f"features/denseblock{number}", channels, layers, growth)
        if number < len(blocks):
            x, channels = _transition(builder, x, f"features/transition{number}", channels)
    x = _norm_relu(builder, x, "features", "5", channels)
    x = builder.node("GlobalAveragePool", [x], "")
    builder.gemm(builder.node("Flatten", [x], "", axis=1), "classifier", channels, classes, output="output")
    return builder.model({"input": (FLOAT, (batch, 3, image, image))}, {"output": (FLOAT, (batch, classes))})


def build_tiny_densenet(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """DenseNet of two blocks, two and three layers, growth 5: (batch, 3, 33, 33) to (batch, 11)."""
    return build_densenet121(seed=seed, batch=batch, image=33, blocks=(2, 3), growth=5, stem=7, classes=11)


def _block(builder: GraphBuilder, x: str, path: str, channels: int, layers: int, growth: int) -> tuple[str, int]:
    """Layers of BatchNorm, ReLU, 1×1, BatchNorm, ReLU, 3×3; each concatenates its result to its input."""
    maps = [x]
    for number in range(1, layers + 1):
        layer, wide = f"{path}/denselayer{number}", BOTTLENECK * growth
        y = _norm_relu(builder, builder.node("Concat", maps, layer, axis=1), layer, "1", channels)
        y = conv(builder, y, f"{layer}/conv1", (wide, channels, 1, 1))
        y = _norm_relu(builder, y, layer, "2", wide)
        maps.append(conv(builder, y, f"{layer}/conv2", (growth, wide, 3, 3)))
        channels += growth
    return builder.node("Concat", maps, path, axis=1), channels


def _transition(builder: GraphBuilder, x: str, path: str, channels: int) -> tuple[str, int]:
    """BatchNorm, ReLU, 1×1 to half the channels, 2×2 average."""
    y = _norm_relu(builder, x, path, "", channels)
    y = conv(builder, y, f"{path}/conv", (channels // 2, channels, 1, 1))
    y = builder.node("AveragePool", [y], f"{path}/pool", kernel_shape=[2, 2], pads=[0] * 4, strides=[2, 2])
    return y, channels // 2


def _norm_relu(builder: GraphBuilder, x: str, path: str, number: str, channels: int) -> str:
    y = batch_norm(builder, x, f"{path}/norm{number}", channels)
    return builder.node("Relu", [y], f"{path}/relu{number}")

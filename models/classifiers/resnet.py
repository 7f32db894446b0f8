"""ResNet-18 and ResNet-50 v1.5 as exporters write them (He et al., arXiv:1512.03385, table 1).

Every BatchNorm and ReLU is its own node. The shortcut is projected where the shape changes (option B of the paper).
ResNet-18 has 11,689,512 trainable parameters and 9,600 running statistics, as in torchvision; 1.814 G
multiply-accumulates per 224×224 image. v1.5 puts the stride of a down-sampling block into its 3×3 convolution, as
torchvision and the MLPerf reference do: 25,557,032 parameters, 53,120 statistics, 4.089 G multiply-accumulates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from models.classifiers.conv_layers import CLASSES, batch_norm, classifier, closed, conv, max_pool
from models.graph_builder import Dim, GraphBuilder

# Blocks, width, stride of the first block.
STAGES_18 = ((2, 64, 1), (2, 128, 2), (2, 256, 2), (2, 512, 2))
STAGES_50 = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
EXPANSION = 4  # of the width of a bottleneck
# Every block adds its branch to the shortcut, so the variance grows by (1 + scale²) a block: 1.25**16 ≈ 35
# keeps the activations of 16 blocks within one decade. A scale of 1 would let them grow by 2**16.
BRANCH_SCALE = 0.5
Block = Callable[[GraphBuilder, str, str, int, int, int], str]


def build_resnet18(*, seed: int = 0, batch: Dim = "N", image: int = 224, has_weights: bool = True) -> onnx.ModelProto:
    """ResNet-18 with random weights: ``input`` float32 (batch, 3, 224, 224) to ``output`` (batch, 1000)."""
    builder = GraphBuilder("resnet18", seed=seed, has_weights=has_weights)
    x = max_pool(builder, _stem(builder), "maxpool", 3, 2, pad=1)
    x, channels = _stages(builder, x, STAGES_18, _basic_block, 1)
    return classifier(builder, x, "fc", channels, (batch, 3, image, image))


def build_resnet50(*, seed: int = 0, batch: Dim = "N", image: int = 224, has_weights: bool = True) -> onnx.ModelProto:
    """Build the model: ``input`` float32 (batch, 3, image, image) to ``output`` float32 (batch, 1000)."""
    builder = GraphBuilder("resnet50", seed=seed, has_weights=has_weights)
    x = builder.node("MaxPool", [_stem(builder)], "maxpool", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    x, channels = _stages(builder, x, STAGES_50, _bottleneck, EXPANSION)
    x = builder.node("Flatten", [builder.node("GlobalAveragePool", [x], "avgpool")], "", axis=1)
    builder.gemm(x, "fc", channels, CLASSES, output="output", alpha=1.0, beta=1.0)
    return closed(builder, (batch, 3, image, image))


def _stem(builder: GraphBuilder) -> str:
    x = conv(builder, "input", "conv1", (64, 3, 7, 7), stride=2)
    return builder.node("Relu", [batch_norm(builder, x, "bn1", 64)], "relu")


def _stages(
    builder: GraphBuilder, x: str, stages: Sequence[tuple[int, int, int]], add_block: Block, expansion: int
) -> tuple[str, int]:
    channels = 64
    for stage, (blocks, width, stride) in enumerate(stages, start=1):
        for block in range(blocks):
            path = f"layer{stage}/layer{stage}.{block}"
            x = add_block(builder, x, path, channels, width, stride if block == 0 else 1)
            channels = width * expansion
    return x, channels


def _basic_block(builder: GraphBuilder, x: str, path: str, channels: int, width: int, stride: int) -> str:
    """Two 3×3 (the first strided), plus the shortcut."""
    y = conv(builder, x, f"{path}/conv1", (width, channels, 3, 3), stride=stride)
    y = builder.node("Relu", [batch_norm(builder, y, f"{path}/bn1", width)], f"{path}/relu")
    y = conv(builder, y, f"{path}/conv2", (width, width, 3, 3))
    y = batch_norm(builder, y, f"{path}/bn2", width, scale=BRANCH_SCALE)
    x = _shortcut(builder, x, path, channels, width, stride)
    return builder.node("Relu", [builder.node("Add", [y, x], path)], f"{path}/relu_1")


def _bottleneck(builder: GraphBuilder, x: str, path: str, channels: int, width: int, stride: int) -> str:
    """1×1 reduce, 3×3 (strided), 1×1 expand, plus the shortcut."""
    wide = width * EXPANSION
    y = conv(builder, x, f"{path}/conv1", (width, channels, 1, 1))
    y = builder.node("Relu", [batch_norm(builder, y, f"{path}/bn1", width)], f"{path}/relu")
    y = conv(builder, y, f"{path}/conv2", (width, width, 3, 3), stride=stride)
    y = builder.node("Relu", [batch_norm(builder, y, f"{path}/bn2", width)], f"{path}/relu_1")
    y = conv(builder, y, f"{path}/conv3", (wide, width, 1, 1))
    y = batch_norm(builder, y, f"{path}/bn3", wide, scale=BRANCH_SCALE)
    x = _shortcut(builder, x, path, channels, wide, stride)
    return builder.node("Relu", [builder.node("Add", [y, x], path)], f"{path}/relu_2")


def _shortcut(builder: GraphBuilder, x: str, path: str, channels: int, width: int, stride: int) -> str:
    if stride == 1 and channels == width:
        return x
    down = f"{path}/downsample/downsample"
    x = conv(builder, x, f"{down}.0", (width, channels, 1, 1), stride=stride)
    return batch_norm(builder, x, f"{down}.1", width)

"""VGG-16, configuration D (Simonyan and Zisserman, arXiv:1409.1556, tables 1 and 2), without BatchNorm.

138,357,544 parameters, nine tenths of them in three linear layers; 15.470 G multiply-accumulates per 224×224 image.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from models.classifiers.conv_layers import CLASSES, closed, conv, max_pool
from models.graph_builder import Dim, GraphBuilder

STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))  # convolutions, channels; each ends in a 2×2 pooling
HIDDEN = 4096


def build_vgg16(
    *,
    seed: int = 0,
    batch: Dim = "N",
    image: int = 224,
    has_weights: bool = True,
    stages: Sequence[tuple[int, int]] = STAGES,
) -> onnx.ModelProto:
    """VGG-16, or one with other stages: ``input`` float32 (batch, 3, 224, 224) to ``output`` (batch, 1000)."""
    builder = GraphBuilder("vgg16", seed=seed, has_weights=has_weights)
    x, channels, index = "input", 3, 0
    for count, width in stages:
        for _ in range(count):
            y = conv(builder, x, f"features/features.{index}", (width, channels, 3, 3), bias=True)
            x = builder.node("Relu", [y], f"features/features.{index + 1}")
            channels, index = width, index + 2
        x = max_pool(builder, x, f"features/features.{index}", 2, 2)
        index += 1
    x = builder.node("Flatten", [x], "", axis=1)
    wide = channels * (image // 2 ** len(stages)) ** 2
    for index, width in ((0, HIDDEN), (3, HIDDEN)):
        y = builder.gemm(x, f"classifier/classifier.{index}", wide, width)
        x, wide = builder.node("Relu", [y], f"classifier/classifier.{index + 1}"), width
    builder.gemm(x, "classifier/classifier.6", wide, CLASSES, output="output")
    return closed(builder, (batch, 3, image, image))

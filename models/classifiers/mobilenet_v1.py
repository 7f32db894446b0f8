"""MobileNet v1, width 1.0 (Howard et al., arXiv:1704.04861, table 1): a depthwise 3×3, then a 1×1, thirteen times.

4,231,976 trainable parameters and 21,888 running statistics, as in Keras; 0.569 G multiply-accumulates per 224×224
image.
"""

from __future__ import annotations

import onnx

from models.classifiers.conv_layers import batch_norm, classifier, conv
from models.graph_builder import Dim, GraphBuilder

STEM = 32
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


def build_mobilenet_v1(
    *, seed: int = 0, batch: Dim = "N", image: int = 224, has_weights: bool = True
) -> onnx.ModelProto:
    """MobileNet v1 1.0 with random weights: ``input`` float32 (batch, 3, 224, 224) to ``output`` (batch, 1000)."""
    builder = GraphBuilder("mobilenet_v1", seed=seed, has_weights=has_weights)
    x = _conv_bn_relu(builder, "input", "features/features.0", (STEM, 3, 3, 3), stride=2)
    channels = STEM
    for number, (width, stride) in enumerate(BLOCKS, start=1):
        path = f"features/features.{number}"
        x = _conv_bn_relu(builder, x, f"{path}/depthwise", (channels, 1, 3, 3), stride=stride, groups=channels)
        x = _conv_bn_relu(builder, x, f"{path}/pointwise", (width, channels, 1, 1))
        channels = width
    return classifier(builder, x, "classifier", channels, (batch, 3, image, image))


def _conv_bn_relu(
    builder: GraphBuilder, x: str, path: str, shape: tuple[int, int, int, int], *, stride: int = 1, groups: int = 1
) -> str:
    """The original clips at 6 (ReLU6), which exporters write as Clip; that fuses as a ReLU does."""
    y = conv(builder, x, f"{path}/conv", shape, stride=stride, groups=groups)
    y = batch_norm(builder, y, f"{path}/bn", shape[0])
    return builder.node("Relu", [y], f"{path}/relu")

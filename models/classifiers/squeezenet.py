"""SqueezeNet 1.1 (Iandola et al., arXiv:1602.07360; release 1.1 moves the poolings forward and halves the work).

1,235,496 parameters; 0.388 G multiply-accumulates per 227×227 image. The classes come of a 1×1 convolution and the
mean of each map behind it; there is no linear layer.
"""

from __future__ import annotations

import onnx

from models.classifiers.conv_layers import CLASSES, closed, conv_relu, max_pool
from models.graph_builder import Dim, GraphBuilder

STEM = 64
# Width of the squeezing 1×1 and of each of the two expanding halves; None is a pooling.
FIRES = ((16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256))


def build_squeezenet(*, seed: int = 0, batch: Dim = "N", image: int = 227, has_weights: bool = True) -> onnx.ModelProto:
    """SqueezeNet 1.1 with random weights: ``input`` float32 (batch, 3, 227, 227) to ``output`` (batch, 1000)."""
    builder = GraphBuilder("squeezenet1_1", seed=seed, has_weights=has_weights)
    x = conv_relu(builder, "input", "conv1", (STEM, 3, 3, 3), stride=2, pad=0)
    x = max_pool(builder, x, "pool1", 3, 2, ceil=True)
    channels, number = STEM, 2
    for fire in FIRES:
        if fire is None:
            x = max_pool(builder, x, f"pool{number - 1}", 3, 2, ceil=True)
            continue
        x = _fire(builder, x, f"fire{number}", channels, *fire)
        channels, number = 2 * fire[1], number + 1
    x = conv_relu(builder, x, "conv10", (CLASSES, channels, 1, 1))
    x = builder.node("GlobalAveragePool", [x], "pool10")
    builder.node("Flatten", [x], "", output="output", axis=1)
    return closed(builder, (batch, 3, image, image))


def _fire(builder: GraphBuilder, x: str, path: str, channels: int, squeezed: int, expanded: int) -> str:
    y = conv_relu(builder, x, f"{path}/squeeze1x1", (squeezed, channels, 1, 1))
    halves = [
        conv_relu(builder, y, f"{path}/expand{kernel}x{kernel}", (expanded, squeezed, kernel, kernel))
        for kernel in (1, 3)
    ]
    return builder.node("Concat", halves, path, axis=1)

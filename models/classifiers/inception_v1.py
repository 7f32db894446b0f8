"""Inception v1, GoogLeNet (Szegedy et al., arXiv:1409.4842, table 1), without its auxiliary classifiers.

6,998,552 parameters, as in the BVLC model; 1.58 G multiply-accumulates per 224×224 image. Local response
normalization is left out: later versions do without it, and it has no parameters.
"""

from __future__ import annotations

import onnx

from models.classifiers.conv_layers import classifier, conv_relu, max_pool
from models.graph_builder import Dim, GraphBuilder

# 1×1; 1×1 before 3×3, 3×3; 1×1 before 5×5, 5×5; 1×1 after the pooling. A number is a pooling between blocks.
BLOCKS: dict[str, tuple[int, int, int, int, int, int]] = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
LAST_OF_STAGE = ("3b", "4e")


def build_inception_v1(
    *, seed: int = 0, batch: Dim = "N", image: int = 224, has_weights: bool = True
) -> onnx.ModelProto:
    """GoogLeNet with random weights: ``input`` float32 (batch, 3, 224, 224) to ``output`` (batch, 1000)."""
    builder = GraphBuilder("inception_v1", seed=seed, has_weights=has_weights)
    x = conv_relu(builder, "input", "conv1/7x7_s2", (64, 3, 7, 7), stride=2)
    x = max_pool(builder, x, "pool1/3x3_s2", 3, 2, ceil=True)
    x = conv_relu(builder, x, "conv2/3x3_reduce", (64, 64, 1, 1))
    x = conv_relu(builder, x, "conv2/3x3", (192, 64, 3, 3))
    x = max_pool(builder, x, "pool2/3x3_s2", 3, 2, ceil=True)
    channels = 192
    for name, widths in BLOCKS.items():
        x = _block(builder, x, f"inception_{name}", channels, widths)
        channels = widths[0] + widths[2] + widths[4] + widths[5]
        if name in LAST_OF_STAGE:
            x = max_pool(builder, x, f"pool{name[0]}/3x3_s2", 3, 2, ceil=True)
    return classifier(builder, x, "loss3/classifier", channels, (batch, 3, image, image))


def _block(builder: GraphBuilder, x: str, path: str, channels: int, widths: tuple[int, int, int, int, int, int]) -> str:
    """Four branches over the same maps, side by side in the output."""
    one, before_three, three, before_five, five, pooled = widths
    first = conv_relu(builder, x, f"{path}/1x1", (one, channels, 1, 1))
    second = conv_relu(builder, x, f"{path}/3x3_reduce", (before_three, channels, 1, 1))
    second = conv_relu(builder, second, f"{path}/3x3", (three, before_three, 3, 3))
    third = conv_relu(builder, x, f"{path}/5x5_reduce", (before_five, channels, 1, 1))
    third = conv_relu(builder, third, f"{path}/5x5", (five, before_five, 5, 5))
    fourth = max_pool(builder, x, f"{path}/pool", 3, 1, pad=1)
    fourth = conv_relu(builder, fourth, f"{path}/pool_proj", (pooled, channels, 1, 1))
    return builder.node("Concat", [first, second, third, fourth], path, axis=1)

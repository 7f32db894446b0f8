"""ResNet-18 as exporters write it: every BatchNorm and ReLU its own node (He et al., arXiv:1512.03385, table 1).

11,689,512 trainable parameters and 9,600 running statistics, as in torchvision; 1.814 G multiply-accumulates per
224×224 image. The shortcut is projected where the shape changes (option B of the paper).
"""

from __future__ import annotations

import onnx

from models.conv_layers import batch_norm, classifier, conv, max_pool
from models.graph_builder import Dim, GraphBuilder

STAGES = ((2, 64, 1), (2, 128, 2), (2, 256, 2), (2, 512, 2))  # blocks, width, stride of the first block
# As in models/resnet50.py: keeps the activations of 8 blocks within one decade.
BRANCH_SCALE = 0.5


def build_resnet18(*, seed: int = 0, batch: Dim = "N", image: int = 224, has_weights: bool = True) -> onnx.ModelProto:
    """ResNet-18 with random weights: ``input`` float32 (batch, 3, 224, 224) to ``output`` (batch, 1000)."""
    builder = GraphBuilder("resnet18", seed=seed, has_weights=has_weights)
    x = conv(builder, "input", "conv1", (64, 3, 7, 7), stride=2)
    x = builder.node("Relu", [batch_norm(builder, x, "bn1", 64)], "relu")
    x = max_pool(builder, x, "maxpool", 3, 2, pad=1)
    channels = 64
    for stage, (blocks, width, stride) in enumerate(STAGES, start=1):
        for block in range(blocks):
            path = f"layer{stage}/layer{stage}.{block}"
            x = _basic_block(builder, x, path, channels, width, stride if block == 0 else 1)
            channels = width
    return classifier(builder, x, "fc", channels, (batch, 3, image, image))


def _basic_block(builder: GraphBuilder, x: str, path: str, channels: int, width: int, stride: int) -> str:
    """Two 3×3 (the first strided), plus the shortcut, projected where the shape changes."""
    y = conv(builder, x, f"{path}/conv1", (width, channels, 3, 3), stride=stride)
    y = builder.node("Relu", [batch_norm(builder, y, f"{path}/bn1", width)], f"{path}/relu")
    y = conv(builder, y, f"{path}/conv2", (width, width, 3, 3))
    y = batch_norm(builder, y, f"{path}/bn2", width, scale=BRANCH_SCALE)
    if stride != 1 or channels != width:
        down = f"{path}/downsample/downsample"
        x = conv(builder, x, f"{down}.0", (width, channels, 1, 1), stride=stride)
        x = batch_norm(builder, x, f"{down}.1", width)
    return builder.node("Relu", [builder.node("Add", [y, x], path)], f"{path}/relu_1")

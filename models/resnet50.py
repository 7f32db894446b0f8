"""ResNet-50 v1.5 as exporters write it: every BatchNorm and ReLU its own node (He et al., arXiv:1512.03385, table 1).

v1.5 puts the stride of a down-sampling block into its 3×3 convolution, as torchvision and the MLPerf reference do.
25,557,032 trainable parameters and 53,120 running statistics; 4.089 G multiply-accumulates per 224×224 image.
"""

from __future__ import annotations

import numpy as np
import onnx

from models.graph_builder import FLOAT, GraphBuilder, dotted

STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, bottleneck width, stride of the first block
EXPANSION = 4
CLASSES = 1000
# Every block adds its branch to the shortcut, so the variance grows by (1 + scale²) a block: 1.25**16 ≈ 35
# keeps the activations of 16 blocks within one decade. A scale of 1 would let them grow by 2**16.
BRANCH_SCALE = 0.5


def build_resnet50(*, seed: int = 0, batch: int | str = "N", image: int = 224) -> onnx.ModelProto:
    """Build the model: ``input`` float32 (batch, 3, image, image) to ``output`` float32 (batch, 1000)."""
    builder = GraphBuilder("resnet50", seed=seed)
    x = _conv_bn(builder, "input", "", "conv1", "bn1", (64, 3, 7, 7), stride=2)
    x = builder.node("Relu", [x], "relu")
    x = builder.node("MaxPool", [x], "maxpool", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    channels = 64
    for stage, (blocks, width, stride) in enumerate(STAGES, start=1):
        for block in range(blocks):
            path = f"layer{stage}/layer{stage}.{block}"
            x = _bottleneck(builder, x, path, channels, width, stride if block == 0 else 1)
            channels = width * EXPANSION
    x = builder.node("GlobalAveragePool", [x], "avgpool")
    x = builder.node("Flatten", [x], "", axis=1)
    weight = builder.he_normal("fc.weight", (CLASSES, channels))
    bias = builder.weight("fc.bias", np.zeros(CLASSES, np.float32))
    builder.node("Gemm", [x, weight, bias], "fc", output="output", alpha=1.0, beta=1.0, transB=1)
    return builder.model({"input": (FLOAT, (batch, 3, image, image))}, {"output": (FLOAT, (batch, CLASSES))})


def _bottleneck(builder: GraphBuilder, x: str, path: str, channels: int, width: int, stride: int) -> str:
    """1×1 reduce, 3×3 (strided), 1×1 expand, plus the shortcut, projected where the shape changes."""
    wide = width * EXPANSION
    branch = _conv_bn(builder, x, path, "conv1", "bn1", (width, channels, 1, 1))
    branch = builder.node("Relu", [branch], f"{path}/relu")
    branch = _conv_bn(builder, branch, path, "conv2", "bn2", (width, width, 3, 3), stride=stride)
    branch = builder.node("Relu", [branch], f"{path}/relu_1")
    branch = _conv_bn(builder, branch, path, "conv3", "bn3", (wide, width, 1, 1), scale=BRANCH_SCALE)
    if stride != 1 or channels != wide:
        x = _conv_bn(
            builder,
            x,
            path,
            "downsample/downsample.0",
            "downsample/downsample.1",
            (wide, channels, 1, 1),
            stride=stride,
        )
    x = builder.node("Add", [branch, x], path)
    return builder.node("Relu", [x], f"{path}/relu_2")


def _conv_bn(
    builder: GraphBuilder,
    x: str,
    path: str,
    conv: str,
    norm: str,
    shape: tuple[int, int, int, int],
    *,
    stride: int = 1,
    scale: float = 1.0,
) -> str:
    """Bias-free convolution with padding that keeps the size at stride 1, then BatchNorm with seeded statistics."""
    conv_path, norm_path = (f"{path}/{name}".lstrip("/") for name in (conv, norm))
    weight = builder.he_normal(f"{dotted(conv_path)}.weight", shape)
    kernel = shape[2]
    y = builder.node(
        "Conv",
        [x, weight],
        conv_path,
        dilations=[1, 1],
        group=1,
        kernel_shape=[kernel] * 2,
        pads=[kernel // 2] * 4,
        strides=[stride] * 2,
    )
    count, random = shape[0], builder.random
    statistics = {
        "weight": scale * random.uniform(0.9, 1.1, count),
        "bias": random.normal(0.0, 0.1, count),
        "running_mean": random.normal(0.0, 0.1, count),
        "running_var": random.uniform(0.9, 1.1, count),
    }
    names = [
        builder.weight(f"{dotted(norm_path)}.{key}", value.astype(np.float32)) for key, value in statistics.items()
    ]
    return builder.node("BatchNormalization", [y, *names], norm_path, epsilon=1e-5, momentum=0.9)

"""ResNet-8 in int8 as quantizers write it: QuantizeLinear and DequantizeLinear around every operator (QDQ).

The network is the image classifier of MLPerf Tiny (Banbury et al., arXiv:2106.07597): 3×32×32 to 10 classes, three
stages of one residual block with 16, 32 and 64 channels, 12.5 M multiply-accumulates, BatchNorm folded. Scales follow
from the variances that seeded He weights keep, instead of from a calibration. Weights have a scale per channel; the
zero point of what a ReLU wrote is -128.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from models.graph_builder import FLOAT, Dim, GraphBuilder, dotted

CHANNELS, IMAGE, CLASSES = 3, 32, 10
STAGES = ((16, 1), (32, 2), (64, 2))  # width, stride of the first convolution
OPSET = 13  # the first whose DequantizeLinear has an axis
SPREAD = 4.0  # standard deviations that the range of a tensor spans on each side
BRANCH_SHARE = 0.5  # of the branch in the variance of a block: activations grow slowly


@dataclass(frozen=True)
class Quantized:
    """A tensor after DequantizeLinear: its name, the mean of its squares, its channels, its scale."""

    name: str
    mean_square: float
    channels: int
    scale: float


def build_tiny_resnet8(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """ResNet-8 in int8 (QDQ): ``input`` float32 (batch, 3, 32, 32) to ``output`` (batch, 10)."""
    builder = GraphBuilder("tiny-resnet8", seed=seed)
    x = _quantized(builder, "input", "input", 1.0, CHANNELS)
    x = _convolution(builder, x, "stem", STAGES[0][0], 3, has_relu=True)
    for index, (width, stride) in enumerate(STAGES, start=1):
        x = _block(builder, x, f"stage{index}", width, stride)
    pooled = builder.node("GlobalAveragePool", [x.name], "pool")
    x = _quantized(builder, pooled, "pool", x.mean_square, x.channels, is_positive=True)
    x = Quantized(builder.node("Flatten", [x.name], "pool", axis=1), x.mean_square, x.channels, x.scale)
    operands = _weights(builder, x, "head", (CLASSES, x.channels))
    sums = builder.node("Gemm", [x.name, *operands], "head", transB=1)
    _quantized(builder, sums, "head", 2 * x.mean_square, CLASSES, output="output")
    image: tuple[Dim, ...] = (batch, CHANNELS, IMAGE, IMAGE)
    return builder.model({"input": (FLOAT, image)}, {"output": (FLOAT, (batch, CLASSES))}, opset=OPSET)


def _block(builder: GraphBuilder, x: Quantized, path: str, width: int, stride: int) -> Quantized:
    """Two 3×3 convolutions plus the shortcut, which a 1×1 convolution projects where the shape changes."""
    y = _convolution(builder, x, f"{path}/conv1", width, 3, stride=stride, has_relu=True)
    y = _convolution(builder, y, f"{path}/conv2", width, 3, share=BRANCH_SHARE)
    if stride != 1:
        x = _convolution(builder, x, f"{path}/shortcut", width, 1, stride=stride, share=BRANCH_SHARE)
    mean_square = x.mean_square + y.mean_square
    total = builder.node("Relu", [builder.node("Add", [y.name, x.name], path)], path)
    return _quantized(builder, total, path, mean_square, width, is_positive=True)


def _convolution(
    builder: GraphBuilder,
    x: Quantized,
    path: str,
    width: int,
    kernel: int,
    *,
    stride: int = 1,
    share: float = 1.0,
    has_relu: bool = False,
) -> Quantized:
    """Add a convolution with bias; ``share`` of the variance that He weights would keep."""
    operands = _weights(builder, x, path, (width, x.channels, kernel, kernel), share)
    pads, strides = [kernel // 2] * 4, [stride] * 2
    sums = builder.node("Conv", [x.name, *operands], path, kernel_shape=[kernel] * 2, pads=pads, strides=strides)
    if has_relu:
        sums = builder.node("Relu", [sums], path)
    mean_square = 2 * share * x.mean_square / (2 if has_relu else 1)
    return _quantized(builder, sums, path, mean_square, width, is_positive=has_relu)


def _weights(
    builder: GraphBuilder, x: Quantized, path: str, shape: tuple[int, ...], share: float = 1.0
) -> tuple[str, str]:
    """Add int8 weights with a scale per channel and an int32 bias at the scale of the sums; both dequantized."""
    deviation = np.sqrt(2.0 * share / np.prod(shape[1:]))
    values = builder.random.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
    scales = (np.abs(values).reshape(shape[0], -1).max(axis=1) / 127).astype(np.float32)
    whole = np.rint(values / scales.reshape(-1, *[1] * (len(shape) - 1))).astype(np.int8)
    weight = _dequantized(builder, f"{path}/weight", whole, scales)
    bias = builder.random.normal(0.0, 0.1, shape[0])
    sum_scales = (scales * np.float32(x.scale)).astype(np.float32)
    return weight, _dequantized(builder, f"{path}/bias", np.rint(bias / sum_scales).astype(np.int32), sum_scales)


def _dequantized(builder: GraphBuilder, path: str, values: np.ndarray, scales: np.ndarray) -> str:
    """Add a constant per channel, and its DequantizeLinear."""
    name = dotted(path)
    constants = {"quantized": values, "scale": scales, "zero_point": np.zeros(len(scales), values.dtype)}
    names = [builder.weight(f"{name}_{key}", value) for key, value in constants.items()]
    return builder.node("DequantizeLinear", names, path, axis=0)


def _quantized(
    builder: GraphBuilder,
    x: str,
    path: str,
    mean_square: float,
    channels: int,
    *,
    is_positive: bool = False,
    output: str | None = None,
) -> Quantized:
    """Add QuantizeLinear and DequantizeLinear of a tensor whose squares have this mean."""
    deviation = np.sqrt(mean_square * (2 if is_positive else 1))  # of what the ReLU read
    scale = SPREAD * deviation / (255 if is_positive else 127)
    constants = {"scale": np.float32(scale), "zero_point": np.int8(-128 if is_positive else 0)}
    names = [builder.weight(f"{dotted(path)}.output_{key}", np.array(value)) for key, value in constants.items()]
    whole = builder.node("QuantizeLinear", [x, *names], path)
    name = builder.node("DequantizeLinear", [whole, *names], path, output=output)
    return Quantized(name, mean_square, channels, float(np.float32(scale)))

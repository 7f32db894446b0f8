"""Networks that others published times of, without weights: those of models/, and variants that only others have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import onnx

from models.classifiers.conv_layers import batch_norm, classifier, conv, max_pool
from models.classifiers.inception_v1 import build_inception_v1
from models.classifiers.mobilenet_v1 import BLOCKS as MOBILENET_BLOCKS
from models.classifiers.mobilenet_v1 import STEM, build_mobilenet_v1
from models.classifiers.resnet import build_resnet18, build_resnet50
from models.classifiers.squeezenet import build_squeezenet
from models.classifiers.vgg16 import build_vgg16
from models.graph_builder import GraphBuilder

IMAGE = 224
# Inverted residuals of MobileNet v2 (Sandler et al., arXiv:1801.04381, table 2): expansion, channels, blocks, stride.
INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
VGG19 = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))
WIDTHS = (64, 128, 256, 512)  # of a ResNet's bottlenecks
# Channels of Darknet-19's convolutions between its pools; every second one has a window of 1.
DARKNET = ((32,), (64,), (128, 64, 128), (256, 128, 256), (512, 256, 512, 256, 512), (1024, 512, 1024, 512, 1024))
# CaffeNet (Krizhevsky et al., NIPS 2012): channels, window, stride, padding, groups, whether a pool follows.
ALEXNET = (
    (96, 11, 4, 0, 1, True),
    (256, 5, 1, 2, 2, True),
    (384, 3, 1, 1, 1, False),
    (384, 3, 1, 1, 2, False),
    (256, 3, 1, 1, 2, True),
)


def _unit(
    builder: GraphBuilder,
    x: str,
    path: str,
    shape: tuple[int, int, int, int],
    *,
    stride: int = 1,
    groups: int = 1,
    has_relu: bool = True,
) -> str:
    y = batch_norm(builder, conv(builder, x, path, shape, stride=stride, groups=groups), f"{path}/bn", shape[0])
    return builder.node("Relu", [y], f"{path}/relu") if has_relu else y


def _resnet(blocks: tuple[int, int, int, int], *, strides_last: bool) -> onnx.ModelProto:
    """ResNet v1 of bottlenecks with the stride in the 1×1 of the first block, or as TF-slim in the 3×3 of the last."""
    builder = GraphBuilder("resnet", has_weights=False)
    x = _unit(builder, "input", "stem", (64, 3, 7, 7), stride=2)
    x, channels = max_pool(builder, x, "stem/pool", 3, 2, pad=1), 64
    for stage, (count, width) in enumerate(zip(blocks, WIDTHS, strict=True)):
        strided = stage < len(blocks) - 1 if strides_last else stage > 0
        for block in range(count):
            stride = 2 if strided and block == (count - 1 if strides_last else 0) else 1
            strides = (1, stride) if strides_last else (stride, 1)
            x = _bottleneck(builder, x, f"s{stage}/b{block}", channels, width, strides)
            channels = 4 * width
    return classifier(builder, x, "fc", channels, (1, 3, IMAGE, IMAGE))


def _bottleneck(builder: GraphBuilder, x: str, path: str, channels: int, width: int, strides: tuple[int, int]) -> str:
    y = _unit(builder, x, f"{path}/reduce", (width, channels, 1, 1), stride=strides[0])
    y = _unit(builder, y, f"{path}/conv", (width, width, 3, 3), stride=strides[1])
    y = _unit(builder, y, f"{path}/expand", (4 * width, width, 1, 1), has_relu=False)
    stride = strides[0] * strides[1]
    if channels != 4 * width:
        x = _unit(builder, x, f"{path}/shortcut", (4 * width, channels, 1, 1), stride=stride, has_relu=False)
    elif stride > 1:
        x = max_pool(builder, x, f"{path}/subsample", 1, stride)
    return builder.node("Relu", [builder.node("Add", [y, x], path)], f"{path}/relu")


def _mobilenet_v1(share: float, image: int) -> onnx.ModelProto:
    builder = GraphBuilder("mobilenet_v1", has_weights=False)
    channels = int(STEM * share)
    x = _unit(builder, "input", "stem", (channels, 3, 3, 3), stride=2)
    for number, (full, stride) in enumerate(MOBILENET_BLOCKS):
        width = int(full * share)
        x = _unit(builder, x, f"b{number}/depthwise", (channels, 1, 3, 3), stride=stride, groups=channels)
        x = _unit(builder, x, f"b{number}/pointwise", (width, channels, 1, 1))
        channels = width
    return classifier(builder, x, "fc", channels, (1, 3, image, image))


def _mobilenet_v2(share: float) -> onnx.ModelProto:
    builder = GraphBuilder("mobilenet_v2", has_weights=False)
    channels = _of_eight(32 * share)
    x = _unit(builder, "input", "stem", (channels, 3, 3, 3), stride=2)
    for stage, (expansion, full, count, first) in enumerate(INVERTED):
        width = _of_eight(full * share)
        for block in range(count):
            stride = first if block == 0 else 1
            x = _inverted(builder, x, f"s{stage}/b{block}", (channels, expansion * channels, width), stride)
            channels = width
    last = _of_eight(1280 * max(1.0, share))
    x = _unit(builder, x, "last", (last, channels, 1, 1))
    return classifier(builder, x, "fc", last, (1, 3, IMAGE, IMAGE))


def _inverted(builder: GraphBuilder, x: str, path: str, sizes: tuple[int, int, int], stride: int) -> str:
    channels, wide, width = sizes
    y = _unit(builder, x, f"{path}/expand", (wide, channels, 1, 1)) if wide != channels else x
    y = _unit(builder, y, f"{path}/depthwise", (wide, 1, 3, 3), stride=stride, groups=wide)
    y = _unit(builder, y, f"{path}/project", (width, wide, 1, 1), has_relu=False)
    return builder.node("Add", [x, y], path) if stride == 1 and channels == width else y


def _alexnet() -> onnx.ModelProto:
    """CaffeNet's five convolutions on 227 × 227 pixels, two of them in two groups; a mean replaces its classifier."""
    builder = GraphBuilder("alexnet", has_weights=False)
    x, channels = "input", 3
    for number, (width, window, stride, pad, groups, is_pooled) in enumerate(ALEXNET):
        path = f"conv{number + 1}"
        x = conv(builder, x, path, (width, channels // groups, window, window), stride=stride, pad=pad, groups=groups)
        x, channels = builder.node("Relu", [x], f"{path}/relu"), width
        x = max_pool(builder, x, f"{path}/pool", 3, 2) if is_pooled else x
    return classifier(builder, x, "fc", channels, (1, 3, 227, 227))


def _resnet20() -> onnx.ModelProto:
    """ResNet v2 of depth 20 for CIFAR-10 as in Keras' example: three stages of two bottlenecks."""
    builder = GraphBuilder("resnet20", has_weights=False)
    x, channels, narrow = _unit(builder, "input", "stem", (16, 3, 3, 3)), 16, 16
    for stage in range(3):
        wide = 64 if stage == 0 else 2 * channels
        for block in range(2):
            stride, path = (2 if stage and not block else 1), f"s{stage}/b{block}"
            y = _unit(builder, x, f"{path}/reduce", (narrow, channels, 1, 1), stride=stride)
            y = _unit(builder, y, f"{path}/conv", (narrow, narrow, 3, 3))
            y = conv(builder, y, f"{path}/expand", (wide, narrow, 1, 1))
            if not block:
                x = conv(builder, x, f"{path}/shortcut", (wide, channels, 1, 1), stride=stride)
            x, channels = builder.node("Add", [y, x], path), wide
        narrow = wide
    return classifier(builder, x, "fc", channels, (1, 3, 32, 32))


def _yolov2() -> onnx.ModelProto:
    """YOLOv2 for COCO on 416 × 416 pixels (Redmon, Farhadi, CVPR 2017; darknet's yolov2.cfg), without its decoding."""
    builder = GraphBuilder("yolov2", has_weights=False)
    x, before, channels = "input", "input", 3
    for stage, widths in enumerate(DARKNET):
        if stage:
            x, before = max_pool(builder, x, f"s{stage}/pool", 2, 2), x
        for number, width in enumerate(widths):
            window = 1 if number % 2 else 3
            x, channels = _unit(builder, x, f"s{stage}/c{number}", (width, channels, window, window)), width
    for number in range(2):
        x = _unit(builder, x, f"head/c{number}", (1024, 1024, 3, 3))
    passed = _unit(builder, before, "pass", (64, 512, 1, 1))
    x = builder.node("Concat", [builder.node("SpaceToDepth", [passed], "pass", blocksize=2), x], "head", axis=1)
    x = _unit(builder, x, "head/c2", (1024, 1280, 3, 3))
    x = conv(builder, x, "head/boxes", (425, 1024, 1, 1))
    return classifier(builder, x, "fc", 425, (1, 3, 416, 416))


def _of_eight(channels: float) -> int:
    return max(8, int(channels + 4) // 8 * 8)


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "alexnet": _alexnet,
    "resnet20-cifar": _resnet20,
    "yolov2": _yolov2,
    "resnet18": partial(build_resnet18, batch=1, has_weights=False),
    "vgg16": partial(build_vgg16, batch=1, has_weights=False),
    "vgg19": partial(build_vgg16, batch=1, has_weights=False, stages=VGG19),
    "mobilenet-v1": partial(build_mobilenet_v1, batch=1, has_weights=False),
    "mobilenet-v1-0.5": partial(_mobilenet_v1, 0.5, 160),
    "mobilenet-v1-0.25": partial(_mobilenet_v1, 0.25, 128),
    "mobilenet-v2": partial(_mobilenet_v2, 1.0),
    "mobilenet-v2-1.4": partial(_mobilenet_v2, 1.4),
    "inception-v1": partial(build_inception_v1, batch=1, has_weights=False),
    "squeezenet": partial(build_squeezenet, batch=1, has_weights=False),
    "resnet50": partial(build_resnet50, batch=1),
    "resnet50-v1": partial(_resnet, (3, 4, 6, 3), strides_last=False),
    "resnet50-slim": partial(_resnet, (3, 4, 6, 3), strides_last=True),
    "resnet101-v1": partial(_resnet, (3, 4, 23, 3), strides_last=False),
    "resnet101-slim": partial(_resnet, (3, 4, 23, 3), strides_last=True),
    "resnet152-slim": partial(_resnet, (3, 8, 36, 3), strides_last=True),
}

ARCHITECTURES = ("alexnet", "inception", "mobilenet-v1", "mobilenet-v2", "resnet", "squeezenet", "vgg")


def architecture(network: str) -> str:
    """Return the family of a network: those of one architecture, whatever their depth and width, err alike."""
    return next(name for name in ARCHITECTURES if network.startswith(name))

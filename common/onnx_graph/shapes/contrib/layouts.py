"""Convolution and pooling in other layouts: channels last, and the blocked layout of the CPU provider (NCHWc).

Blocked tensors are declared as N×C×H×W with C padded to a whole number of blocks.
"""

from __future__ import annotations

from functools import partial

from common.graphs.graph import Dim, Shape
from common.graphs.operators import MICROSOFT, NCHWC, NHWC
from common.onnx_graph.shapes.contrib.as_onnx import Likeness, infer_as
from common.onnx_graph.shapes.contrib.registry import (
    OperatorCall,
    Output,
    UnfitError,
    as_tuple,
    product,
    rule,
    whole_numbers,
)

BLOCKS = (8, 16)  # channels in a block: AVX2, AVX-512 and NEON


def channels_first(shape: Shape) -> Shape:
    """Turn N×…×C into N×C×…."""
    return (shape[0], shape[-1], *shape[1:-1]) if shape is not None and len(shape) > 2 else shape


def channels_last(shape: Shape) -> Shape:
    """Turn N×C×… into N×…×C."""
    return (shape[0], *shape[2:], shape[1]) if shape is not None and len(shape) > 2 else shape


def _channels_last(call: OperatorCall, likeness: Likeness, *, is_optional: bool = False) -> list[Output]:
    """Infer as the ONNX operator between two transpositions; weights keep ONNX's layout.

    Where that is optional, an attribute decides the layout.
    """
    if is_optional and not call.attribute("channels_last", 0):
        return infer_as(call, likeness)
    outputs = infer_as(call, likeness, shapes={0: channels_first(call.shape(0))})
    return [output and (output[0], channels_last(output[1])) for output in outputs]


# op_type -> the ONNX operator, its operands
ALWAYS_LAST = {
    "NhwcConv": Likeness("Conv", (0, 1)),
    "NhwcFusedConv": Likeness("Conv", (0, 1)),
    "NhwcMaxPool": Likeness("MaxPool", (0,)),
}
OPTIONALLY_LAST = {
    "QLinearAveragePool": Likeness("AveragePool", (0,)),
    "QLinearConv": Likeness("QLinearConv", typed_by=7),
    "QLinearGlobalAveragePool": Likeness("GlobalAveragePool", (0,)),
}
# ONNX operators that the layout transformation rewrites: first operand and first output have channels last.
LAYOUT_SENSITIVE = (
    *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool"),
    *("GlobalLpPool", "GlobalMaxPool", "InstanceNormalization", "LRN", "LpPool", "MaxPool", "SpaceToDepth"),
    *("QLinearConv", "QLinearAveragePool"),
)

for _op_type, _likeness in ALWAYS_LAST.items():
    rule(_op_type)(partial(_channels_last, likeness=_likeness))
for _op_type, _likeness in OPTIONALLY_LAST.items():
    rule(_op_type)(partial(_channels_last, likeness=_likeness, is_optional=True))
for _op_type in LAYOUT_SENSITIVE:
    rule(_op_type, domains=(NHWC,))(partial(_channels_last, likeness=OPTIONALLY_LAST.get(_op_type, Likeness(_op_type))))


@rule("Conv", domains=(NCHWC,))
@rule("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", domains=(NCHWC,))
def blocked(call: OperatorCall) -> list[Output]:
    """Infer as the ONNX operator of that name; a convolution's channels are those of its padded weights."""
    return infer_as(call, Likeness(call.node.op_type, (0, 1)))


@rule("ReorderInput", domains=(NCHWC,))
def reorder_input(call: OperatorCall) -> list[Output]:
    """Pad the channels to whole blocks.

    The processor decides between blocks of 8 and of 16; the channels are known where both give the same number.
    """
    shape = channels_first(call.shape(0)) if call.attribute("channels_last", 0) else call.shape(0)
    if shape is None:
        return [(call.element_type(0), None)]
    if len(shape) < 3:
        raise UnfitError
    batch, channels, *extent = shape
    fewest, most = (None if channels is None else -(-channels // block) * block for block in BLOCKS)
    return [(call.element_type(0), (batch, most if call.bounded or fewest == most else None, *extent))]


@rule("ReorderOutput", domains=(NCHWC,))
def reorder_output(call: OperatorCall) -> list[Output]:
    """Leave the blocked layout; the attribute ``channels`` is the number of channels without padding."""
    batch, _, height, width = call.dims(0, 4)
    shape: Shape = (batch, call.integer("channels"), height, width)
    return [(call.element_type(0), channels_last(shape) if call.attribute("channels_last", 0) else shape)]


@rule("Upsample", domains=(NCHWC,))
def upsample(call: OperatorCall) -> list[Output]:
    """Multiply each axis by its whole scale."""
    shape = call.shape(0)
    scales = call.integers("scales")
    if shape is None or len(scales) != len(shape):
        return [(call.element_type(0), shape if not scales else None)]
    return [(call.element_type(0), tuple(product(dim, scale) for dim, scale in zip(shape, scales, strict=True)))]


@rule("ConvTransposeWithDynamicPads", domains=(MICROSOFT,))
def conv_transpose_with_dynamic_pads(call: OperatorCall) -> list[Output]:
    """Infer as ConvTranspose with the pads of operand 2; without their value the extents are unknown."""
    shape, pads = call.shape(0), call.value(2)
    if shape is None:
        return [call.same(0)]
    named = {a.name for a in call.node.attribute} - {"pads"}
    attributes = {name: call.attribute(name) for name in named}
    if pads is not None:
        attributes["pads"] = whole_numbers(pads)
    outputs = infer_as(call, Likeness("ConvTranspose", (0, 1)), attributes=attributes)
    if pads is not None or not call.has(2):
        return outputs
    unknown: tuple[Dim, ...] = (None,) * (len(shape) - 2)
    return [output and (output[0], output[1] and output[1][:2] + unknown) for output in outputs]


@rule("CropAndResize")
def crop_and_resize(call: OperatorCall) -> list[Output]:
    """Return one crop of the size that operand 3 names for each region of interest."""
    _, channels, _, _ = call.dims(0, 4)
    regions, _ = call.dims(1, 2)
    return [(call.element_type(0), (regions, channels, *as_tuple(call.value(3), 2)))]

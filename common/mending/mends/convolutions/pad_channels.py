"""Channels that keep a convolution out of the runtime's blocked layout are padded with zeros.

The runtime blocks a convolution only if the channels that it reads are a multiple of 4, or fewer than a block; a
depthwise one only if they are a multiple of the block (onnxruntime/core/optimizer/nchwc_transformer.cc). The padded
channels have filters of zeros, and filters that read them have zeros there. So the outputs stay the same sums.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from common.mending.rewrite import Edit, NoMend, fresh, mend_of
from common.mending.view import ACTIVATIONS, Array, View, attribute, is_standard, operand

ALIGNMENT, BLOCK = 4, 16  # channels; the larger block suits both widths of vectors
LEAST_FILLED_SHARE = 0.8  # the runtime computes whole blocks: at 17 of 32 channels, padding was slower when measured
LEAST_CHANNELS = 8  # the smaller block: with fewer channels the runtime reads the plain layout
# Operators that keep channels apart and make no zero infinite.
APART = ACTIVATIONS | {"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity", "MaxPool"}
SUMS = frozenset(["Add", "Mul", "Sub"])


@dataclass
class SharedChannels:
    """Tensors that have the same channels, and the convolutions that write, read or pass them."""

    tensors: set[str] = field(default_factory=set)
    writers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    readers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    depthwise: dict[str, onnx.NodeProto] = field(default_factory=dict)


@mend_of("Conv")
def pad_channels(view: View, conv: onnx.NodeProto) -> Edit | NoMend:
    shape = view.shape(conv.input[0])
    channels = shape[1] if shape is not None and len(shape) == 4 else None
    if channels is None:
        return NoMend("the channels that it reads are unknown")
    shared = SharedChannels()
    reason = _spread(view, conv.input[0], channels, shared)
    multiple = BLOCK if shared.depthwise else ALIGNMENT
    if channels % multiple == 0 or channels < LEAST_CHANNELS:
        return NoMend(f"the runtime takes {channels} channels into its blocked layout")
    if channels < LEAST_FILLED_SHARE * BLOCK * -(-channels // BLOCK):
        return NoMend(f"{channels} channels would fill their blocks of {BLOCK} badly, which takes longer")
    return NoMend(reason) if reason else _edit(view, shared, channels, -channels % multiple)


def _spread(view: View, start: str, channels: int, shared: SharedChannels) -> str:
    """Collect the tensors with the same channels; return why they cannot be padded, or nothing."""
    waiting = [start]
    while waiting:
        tensor = waiting.pop()
        if tensor in shared.tensors:
            continue
        shared.tensors.add(tensor)
        writer = view.writers.get(tensor)
        if writer is None or tensor in view.returned:
            return "an input or an output of the model has these channels"
        for node in (writer, *view.readers.get(tensor, ())):
            more = _role(view, node, tensor, channels, shared)
            if more is None:
                return f"{node.op_type} has these channels, too, and cannot be padded"
            waiting += more
    return ""


def _role(view: View, node: onnx.NodeProto, tensor: str, channels: int, shared: SharedChannels) -> list[str] | None:
    """Enter what a node does with the channels; return more tensors that have them, or None where it mixes them."""
    if is_standard(node, "Conv"):
        return _role_of_conv(view, node, tensor, channels, shared)
    if is_standard(node, *APART) and len(node.output) == 1:
        is_apart = all(view.number(name) is not None for name in node.input[1:] if name)
        return [node.input[0], node.output[0]] if is_apart else None
    if is_standard(node, *SUMS):
        varied = [name for name in node.input if (held := view.constant(name)) is None or held.size > 1]
        shapes = [view.shape(name) for name in varied]
        is_alike = all(shape is not None and len(shape) == 4 and shape[1] == channels for shape in shapes)
        return [*varied, node.output[0]] if is_alike else None
    return None


def _role_of_conv(
    view: View, node: onnx.NodeProto, tensor: str, channels: int, shared: SharedChannels
) -> list[str] | None:
    weight, bias = view.constant(node.input[1]), view.constant(name) if (name := operand(node, 2)) else np.zeros(0)
    if weight is None or bias is None or tensor in node.input[1:]:
        return None
    groups = attribute(node, "group", 1)
    if groups == channels and len(weight) == channels and weight.shape[1] == 1 and groups > 1:
        shared.depthwise[node.name] = node
        return [node.input[0], node.output[0]]
    if groups > 1:
        return None
    if tensor == node.input[0]:
        shared.readers[node.name] = node
    if tensor in node.output:
        shared.writers[node.name] = node
    return []


def _edit(view: View, shared: SharedChannels, channels: int, more: int) -> Edit:
    convs = {**shared.writers, **shared.readers, **shared.depthwise}
    added: list[onnx.NodeProto] = []
    weights: dict[str, Array] = {}
    for name, node in convs.items():
        is_wider = name in shared.writers or name in shared.depthwise
        filters, inputs = more * is_wider, more * (name in shared.readers)
        copy = deepcopy(node)
        weight, bias = numpy_helper.to_array(view.constants[node.input[1]]), view.constant(operand(node, 2))
        space = [(0, 0)] * (weight.ndim - 2)
        copy.input[1] = fresh(view, f"{name}/padded_weight")
        weights[copy.input[1]] = np.pad(weight, [(0, filters), (0, inputs), *space])
        if bias is not None:
            copy.input[2] = fresh(view, f"{name}/padded_bias")
            weights[copy.input[2]] = np.pad(bias, (0, filters))
        if name in shared.depthwise:
            kept = [attribute for attribute in copy.attribute if attribute.name != "group"]
            del copy.attribute[:]
            copy.attribute.extend([*kept, helper.make_attribute("group", channels + more)])
        added.append(copy)
    return Edit([*convs], added, weights, resized=[*shared.tensors])

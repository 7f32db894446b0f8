"""Operators that say where something is in memory: a part of a tensor is an address, joined tensors are parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import onnx

from common.fpga.rtl.engine.network import EngineTensor, Layout
from common.fpga.rtl.engine.reading import maps
from common.fpga.rtl.engine.reading.reader import HeadOrder, Pending, Reader, name_of

Side = Literal["channels", "lines"]
# The axis of several tensors side by side, and how the heads of one of them are arranged.
SIDE_BY_SIDE: Mapping[HeadOrder, tuple[int, HeadOrder]] = {"chunks": (2, "split"), "piled": (0, "heads")}


def sides_of(reader: Reader, node: onnx.NodeProto, name: str, x: EngineTensor) -> dict[int, Side]:
    """Return which axes of the model's tensor are the channels and the lines in memory."""
    shape, order = reader.shapes.get(name, []), reader.order_of(name)[0]
    if order == "plain" and x.layout == "map":
        if shape == [1, x.channels, x.height, x.width]:
            return {1: "channels", 2: "lines"}
        if shape == [1, x.channels]:
            return {1: "channels"}
    if order in SIDE_BY_SIDE:
        return {SIDE_BY_SIDE[order][0]: "channels"}
    if order == "plain" and x.layout != "map":
        if shape == [1, x.height, x.channels]:
            return {1: "lines", 2: "channels"}
        if shape == [x.height, x.channels]:
            return {0: "lines", 1: "channels"}
    raise reader.refusal(node, "takes apart or joins other than maps, or rows whose heads are together")


def _part(x: EngineTensor, side: Side, first: int, count: int) -> EngineTensor:
    return x.channels_of(first, count) if side == "channels" else x.lines_of(first, count)


def slice_(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Take some channels or lines, which are an address."""
    x, shape = reader.map_at(node), reader.shapes.get(node.input[0], [])
    starts, ends = (
        list(attributes[name]) if name in attributes else reader.constant_at(node, place).tolist()
        for place, name in ((1, "starts"), (2, "ends"))
    )
    axes, steps = list(attributes.get("axes", range(len(starts)))), [1] * len(starts)
    if len(node.input) > 3 and node.input[3]:
        axes = reader.constant_at(node, 3).tolist()
    if len(node.input) > 4 and node.input[4]:
        steps = reader.constant_at(node, 4).tolist()
    sides = sides_of(reader, node, node.input[0], x)
    if reader.order_of(node.input[0])[0] in SIDE_BY_SIDE:
        raise reader.refusal(node, "takes several tensors side by side apart")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        taken = range(*slice(start, end, step).indices(shape[axis % len(shape)]))
        if step == 1 and len(taken) == shape[axis % len(shape)]:
            continue
        if step != 1 or not taken or axis % len(shape) not in sides:
            raise reader.refusal(node, "takes other than some channels or lines one after the other")
        x = _part(x, sides[axis % len(shape)], taken.start, len(taken))
    reader.tensors[node.output[0]] = x


def split(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Take channels or lines apart; each part is an address."""
    x, shape = reader.map_at(node), reader.shapes.get(node.input[0], [])
    axis = attributes.get("axis", 0) % max(len(shape), 1)
    sides = sides_of(reader, node, node.input[0], x)
    if axis not in sides:
        raise reader.refusal(node, "takes apart other than channels or lines")
    is_one_of_several = reader.order_of(node.input[0])[0] in SIDE_BY_SIDE
    unit = x.channels // shape[axis] if is_one_of_several else 1
    if len(node.input) > 1 and node.input[1]:
        sizes = reader.constant_at(node, 1).tolist()
    else:
        most = -(-shape[axis] // len(node.output))
        sizes = attributes.get("split") or [min(most, shape[axis] - most * place) for place in range(len(node.output))]
    for name, first, size in zip(node.output, accumulate([0, *sizes]), sizes, strict=False):
        reader.tensors[name] = _part(x, sides[axis], first * unit, size * unit)
        if node.input[0] in reader.orders:
            reader.orders[name] = reader.orders[node.input[0]]


def gather(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Take one line of rows, such as a class token; or one of several tensors side by side, such as the queries."""
    x, index = reader.map_at(node), reader.constant_at(node, 1)
    shape = reader.shapes.get(node.input[0], [])
    axis = attributes.get("axis", 0) % max(len(shape), 1)
    sides = sides_of(reader, node, node.input[0], x)
    order, heads = reader.order_of(node.input[0])
    if order in SIDE_BY_SIDE and axis in sides and index.ndim == 0:
        width = x.channels // shape[axis]
        reader.tensors[node.output[0]] = x.channels_of(int(index.item()) % shape[axis] * width, width)
        reader.orders[node.output[0]] = SIDE_BY_SIDE[order][1], heads
        return
    if index.size != 1 or x.layout == "map" or len(shape) != 3 or sides.get(axis) != "lines":
        raise reader.refusal(node, "takes other than one line of rows")
    line = x.lines_of(int(index.item()) % x.height, 1)
    reader.tensors[node.output[0]] = line if index.ndim else replace(line, layout="map")


def regroup(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Squeeze or Unsqueeze: the same integers, where the channels and the lines stay what they are."""
    name, shape = node.input[0], reader.shapes.get(node.output[0], [])
    x = reader.tensors.get(name)
    if x is not None and reader.order_of(name)[0] == "plain":
        if (x.height, x.width) == (1, 1) and shape in ([1, x.channels], [1, x.channels, 1, 1]):
            reader.tensors[node.output[0]] = x if x.layout == "map" else replace(x, layout="map")
            return
        if x.width == 1 and shape == [1, x.height, x.channels] and x.layout != "map":
            reader.keep(node.output[0], name)
            return
    (order, heads), before = reader.order_of(name), reader.shapes.get(name, [])
    if x is not None and order in SIDE_BY_SIDE and before[SIDE_BY_SIDE[order][0]] == 1:
        axis, alone = SIDE_BY_SIDE[order]
        if shape == [*before[:axis], *before[axis + 1 :]]:
            reader.tensors[node.output[0]], reader.orders[node.output[0]] = x, (alone, heads)
            return
    maps.flatten(reader, node, attributes)


def concat(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Join channels or lines: each tensor becomes a part of the result."""
    shape = reader.shapes.get(node.output[0], [])
    axis = attributes["axis"] % max(len(shape), 1)
    named = {name: reader.tensors[name] for name in node.input if name in reader.tensors}
    if not named or any(name not in named and name not in reader.weights for name in node.input):
        raise reader.refusal(node, "joins what is no quantized tensor")
    sides = {sides_of(reader, node, name, x).get(axis) for name, x in named.items()}
    layouts = {x.layout == "map" for x in named.values()}
    if any(name in reader.orders and reader.orders[name][0] != "plain" for name in named):
        raise reader.refusal(node, "joins heads")
    if len(sides) > 1 or len(layouts) > 1 or None in sides or len(shape) < 2:
        raise reader.refusal(node, "joins other than channels or lines")
    (side,) = sides
    like = next(iter(named.values()))
    parts = [named[name] if name in named else _constant(reader, node, name, like) for name in node.input]
    reader.pending[node.output[0]] = Pending("joined", (side, parts))


def _constant(reader: Reader, node: onnx.NodeProto, name: str, like: EngineTensor) -> EngineTensor:
    """Return a constant that is joined with a tensor."""
    values, scales = reader.weights[name]
    shape = values.shape
    if len(shape) not in (3, 4) or shape[0] != 1 or (len(shape) == 4) != (like.layout == "map"):
        raise reader.refusal(node, f"joins a constant of {list(shape)}")
    channels, height, width = shape[1:] if like.layout == "map" else (shape[2], shape[1], 1)
    zero, number = maps.constant_format(reader, node, values, scales)
    layout: Layout = "map" if like.layout == "map" else "rows"
    own = f"{name_of(node)}/{name}"
    tensor = EngineTensor(own, channels, height, width, **number, layout=layout)
    reader.added.append((tensor, tensor.arranged(values + zero).astype(np.int8)))
    return tensor


def finish_joined(reader: Reader, node: onnx.NodeProto, pending: Pending, y: EngineTensor) -> None:
    """Copy each tensor into its part, at the scale of the result."""
    side, parts = pending.source
    low, high = maps.limits_of(pending, y)
    sizes = [getattr(part, "channels" if side == "channels" else "height") for part in parts]
    own = name_of(node)
    for place, (part, first, size) in enumerate(zip(parts, accumulate([0, *sizes]), sizes, strict=False)):
        to = _part(y, side, first, size)
        if (to.channels, to.height, to.width) != (part.channels, part.height, part.width):
            raise reader.refusal(node, "joins tensors whose extents do not agree")
        layer = maps.copy_of(own if len(parts) == 1 else f"{own}/{place}", part)
        factors = np.full(part.channels, np.float32(part.scale / y.scale))
        reader.layers.append(replace(layer, y=to, factors=factors, low=low, high=high))


def same(reader: Reader, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
    """Identity, and Dropout of a trained network."""
    name = node.input[0]
    if name in reader.tensors:
        reader.keep(node.output[0], name)
    elif name in reader.pending:
        reader.pending[node.output[0]] = reader.pending[name]
    elif name in reader.weights:
        reader.weights[node.output[0]] = reader.weights[name]
    elif name in reader.constants:
        reader.constants[node.output[0]] = reader.constants[name]
    else:
        raise reader.refusal(node, "reads no quantized tensor")

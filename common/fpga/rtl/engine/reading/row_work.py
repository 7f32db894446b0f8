"""Operators of rows: products of two tensors, heads apart and together, functions, Softmax, LayerNormalization."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from common.fpga.rtl.engine.network import LEAST, MOST, EngineLayer, EngineTensor, Second
from common.fpga.rtl.engine.reading import maps, parts
from common.fpga.rtl.engine.reading.reader import Extents, HeadOrder, Pending, Reader
from common.fpga.rtl.engine.rows import MOST_CHANNELS, RowWork, normalization_work, softmax_work, table_work

Work = Callable[[EngineTensor, EngineTensor], RowWork]  # of what is read and written
LEAST_SOFTMAX_OPSET = 13
EVERY_BYTE = np.arange(LEAST, MOST + 1)
TURNS: Mapping[tuple[HeadOrder, tuple[int, ...]], HeadOrder] = {
    ("split", (0, 2, 1, 3)): "heads",
    ("split", (0, 2, 3, 1)): "turned",
    ("heads", (0, 1, 3, 2)): "turned",
    ("heads", (0, 2, 1, 3)): "split",
    ("plain", (0, 2, 1)): "turned",
    ("turned", (0, 2, 1)): "plain",
    ("chunks", (2, 0, 3, 1, 4)): "piled",
}


# --- heads -----------------------------------------------------------------------------------------------------------


def reshape(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Take the heads of rows apart, or together; or flatten a map, or make its pixels rows that are turned."""
    name, shape = node.input[0], reader.shapes.get(node.output[0], [])
    x = reader.tensors.get(name)
    if x is not None and x.layout == "map" and shape == [1, x.channels, x.height * x.width]:
        # In memory, a map is pixel by pixel, as rows are.
        reader.tensors[node.output[0]] = replace(x, height=x.height * x.width, width=1, layout="rows")
        reader.orders[node.output[0]] = "turned", 1
        return
    if x is None or x.layout == "map":
        parts.regroup(reader, node, attributes)
        return
    order, heads = reader.order_of(name)
    lines, channels = x.height, x.channels
    reader.tensors[node.output[0]] = x
    if order == "plain" and len(shape) == 4 and shape[:2] == [1, lines] and shape[2] * shape[3] == channels:
        reader.orders[node.output[0]] = "split", shape[2]
    elif order == "plain" and len(shape) == 5 and shape[:2] == [1, lines] and math.prod(shape[2:]) == channels:
        reader.orders[node.output[0]] = "chunks", shape[3]
    elif order not in ("plain", "split") or shape not in ([1, lines, channels], [lines, channels]):
        raise reader.refusal(node, f"makes {shape} of {heads} heads of {lines} lines and {channels} channels in all")


def transpose(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    x = reader.map_at(node)
    order, heads = reader.order_of(node.input[0])
    turned = TURNS.get((order, tuple(attributes.get("perm", ()))))
    if turned is None or x.layout == "map":
        raise reader.refusal(node, "transposes other than heads, their lines and their channels")
    reader.tensors[node.output[0]] = x
    reader.orders[node.output[0]] = turned, heads


def matmul(reader: Reader, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
    if node.input[1] not in reader.tensors:
        maps.gemm(reader, node, {})
        return
    operands = [_heads(reader, node, name) for name in node.input]
    (a, a_order, heads), (b, b_order, b_heads) = operands
    is_turned = b_order == "turned"
    if heads != b_heads or a_order == "turned" or "map" in (a.layout, b.layout):
        raise reader.refusal(node, "multiplies tensors whose heads are not those of rows")
    layers = []
    for head in range(heads):
        x, second = _part(a, a_order, head, heads), _part(b, b_order, head, heads)
        name = node.name if heads == 1 else f"{node.name}/{head}"
        layers.append(EngineLayer(name, x, x, second=Second(second, is_turned)))
    depth, channels = (second.channels, second.height) if is_turned else (second.height, second.channels)
    if x.channels != depth:
        raise reader.refusal(node, "multiplies tensors whose extents do not agree")
    extents: Extents = (channels, heads * x.height, 1, "rows")
    if not is_turned:
        extents = heads * channels, x.height, 1, "heads" if heads > 1 else "rows"
    order: HeadOrder = "plain" if heads == 1 else "stacked" if is_turned else "heads"
    source = layers, np.float32(a.scale * b.scale)
    reader.pending[node.output[0]] = Pending("heads", source, extents=extents, order=(order, heads))


def _heads(reader: Reader, node: onnx.NodeProto, name: str) -> tuple[EngineTensor, HeadOrder, int]:
    if name not in reader.tensors:
        raise reader.refusal(node, f"its operand {name} is no quantized tensor")
    order, heads = reader.order_of(name)
    if order == "split":
        raise reader.refusal(node, "multiplies tensors whose heads are behind the lines")
    return reader.tensors[name], order, heads


def _part(tensor: EngineTensor, order: HeadOrder, head: int, heads: int) -> EngineTensor:
    if order == "stacked":
        return tensor.lines_of(head * tensor.height // heads, tensor.height // heads)
    return tensor.channels_of(head * tensor.channels // heads, tensor.channels // heads)


def finish_heads(reader: Reader, node: onnx.NodeProto, pending: Pending, y: EngineTensor) -> None:
    layers, scale = pending.source
    low, high = maps.limits_of(pending, y)
    order: HeadOrder = "stacked" if layers[0].second.is_turned else "heads"
    for head, layer in enumerate(layers):
        part = _part(y, order, head, len(layers))
        factors, bias = np.full(part.channels, np.float32(scale / y.scale)), np.zeros(part.channels, np.int64)
        reader.layers.append(replace(layer, y=part, factors=factors, bias=bias, low=low, high=high))


def mean(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Average over all rows, or over all pixels of a map."""
    x = reader.map_at(node)
    axes = attributes.get("axes") or (reader.constant_at(node, 1).tolist() if len(node.input) > 1 else [])
    rank = len(reader.shapes[node.input[0]])
    averaged = sorted(axis % rank for axis in axes)
    is_plain = reader.order_of(node.input[0])[0] == "plain"
    if averaged != ([2, 3] if x.layout == "map" else [1]) or not is_plain:
        raise reader.refusal(node, f"averages over axes {axes}, and not over all rows or pixels")
    maps.average(reader, node, x, maps.MapWindow.whole(x))


# --- row-wise work ---------------------------------------------------------------------------------------------------


def softmax(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    is_old = reader.opset < LEAST_SOFTMAX_OPSET  # there, it is over the axis and all behind it
    if is_old and reader.map_at(node).layout == "map" and len(reader.shapes[node.input[0]]) > 2:
        raise reader.refusal(node, f"is older than operator set {LEAST_SOFTMAX_OPSET}, and over several axes")

    def work(x: EngineTensor, y: EngineTensor) -> RowWork:
        return softmax_work(float(x.scale), float(y.scale), y.zero)

    _along_rows(reader, node, attributes.get("axis", 1 if is_old else -1), "softmax", work)


def normalization(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    channels = reader.map_at(node).channels
    gamma = _floats(reader, node, 1)
    beta = _floats(reader, node, 2) if len(node.input) > 2 and node.input[2] else np.zeros(1, np.float32)
    if not {gamma.size, beta.size} <= {1, channels}:
        raise reader.refusal(node, f"its scale and bias are not for {channels} channels")
    gamma, beta = (np.broadcast_to(each.reshape(-1), channels) for each in (gamma, beta))

    def work(x: EngineTensor, y: EngineTensor) -> RowWork:
        scales = float(x.scale), float(y.scale)
        return normalization_work(scales, y.zero, gamma, beta, attributes.get("epsilon", 1e-5))

    _along_rows(reader, node, attributes.get("axis", -1), "normalization", work)


def _along_rows(reader: Reader, node: onnx.NodeProto, axis: int, kind: str, work: Work) -> None:
    """Note work on the channels of each line, or, as Softmax may be, on those of each pixel of a map."""
    x, shape = reader.map_at(node), reader.shapes[node.input[0]]
    order = reader.order_of(node.input[0])
    is_map, last = x.layout == "map", len(shape) - 1
    is_whole = shape == [1, x.channels, x.height, x.width][: len(shape)] and x.height * x.width == math.prod(shape[2:])
    # LayerNormalization of a map would be over its columns, too.
    is_along = axis % len(shape) == (1 if is_map else last) and (kind == "softmax" or not is_map or last == 1)
    if order[0] not in ("plain", "stacked") or (is_map and not is_whole) or not is_along:
        raise reader.refusal(node, "works on other than the channels of rows")
    if x.channels > MOST_CHANNELS:
        raise reader.refusal(node, f"works on {x.channels} channels, and at most {MOST_CHANNELS} are computed")
    source, extents = (EngineLayer(node.name, x, x), work), reader.extents_of(node, x, order[0])
    reader.pending[node.output[0]] = Pending(kind, source, extents=extents, order=order)


def finish_rows(reader: Reader, _: onnx.NodeProto, pending: Pending, y: EngineTensor) -> None:
    layer, work = pending.source
    reader.layers.append(replace(layer, y=y, rows=work(layer.x, y)))


def _floats(reader: Reader, node: onnx.NodeProto, place: int) -> NDArray[np.float32]:
    """Return a constant operand, which may be quantized."""
    name = node.input[place]
    if name in reader.weights:
        values, scales = reader.weights[name]
        return (values * scales).astype(np.float32)
    return reader.constant_at(node, place)


# --- functions of one tensor -----------------------------------------------------------------------------------------


def add(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Add two tensors, or a constant for each channel, on the array; else it is a function of one tensor."""
    tensors = [name for name in node.input if name in reader.tensors]
    others = [name for name in node.input if name not in tensors]
    if len(tensors) == 2 or (tensors and reader.weights.get(others[0], [np.zeros(1)])[0].size > 1):
        maps.add(reader, node)
    else:
        function(reader, node, attributes)


def relu(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    _limit(reader, node, attributes, 0.0, np.inf)


def clip(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    names = (*node.input, "", "")[1:3]
    given = [reader.constant_at(node, place).item() if name else None for place, name in enumerate(names, start=1)]
    low, high = given if len(node.input) > 1 else (attributes.get("min"), attributes.get("max"))
    _limit(reader, node, attributes, -np.inf if low is None else low, np.inf if high is None else high)


def _limit(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any], low: float, high: float) -> None:
    """Limit what a layer makes before it is quantized; else it is a function of one tensor."""
    pending = reader.pending.get(node.input[0])
    if pending is None or pending.kind == "function":
        function(reader, node, attributes)
        return
    if pending.kind not in ("sums", "added", "heads", "joined", "multiplied"):
        what = "maximum of a pool" if pending.kind == "maximum" else f"result of a {pending.kind}"
        raise reader.refusal(node, f"limits the {what}")
    least, most = (min(max(each, low), high) for each in pending.limits)
    reader.pending[node.output[0]] = replace(pending, limits=(least, most))


def function(reader: Reader, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
    """Note a function of one tensor by its values for every byte.

    The node may follow on other such functions, quantized or not: all together are one table.
    """
    from onnx.reference import ReferenceEvaluator

    operands = [_operand(reader, node, place) for place, name in enumerate(node.input) if name]
    # The same tensor in another order is another one.
    sources = {(id(source), order): (source, order) for source, order, _ in operands if source is not None}
    if len(sources) == 2 and node.op_type == "Mul" and all(name in reader.tensors for name in node.input):
        maps.multiply(reader, node)
        return
    if len(sources) != 1:
        raise reader.refusal(node, f"is a function of {len(sources)} tensors; those of one are computed")
    ((x, order),) = sources.values()
    feeds = {name: values for name, (_, _, values) in zip(filter(None, node.input), operands, strict=True)}
    with np.errstate(all="ignore"):
        (values,) = ReferenceEvaluator(node).run(None, feeds)
    extents = reader.extents_of(node, x, order[0])
    source = EngineLayer(node.name, x, x), np.asarray(values, np.float32)
    reader.pending[node.output[0]] = Pending("function", source, extents=extents, order=order)


def _operand(reader: Reader, node: onnx.NodeProto, place: int) -> tuple[EngineTensor | None, Any, NDArray[np.float32]]:
    """Return the tensor of which an operand is a function, its order, and its values for every byte."""
    name = node.input[place]
    if name in reader.pending and reader.pending[name].kind == "function":
        layer, values = reader.pending[name].source
        return layer.x, reader.pending[name].order, values
    if name in reader.tensors:
        x = reader.tensors[name]
        source, values = reader.functions.get(x.name) or (x, _floats_of(EVERY_BYTE, x))
        return source, reader.order_of(name), values
    if name in reader.pending:
        raise reader.refusal(node, f"its operand {name} is not quantized")
    constant = _floats(reader, node, place)
    if constant.size != 1:
        raise reader.refusal(node, f"its operand {name} is a constant of several values")
    return None, None, constant.reshape(1)


def _floats_of(whole: NDArray[np.int64], tensor: EngineTensor) -> NDArray[np.float32]:
    return np.asarray((whole - tensor.zero).astype(np.float32) * tensor.scale)


def finish_function(reader: Reader, node: onnx.NodeProto, pending: Pending, y: EngineTensor) -> None:
    layer, values = pending.source
    if not np.all(np.isfinite(values)):
        raise reader.refusal(node, f"quantizes {layer.node}, which is no number for some values of its operand")
    whole = np.clip(np.rint(values / y.scale) + y.zero, LEAST, MOST).astype(np.int64)
    reader.functions[y.name] = layer.x, _floats_of(whole, y)
    reader.layers.append(replace(layer, y=y, rows=table_work(whole)))

"""Operators of maps and products: convolutions, pools, limits and additions, and the layers that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from common.fpga.rtl.engine.network import LEAST, MOST, EngineLayer, EngineTensor, Residual
from common.fpga.rtl.engine.reading.reader import BIAS_TOLERANCE, Extents, Pending, Reader


def conv(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    _refuse_other_windows(reader, node, attributes)
    x, (weights, scales) = _operands(reader, node)
    if weights.ndim != 4:
        raise reader.refusal(node, "is no convolution of maps")
    strides, pads = attributes.get("strides", [1, 1]), attributes.get("pads", [0] * 4)
    layer = EngineLayer(
        *(node.name, x, x, weights.shape[2:], tuple(strides), tuple(pads[:2]), weights.astype(np.int8)),
        groups=attributes.get("group", 1),
    )
    _sums(reader, node, layer, scales)


def _refuse_other_windows(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    if set(attributes.get("dilations", [1])) != {1} or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise reader.refusal(node, "has dilations or automatic pads")


def gemm(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    if attributes.get("transA") or {attributes.get("alpha", 1.0), attributes.get("beta", 1.0)} != {1.0}:
        raise reader.refusal(node, "scales or transposes its operands")
    x, (weights, scales) = _operands(reader, node)
    is_rows = x.layout != "map" and node.input[0] not in reader.orders
    if weights.ndim != 2 or not (is_rows or len(reader.shapes.get(node.input[0], [])) == 2):
        raise reader.refusal(node, "multiplies other than rows or a vector of channels by a matrix")
    out_first = weights if attributes.get("transB") else weights.T
    kernel = (1, 1) if is_rows else (x.height, x.width)
    shaped = out_first.reshape(len(out_first), x.channels, *kernel).astype(np.int8)
    layer = EngineLayer(node.name, x, x, kernel, (1, 1), (0, 0), shaped)
    _sums(reader, node, layer, scales, (len(out_first), x.height, 1, "rows") if is_rows else None)


def _sums(
    reader: Reader,
    node: onnx.NodeProto,
    layer: EngineLayer,
    scales: NDArray[np.float32],
    extents: Extents | None = None,
) -> None:
    """Note the sums of a layer, whose weights have one scale, or one for each output channel."""
    assert layer.weights is not None
    channels = len(layer.weights)
    if scales.shape not in {(1,), (channels,)}:
        raise reader.refusal(node, "its weights have neither one scale nor one for each output channel")
    of_sums = np.broadcast_to(layer.x.scale * scales, channels).astype(np.float32)
    with_bias = replace(layer, bias=_bias(reader, node, of_sums))
    reader.pending[node.output[0]] = Pending("sums", (with_bias, of_sums), extents=extents)


def _operands(reader: Reader, node: onnx.NodeProto) -> tuple[EngineTensor, tuple[NDArray[Any], NDArray[np.float32]]]:
    if node.input[0] not in reader.tensors or node.input[1] not in reader.weights:
        raise reader.refusal(node, "does not read a quantized tensor and quantized weights")
    weights, scales = reader.weights[node.input[1]]
    if weights.min() < LEAST or weights.max() > MOST:
        raise reader.refusal(node, "its weights do not fit int8")
    return reader.tensors[node.input[0]], (weights, scales)


def _bias(reader: Reader, node: onnx.NodeProto, of_sums: NDArray[np.float32]) -> NDArray[np.int64]:
    if len(node.input) < 3 or not node.input[2]:
        return np.zeros(len(of_sums), np.int64)
    if node.input[2] not in reader.weights:
        raise reader.refusal(node, "its bias is not quantized")
    bias, scales = reader.weights[node.input[2]]
    if bias.size != len(of_sums):
        raise reader.refusal(node, "its bias has not one entry for each output channel")
    if scales.shape not in {(1,), of_sums.shape} or not np.allclose(scales, of_sums, rtol=BIAS_TOLERANCE, atol=0):
        raise reader.refusal(node, "the scale of its bias is not scale(x) * scale(w)")
    return bias.reshape(-1)


def global_average_pool(reader: Reader, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
    x = reader.map_at(node)
    average(reader, node, x, (x.height, x.width), (1, 1))


def average_pool(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    _refuse_other_windows(reader, node, attributes)
    if any(attributes.get("pads", [0])) or attributes.get("ceil_mode"):
        raise reader.refusal(node, "the average of a window that is partly outside has another divisor")
    kernel, strides = attributes["kernel_shape"], attributes.get("strides", [1, 1])
    average(reader, node, reader.map_at(node), tuple(kernel), tuple(strides))


def average(
    reader: Reader, node: onnx.NodeProto, x: EngineTensor, kernel: tuple[int, int], strides: tuple[int, int]
) -> None:
    """Note an average over windows, none of which is partly outside."""
    ones = np.ones((x.channels, 1, *kernel), np.int8)
    bias = np.zeros(x.channels, np.int64)
    layer = EngineLayer(node.name, x, x, kernel, strides, (0, 0), ones, groups=x.channels, bias=bias)
    scale = np.float32(x.scale * np.float32(1 / (kernel[0] * kernel[1])))
    reader.pending[node.output[0]] = Pending("sums", (layer, np.full(x.channels, scale)))


def max_pool(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    _refuse_other_windows(reader, node, attributes)
    if attributes.get("ceil_mode"):
        raise reader.refusal(node, "rounds its extents up")
    x, pads = reader.map_at(node), attributes.get("pads", [0] * 4)
    kernel, strides = attributes["kernel_shape"], attributes.get("strides", [1, 1])
    layer = EngineLayer(node.name, x, x, tuple(kernel), tuple(strides), tuple(pads[:2]), None)
    reader.pending[node.output[0]] = Pending("maximum", layer)


def limit(reader: Reader, node: onnx.NodeProto, low: float, high: float) -> None:
    """Limit what a layer makes before it is quantized."""
    pending = reader.pending[node.input[0]]
    if pending.kind not in ("sums", "added", "heads"):
        what = "maximum of a pool" if pending.kind == "maximum" else f"result of a {pending.kind}"
        raise reader.refusal(node, f"limits the {what}")
    least, most = (min(max(each, low), high) for each in pending.limits)
    reader.pending[node.output[0]] = replace(pending, limits=(least, most))


def add(reader: Reader, node: onnx.NodeProto) -> None:
    """Note the addition of two tensors, one of which may be a constant for each channel or value."""
    left, right = (_term(reader, node, name) for name in node.input)
    one = next(name for name in node.input if name in reader.tensors)
    x = reader.tensors[one]
    order = reader.orders.get(one, ("plain", 1))
    if any(reader.orders.get(name, ("plain", 1)) != order for name in node.input if name in reader.tensors):
        raise reader.refusal(node, "adds tensors whose heads are arranged in different orders")
    extents = reader.extents_of(node, x, order[0])
    reader.pending[node.output[0]] = Pending("added", (left, right), extents=extents, order=order)


def _term(reader: Reader, node: onnx.NodeProto, name: str) -> EngineTensor:
    if name in reader.tensors:
        return reader.tensors[name]
    one = next((each for each in node.input if each in reader.tensors), None)
    if one is None or name not in reader.weights:
        raise reader.refusal(node, "adds what is no quantized tensor")
    values, scales = reader.weights[name]
    x, shape, order = reader.tensors[one], reader.shapes[one], reader.orders.get(one, ("plain", 1))[0]
    if values.ndim > len(shape) or np.broadcast_shapes(values.shape, shape) != tuple(shape):
        raise reader.refusal(node, f"adds a constant of {list(values.shape)} to {shape}")
    if scales.size > 1 or values.max() - values.min() > MOST - LEAST:
        raise reader.refusal(node, "adds a constant that is not int8 with one scale")
    zero = max(0, LEAST - int(values.min())) + min(0, MOST - int(values.max()))
    number = {"scale": scales[0], "zero": zero, "is_unsigned": False}
    layout = reader.extents_of(node, x, order)[3]
    constant = replace(x, name=f"{node.name or node.output[0]}/{name}", layout=layout, **number)
    reader.added.append((constant, constant.arranged(np.broadcast_to(values + zero, shape)).astype(np.int8)))
    return constant


def flatten(reader: Reader, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
    name, shape = node.input[0], reader.shapes.get(node.output[0], [])
    if len(shape) != 2 or shape[0] != 1:
        raise reader.refusal(node, "does more than flatten a map")
    if name in reader.pending and reader.shapes.get(name, [])[2:] == [1, 1]:
        reader.pending[node.output[0]] = reader.pending[name]
    elif name in reader.tensors:
        reader.keep(node.output[0], name)
    else:
        raise reader.refusal(node, "reads no quantized tensor")


def finish_sums(reader: Reader, _: onnx.NodeProto, pending: Pending, y: EngineTensor) -> None:
    layer, scales = pending.source
    low, high = limits_of(pending, y)
    factors = (scales / y.scale).astype(np.float32)
    reader.layers.append(replace(layer, y=y, factors=factors, low=low, high=high))


def finish_maximum(reader: Reader, node: onnx.NodeProto, pending: Pending, y: EngineTensor) -> None:
    layer: EngineLayer = pending.source
    if (layer.x.scale, layer.x.zero) != (y.scale, y.zero):
        raise reader.refusal(node, "the maximum of a pool has another scale than what the pool reads")
    reader.layers.append(replace(layer, y=y))


def finish_addition(reader: Reader, node: onnx.NodeProto, pending: Pending, y: EngineTensor) -> None:
    """Let the later one of two layers add the other one's result behind its own, or the array copy one of them."""
    if len({(each.channels, each.height, each.width) for each in (*pending.source, y)}) > 1:
        raise reader.refusal(node, "the operands of the addition have different extents")
    places = {layer.y.name: place for place, layer in enumerate(reader.layers)}
    other, own = sorted(pending.source, key=lambda tensor: places.get(tensor.name, -1))
    residual = Residual(other, own.scale, own.zero, *limits_of(pending, y))
    layer = reader.layers[places[own.name]] if own.name in places else None
    if layer is None or not _takes_along(layer, own, other, reader):
        layer = _copy(node.name or node.output[0], own)
    else:
        reader.layers.remove(layer)
    reader.layers.append(replace(layer, y=y, residual=residual))


def _takes_along(layer: EngineLayer, own: EngineTensor, other: EngineTensor, reader: Reader) -> bool:
    """Whether a layer can add another tensor behind its own result, which nothing else reads."""
    is_map_that_became_rows = (layer.y.height, layer.y.width) != (own.height, own.width)
    is_free = layer.weights is not None and layer.residual is None and own is not other
    return is_free and not is_map_that_became_rows and reader.is_read_once(own)


def _copy(name: str, x: EngineTensor) -> EngineLayer:
    """Return the layer that multiplies each channel by one."""
    ones, factors = np.ones((x.channels, 1, 1, 1), np.int8), np.ones(x.channels, np.float32)
    bias = np.zeros(x.channels, np.int64)
    return EngineLayer(name, x, x, (1, 1), (1, 1), (0, 0), ones, groups=x.channels, bias=bias, factors=factors)


def limits_of(pending: Pending, y: EngineTensor) -> tuple[int, int]:
    low, high = (_quantized(each, y) for each in pending.limits)
    return low, high


def _quantized(limit: float, y: EngineTensor) -> int:
    """Return a limit of the float result as the integer that it is quantized to, and cut off as all are."""
    if np.isinf(limit):
        return LEAST if limit < 0 else MOST
    return int(np.clip(np.rint(np.float32(limit) / y.scale) + y.zero, LEAST, MOST))

"""Operators of maps and products: convolutions, pools, limits and additions, and the layers that they become."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from common.fpga.rtl.engine.network import LEAST, MOST, EngineLayer, EngineTensor, Residual
from common.fpga.rtl.engine.reading.reader import BIAS_TOLERANCE, Extents, Pending, Reader, name_of

MOST_SIDE, MOST_DILATION = 255, 16  # fields of a descriptor


@dataclass(frozen=True, slots=True)
class MapWindow:
    """The window of a convolution or a pool; pads are those above and to the left."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)

    @classmethod
    def whole(cls, x: EngineTensor) -> MapWindow:
        return cls((x.height, x.width))


def conv(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    x, (weights, scales) = _operands(reader, node)
    if weights.ndim != 4 or x.layout != "map":
        raise reader.refusal(node, "is no convolution of maps")
    window = _window(reader, node, attributes, x, weights.shape[2:])
    layer = _layer(node, x, window, weights.astype(np.int8), groups=attributes.get("group", 1))
    _sums(reader, node, layer, scales)


def _layer(
    node: onnx.NodeProto, x: EngineTensor, window: MapWindow, weights: NDArray[np.int8] | None, **others: Any
) -> EngineLayer:
    places = window.kernel, window.strides, window.pads
    return EngineLayer(node.name, x, x, *places, weights, dilations=window.dilations, **others)


def _window(
    reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any], x: EngineTensor, kernel: Sequence[int]
) -> MapWindow:
    """Return the window of a node; automatic pads are those of its result."""
    strides, dilations = (tuple(attributes.get(name, (1, 1))) for name in ("strides", "dilations"))
    extents, result = (x.height, x.width), reader.shapes.get(node.output[0], [])[2:]
    if len(result) != 2 or not all(result):
        raise reader.refusal(node, "has a result of unknown extents")
    reach = [(side - 1) * apart + 1 for side, apart in zip(kernel, dilations, strict=True)]
    # What the windows need beyond the map, above and below together.
    missing = [
        max((out - 1) * stride + span - extent, 0)
        for out, stride, span, extent in zip(result, strides, reach, extents, strict=True)
    ]
    automatic = {
        b"NOTSET": attributes.get("pads", [0] * 4)[:2],
        b"VALID": [0, 0],
        b"SAME_UPPER": [each // 2 for each in missing],
        b"SAME_LOWER": [each - each // 2 for each in missing],
    }
    pads = tuple(automatic[attributes.get("auto_pad", b"NOTSET")])
    last = [(out - 1) * stride - pad for out, stride, pad in zip(result, strides, pads, strict=True)]
    is_above = any(pad >= span for pad, span in zip(pads, reach, strict=True))
    if is_above or any(start >= extent for start, extent in zip(last, extents, strict=True)):
        raise reader.refusal(node, "has a window that is wholly outside of its map")
    if min(pads) < 0 or max(*kernel, *strides) > MOST_SIDE or max(dilations) > MOST_DILATION:
        limits = f"a window or strides above {MOST_SIDE}, or dilations above {MOST_DILATION}"
        raise reader.refusal(node, f"has negative pads, {limits}")
    return MapWindow((kernel[0], kernel[1]), strides, (pads[0], pads[1]), dilations)


def gemm(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    if attributes.get("transA") or {attributes.get("alpha", 1.0), attributes.get("beta", 1.0)} != {1.0}:
        raise reader.refusal(node, "scales or transposes its operands")
    x, (weights, scales) = _operands(reader, node)
    is_rows = x.layout != "map" and reader.order_of(node.input[0])[0] == "plain"
    if weights.ndim != 2 or not (is_rows or len(reader.shapes.get(node.input[0], [])) == 2):
        raise reader.refusal(node, "multiplies other than rows or a vector of channels by a matrix")
    out_first = weights if attributes.get("transB") else weights.T
    kernel = (1, 1) if is_rows else (x.height, x.width)
    shaped = out_first.reshape(len(out_first), x.channels, *kernel).astype(np.int8)
    layer = EngineLayer(node.name, x, x, kernel, weights=shaped)
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
    x = _map_at(reader, node)
    average(reader, node, x, MapWindow.whole(x))


def average_pool(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    """Note an average, whose divisor is the same for all windows: pads count as zeros, or there are none."""
    x = _map_at(reader, node)
    window = _window(reader, node, attributes, x, attributes["kernel_shape"])
    result, extents = reader.shapes[node.output[0]][2:], (x.height, x.width)
    sides = zip(result, window.kernel, window.strides, window.pads, window.dilations, extents, strict=True)
    is_outside = any(
        pad > 0 or (out - 1) * stride - pad + (side - 1) * apart + 1 > extent
        for out, side, stride, pad, apart, extent in sides
    )
    if is_outside and (attributes.get("ceil_mode") or not attributes.get("count_include_pad")):
        raise reader.refusal(node, "the average of a window that is partly outside has another divisor")
    average(reader, node, x, window)


def _map_at(reader: Reader, node: onnx.NodeProto) -> EngineTensor:
    x = reader.map_at(node)
    if x.layout != "map":
        raise reader.refusal(node, "pools other than a map")
    return x


def average(reader: Reader, node: onnx.NodeProto, x: EngineTensor, window: MapWindow) -> None:
    """Note an average over windows, whose positions outside of the map are zeros."""
    count = window.kernel[0] * window.kernel[1]
    if max(window.kernel) > MOST_SIDE:
        raise reader.refusal(node, f"averages over more than {MOST_SIDE} lines or columns")
    ones, bias = np.ones((x.channels, 1, *window.kernel), np.int8), np.zeros(x.channels, np.int64)
    layer = _layer(node, x, window, ones, groups=x.channels, bias=bias)
    scale = np.float32(x.scale * np.float32(1 / count))
    reader.pending[node.output[0]] = Pending("sums", (layer, np.full(x.channels, scale)))


def max_pool(reader: Reader, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    x = _map_at(reader, node)
    window = _window(reader, node, attributes, x, attributes["kernel_shape"])
    reader.pending[node.output[0]] = Pending("maximum", _layer(node, x, window, None))


def global_max_pool(reader: Reader, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
    x = _map_at(reader, node)
    if max(x.height, x.width) > MOST_SIDE:
        raise reader.refusal(node, f"has more than {MOST_SIDE} lines or columns")
    reader.pending[node.output[0]] = Pending("maximum", _layer(node, x, MapWindow.whole(x), None))


def add(reader: Reader, node: onnx.NodeProto) -> None:
    """Note the addition of two tensors, one of which may be a constant for each channel or value."""
    left, right = (_term(reader, node, name) for name in node.input)
    names = [name for name in node.input if name in reader.tensors]
    one = max(names, key=lambda name: math.prod(reader.shapes[name]))
    x, order = reader.tensors[one], reader.order_of(one)
    if any(reader.order_of(name) != order for name in names):
        raise reader.refusal(node, "adds tensors whose heads are arranged in different orders")
    for name in names:
        if reader.shapes[name] not in (reader.shapes[one], _pixel_of(reader.shapes[one])):
            raise reader.refusal(node, f"adds {reader.shapes[name]} to {reader.shapes[one]}")
    extents = reader.extents_of(node, x, order[0])
    reader.pending[node.output[0]] = Pending("added", (left, right), extents=extents, order=order)


def _pixel_of(shape: list[int]) -> list[int]:
    """Return the extents of a single pixel of a map, or a single line of rows, with all channels."""
    return [1, shape[1], 1, 1] if len(shape) == 4 else [1] * (len(shape) - 1) + shape[-1:]


def multiply(reader: Reader, node: onnx.NodeProto) -> None:
    """Note the product of two tensors element by element, or of a tensor and a factor for each of its channels."""
    names = sorted(node.input, key=lambda name: math.prod(reader.shapes[name]), reverse=True)
    own, other = (reader.tensors[name] for name in names)
    whole, part = (reader.shapes[name] for name in names)
    order = reader.order_of(names[0])
    is_pixel = part == _pixel_of(whole) and order[0] == "plain"
    if order != reader.order_of(names[1]) or not (part == whole or is_pixel):
        raise reader.refusal(node, f"multiplies {whole} by {part} element by element")
    extents = reader.extents_of(node, own, order[0])
    reader.pending[node.output[0]] = Pending("multiplied", (own, other), extents=extents, order=order)


def finish_multiplied(reader: Reader, node: onnx.NodeProto, pending: Pending, y: EngineTensor) -> None:
    """Let the array copy one of two tensors, and the epilogue multiply it by the other one."""
    own, other = pending.source
    residual = Residual(other, own.scale, own.zero, *limits_of(pending, y), is_factor=True)
    reader.layers.append(replace(copy_of(name_of(node), own), y=y, residual=residual))


def _term(reader: Reader, node: onnx.NodeProto, name: str) -> EngineTensor:
    if name in reader.tensors:
        return reader.tensors[name]
    one = next((each for each in node.input if each in reader.tensors), None)
    if one is None or name not in reader.weights:
        raise reader.refusal(node, "adds what is no quantized tensor")
    values, scales = reader.weights[name]
    x, shape, order = reader.tensors[one], reader.shapes[one], reader.order_of(one)[0]
    if values.ndim > len(shape) or np.broadcast_shapes(values.shape, shape) != tuple(shape):
        raise reader.refusal(node, f"adds a constant of {list(values.shape)} to {shape}")
    zero, number = constant_format(reader, node, values, scales)
    layout = reader.extents_of(node, x, order)[3]
    constant = replace(x, name=f"{name_of(node)}/{name}", layout=layout, **number)
    reader.added.append((constant, constant.arranged(np.broadcast_to(values + zero, shape)).astype(np.int8)))
    return constant


def constant_format(
    reader: Reader, node: onnx.NodeProto, values: NDArray[np.int64], scales: NDArray[np.float32]
) -> tuple[int, dict[str, Any]]:
    """Return what moves a constant into int8, and the number format of the tensor that it becomes."""
    if scales.size > 1 or values.max() - values.min() > MOST - LEAST:
        raise reader.refusal(node, "has a constant that is not int8 with one scale")
    zero = max(0, LEAST - int(values.min())) + min(0, MOST - int(values.max()))
    return zero, {"scale": scales[0], "zero": zero, "is_unsigned": False}


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
    extents = {(each.channels, each.height, each.width) for each in (*pending.source, y)}
    layer = None
    if extents == {(y.channels, y.height, y.width), (y.channels, 1, 1)}:  # a pixel that is added to all of them
        other, own = sorted(pending.source, key=lambda tensor: tensor.height * tensor.width)
    elif len(extents) > 1:
        raise reader.refusal(node, "the operands of the addition have different extents")
    else:
        made = {each.y.name: place for place, each in enumerate(reader.layers)}
        other, own = sorted(pending.source, key=lambda tensor: made.get(tensor.name, -1))
        layer = reader.layers[made[own.name]] if own.name in made else None
    if layer is not None and _takes_along(layer, own, other, reader):
        reader.layers.remove(layer)
    else:
        layer = copy_of(name_of(node), own)
    residual = Residual(other, own.scale, own.zero, *limits_of(pending, y))
    reader.layers.append(replace(layer, y=y, residual=residual))


def _takes_along(layer: EngineLayer, own: EngineTensor, other: EngineTensor, reader: Reader) -> bool:
    """Whether a layer can add another tensor behind its own result, which nothing else reads."""
    is_free = layer.weights is not None and layer.residual is None and own is not other
    # A part of the layer's result, or a map that became rows, is another one.
    return is_free and layer.y is own and reader.is_read_once(own)


def copy_of(name: str, x: EngineTensor) -> EngineLayer:
    """Return the layer that multiplies each channel by one."""
    ones, factors = np.ones((x.channels, 1, 1, 1), np.int8), np.ones(x.channels, np.float32)
    bias = np.zeros(x.channels, np.int64)
    return EngineLayer(name, x, x, weights=ones, groups=x.channels, bias=bias, factors=factors)


def limits_of(pending: Pending, y: EngineTensor) -> tuple[int, int]:
    """Return the limits of the float result as the integers that they are quantized to, and cut off as all are."""
    limits = np.rint(np.array(pending.limits, np.float32) / y.scale) + y.zero
    low, high = map(int, np.clip(limits, LEAST, MOST))
    return low, high

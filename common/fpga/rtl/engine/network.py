"""A quantized network (QDQ) as layers of integers: what the engine computes, and what is left to the host.

A layer is a convolution with everything up to the next QuantizeLinear: bias, scale per channel, ReLU or Clip, and the
addition of a residual. A product (Gemm) is a convolution of the whole map, an average pool one of ones for each
channel.
Tensors of uint8 are moved by 128, so that all are int8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from common.messages.errors import PipelineError

Bytes = NDArray[np.int8]
LEAST, MOST = -128, 127
UNSIGNED_MOVE = 128
BIAS_TOLERANCE = 1e-6  # some roundings of the float32 product scale(x) * scale(w)
CONSTANT_KINDS: Mapping[str, type[np.generic] | None] = {
    "value": None,  # a tensor with a type of its own
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """A quantized map: (value - zero) * scale, of ``channels`` x ``height`` x ``width``."""

    name: str
    channels: int
    height: int
    width: int
    scale: np.float32
    zero: int
    is_unsigned: bool = False

    @property
    def number_format(self) -> tuple[np.float32, int, bool]:
        return self.scale, self.zero, self.is_unsigned


@dataclass(frozen=True, slots=True)
class Residual:
    """What is added to a result, and how the sum is quantized.

    Attributes:
        other: the tensor that is added.
        own_scale: of the result before the addition.
        own_zero: its zero point.
        low, high: limits after the addition.
    """

    other: EngineTensor
    own_scale: np.float32
    own_zero: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """One call of the engine.

    Attributes:
        node: name of the contraction, or of the pool.
        x: what it reads.
        y: what it writes.
        kernel: lines and columns of the window.
        strides: of the window.
        pads: lines above and columns to the left that are padded; what is below and to the right follows from y.
        weights: (output channels, input channels of a group, lines, columns); None for a maximum.
        groups: of channels.
        bias: of each output channel, at the scale of the sums.
        factors: scale of the sums over that of the result, for each output channel.
        low, high: limits of the result before a residual is added.
        residual: what is added behind.
    """

    node: str
    x: EngineTensor
    y: EngineTensor
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]
    weights: Bytes | None
    groups: int = 1
    bias: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    factors: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    low: int = LEAST
    high: int = MOST
    residual: Residual | None = None

    @property
    def own_zero(self) -> int:
        """Zero point of the result before a residual is added."""
        return self.residual.own_zero if self.residual else self.y.zero

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the layer."""
        return 0 if self.weights is None else self.weights.size * self.y.height * self.y.width


@dataclass(frozen=True, slots=True)
class EngineNetwork:
    """Layers in their order, and the tensors that the host writes and reads."""

    inputs: tuple[EngineTensor, ...]
    outputs: tuple[EngineTensor, ...]
    layers: tuple[EngineLayer, ...]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A float tensor that a layer or an addition made, and that is not quantized yet."""

    kind: str  # sums, maximum, added
    source: Any
    limits: tuple[float, float] = (-np.inf, np.inf)


def layers_of(model: onnx.ModelProto) -> EngineNetwork:
    """Return the layers of a model whose shapes are known, with a batch of one.

    Raises:
        PipelineError: the model has an operator, or an arrangement of operators, that the engine does not compute.
    """
    return _Reader(onnx.shape_inference.infer_shapes(model)).network()


class _Reader:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.constants = {each.name: numpy_helper.to_array(each) for each in self.graph.initializer}
        self.inputs = {each.name for each in self.graph.input} - self.constants.keys()
        known = [*self.graph.value_info, *self.graph.input, *self.graph.output]
        self.shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in known}
        self.readers: dict[str, int] = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers[name] = self.readers.get(name, 0) + 1
        self.tensors: dict[str, EngineTensor] = {}  # quantized, by the names of the integers and of the floats
        self.pending: dict[str, _Pending] = {}
        self.weights: dict[str, tuple[NDArray[Any], NDArray[np.float32]]] = {}
        self.layers: list[EngineLayer] = []

    def network(self) -> EngineNetwork:
        inputs = []
        for node in self.graph.node:
            attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
            if node.op_type not in OPERATORS:
                raise self._refusal(node, "the engine has no such operator")
            OPERATORS[node.op_type](self, node, attributes)
            if node.op_type == "QuantizeLinear" and node.input[0] in self.inputs:
                inputs.append(self.tensors[node.output[0]])
        missing = [each.name for each in self.graph.output if each.name not in self.tensors]
        if missing:
            raise PipelineError(missing[0], "is no quantized output", "end the model with DequantizeLinear")
        return EngineNetwork(
            tuple(inputs), tuple(self.tensors[each.name] for each in self.graph.output), tuple(self.layers)
        )

    def _refusal(self, node: onnx.NodeProto, reason: str) -> PipelineError:
        return PipelineError(f"{node.op_type} {node.name or node.output[0]}", reason)

    def _constant_at(self, node: onnx.NodeProto, place: int) -> NDArray[Any]:
        if node.input[place] not in self.constants:
            raise self._refusal(node, f"its operand {node.input[place]} is no constant")
        return self.constants[node.input[place]]

    def _zero_point(self, node: onnx.NodeProto, default: NDArray[Any]) -> NDArray[Any]:
        return self._constant_at(node, 2) if len(node.input) > 2 and node.input[2] else default

    def _map(self, node: onnx.NodeProto) -> EngineTensor:
        if node.input[0] not in self.tensors:
            raise self._refusal(node, "reads no quantized tensor")
        return self.tensors[node.input[0]]

    # --- number formats ---------------------------------------------------------------------------------------------

    def dequantize(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        values, scale = node.input[0], self._constant_at(node, 1)
        if values in self.constants:
            whole = self.constants[values]
            zero = self._zero_point(node, np.zeros(1, whole.dtype))
            if whole.dtype not in (np.int8, np.uint8, np.int32):
                raise self._refusal(node, f"weights of {whole.dtype}, which are neither int8 nor uint8")
            if np.any(zero != (UNSIGNED_MOVE if zero.dtype == np.uint8 else 0)):
                raise self._refusal(node, "weights have a zero point")
            moved = whole.astype(np.int64) - (UNSIGNED_MOVE if zero.dtype == np.uint8 else 0)
            self.weights[node.output[0]] = moved, np.atleast_1d(scale)
        elif values in self.tensors:
            tensor = self.tensors[values]
            move = UNSIGNED_MOVE if tensor.is_unsigned else 0
            zero = self._zero_point(node, np.zeros(()))
            if np.any(scale != tensor.scale) or np.any(zero - float(move) != tensor.zero):
                raise self._refusal(node, "has another scale or zero point than the tensor that it reads")
            self.tensors[node.output[0]] = tensor
        else:
            raise self._refusal(node, "reads no quantized tensor")

    def quantize(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        name, scale = node.output[0], self._constant_at(node, 1)
        kind = attributes.get("output_dtype", 0) or onnx.TensorProto.UINT8
        zero = self._zero_point(node, np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(kind)))
        if scale.size != 1 or zero.size != 1 or zero.dtype not in (np.int8, np.uint8):
            raise self._refusal(node, "does not make int8 or uint8 with one scale")
        is_unsigned = zero.dtype == np.uint8
        tensor = EngineTensor(
            *(name, *self._extents(node, node.input[0])),
            np.float32(scale.item()),
            int(zero.item()) - (UNSIGNED_MOVE if is_unsigned else 0),
            is_unsigned,
        )
        before = self.tensors.get(node.input[0])
        if before is not None and before.number_format == tensor.number_format:
            self.tensors[name] = before  # the same integers
            return
        self.tensors[name] = tensor
        pending = self.pending.get(node.input[0])
        if pending is not None:
            self._finish(node, pending, tensor)
        elif node.input[0] not in self.inputs:
            raise self._refusal(node, "quantizes what the engine did not compute")

    def _extents(self, node: onnx.NodeProto, name: str) -> tuple[int, int, int]:
        shape = self.shapes.get(name, [])
        if len(shape) not in (2, 4) or not all(shape) or shape[0] != 1:
            raise self._refusal(node, f"needs a map of batch 1 with known extents, not {shape}")
        channels, height, width = (*shape[1:], 1, 1)[:3]
        return channels, height, width

    def _finish(self, node: onnx.NodeProto, pending: _Pending, y: EngineTensor) -> None:
        low, high = (_quantized(limit, y) for limit in pending.limits)
        if pending.kind == "added":
            self._finish_addition(node, pending, y, low, high)
        elif pending.kind == "maximum":
            layer: EngineLayer = pending.source
            if (layer.x.scale, layer.x.zero) != (y.scale, y.zero):
                raise self._refusal(node, "the maximum of a pool has another scale than what the pool reads")
            self.layers.append(replace(layer, y=y))
        else:
            layer, scales = pending.source
            factors = (scales / y.scale).astype(np.float32)
            self.layers.append(replace(layer, y=y, factors=factors, low=low, high=high))

    def _finish_addition(self, node: onnx.NodeProto, pending: _Pending, y: EngineTensor, low: int, high: int) -> None:
        """Let the later one of two layers add the other one's result behind its own."""
        names = [tensor.name for tensor in pending.source]
        places = {layer.y.name: place for place, layer in enumerate(self.layers)}
        own = max(names, key=lambda name: places.get(name, -1))
        place = places.get(own, -1)
        other = pending.source[1 - names.index(own)]
        if names[0] == names[1]:
            raise self._refusal(node, "the addition has the same tensor twice")
        if place < 0:
            raise self._refusal(node, "neither operand of the addition is the result of a layer")
        if self.layers[place].weights is None or self.layers[place].residual:
            maker = "an addition" if self.layers[place].residual else "a maximum pool"
            raise self._refusal(node, f"the later operand of the addition is the result of {maker}")
        if len({(each.channels, each.height, each.width) for each in (*pending.source, y)}) > 1:
            raise self._refusal(node, "the operands of the addition have different extents")
        layer = self.layers[place]
        if sum(self.readers.get(name, 0) for name, tensor in self.tensors.items() if tensor is layer.y) > 2:
            raise self._refusal(node, "another layer reads an operand of the addition")
        if any(self.tensors.get(each.name) is layer.y for each in self.graph.output):
            raise self._refusal(node, "an operand of the addition is an output of the network")
        residual = Residual(other, layer.y.scale, layer.y.zero, low, high)
        moved = self.layers.pop(place)
        self.layers.append(replace(moved, y=y, residual=residual))

    def constant(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        if len(attributes) != 1 or not attributes.keys() <= CONSTANT_KINDS.keys():
            raise self._refusal(node, f"a constant that is no tensor and no number: {', '.join(attributes)}")
        ((kind, value),) = attributes.items()
        dtype = CONSTANT_KINDS[kind]
        self.constants[node.output[0]] = numpy_helper.to_array(value) if dtype is None else np.array(value, dtype)

    # --- operators --------------------------------------------------------------------------------------------------

    def conv(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        self._refuse_other_windows(node, attributes)
        x, (weights, scales) = self._operands(node)
        if weights.ndim != 4:
            raise self._refusal(node, "is no convolution of maps")
        strides, pads = attributes.get("strides", [1, 1]), attributes.get("pads", [0] * 4)
        layer = EngineLayer(
            *(node.name, x, x, weights.shape[2:], tuple(strides), tuple(pads[:2]), weights.astype(np.int8)),
            groups=attributes.get("group", 1),
        )
        self._sums(node, layer, scales)

    def _refuse_other_windows(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        if set(attributes.get("dilations", [1])) != {1} or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
            raise self._refusal(node, "has dilations or automatic pads")

    def gemm(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        if attributes.get("transA") or {attributes.get("alpha", 1.0), attributes.get("beta", 1.0)} != {1.0}:
            raise self._refusal(node, "scales or transposes its operands")
        x, (weights, scales) = self._operands(node)
        if len(self.shapes.get(node.input[0], [])) != 2 or weights.ndim != 2:
            raise self._refusal(node, "multiplies other than a vector of channels by a matrix")
        out_first = weights if attributes.get("transB") else weights.T
        shaped = out_first.reshape(len(out_first), x.channels, x.height, x.width).astype(np.int8)
        layer = EngineLayer(node.name, x, x, (x.height, x.width), (1, 1), (0, 0), shaped)
        self._sums(node, layer, scales)

    def matmul(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        self.gemm(node, {})

    def _sums(self, node: onnx.NodeProto, layer: EngineLayer, scales: NDArray[np.float32]) -> None:
        """Note the sums of a layer, whose weights have one scale, or one for each output channel."""
        assert layer.weights is not None
        channels = len(layer.weights)
        if scales.shape not in {(1,), (channels,)}:
            raise self._refusal(node, "its weights have neither one scale nor one for each output channel")
        of_sums = np.broadcast_to(layer.x.scale * scales, channels).astype(np.float32)
        with_bias = replace(layer, bias=self._bias(node, of_sums))
        self.pending[node.output[0]] = _Pending("sums", (with_bias, of_sums))

    def _operands(self, node: onnx.NodeProto) -> tuple[EngineTensor, tuple[NDArray[Any], NDArray[np.float32]]]:
        if node.input[0] not in self.tensors or node.input[1] not in self.weights:
            raise self._refusal(node, "does not read a quantized tensor and quantized weights")
        weights, scales = self.weights[node.input[1]]
        if weights.min() < LEAST or weights.max() > MOST:
            raise self._refusal(node, "its weights do not fit int8")
        return self.tensors[node.input[0]], (weights, scales)

    def _bias(self, node: onnx.NodeProto, of_sums: NDArray[np.float32]) -> NDArray[np.int64]:
        if len(node.input) < 3 or not node.input[2]:
            return np.zeros(len(of_sums), np.int64)
        if node.input[2] not in self.weights:
            raise self._refusal(node, "its bias is not quantized")
        bias, scales = self.weights[node.input[2]]
        if bias.size != len(of_sums):
            raise self._refusal(node, "its bias has not one entry for each output channel")
        if scales.shape not in {(1,), of_sums.shape} or not np.allclose(scales, of_sums, rtol=BIAS_TOLERANCE, atol=0):
            raise self._refusal(node, "the scale of its bias is not scale(x) * scale(w)")
        return bias.reshape(-1)

    def global_average_pool(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        x = self._map(node)
        self._average(node, x, (x.height, x.width), (1, 1), (0, 0))

    def average_pool(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        self._refuse_other_windows(node, attributes)
        if any(attributes.get("pads", [0])) or attributes.get("ceil_mode"):
            raise self._refusal(node, "the average of a window that is partly outside has another divisor")
        kernel, strides = attributes["kernel_shape"], attributes.get("strides", [1, 1])
        self._average(node, self._map(node), tuple(kernel), tuple(strides), (0, 0))

    def _average(
        self,
        node: onnx.NodeProto,
        x: EngineTensor,
        kernel: tuple[int, int],
        strides: tuple[int, int],
        pads: tuple[int, int],
    ) -> None:
        ones = np.ones((x.channels, 1, *kernel), np.int8)
        bias = np.zeros(x.channels, np.int64)
        layer = EngineLayer(node.name, x, x, kernel, strides, pads, ones, groups=x.channels, bias=bias)
        scale = np.float32(x.scale * np.float32(1 / (kernel[0] * kernel[1])))
        self.pending[node.output[0]] = _Pending("sums", (layer, np.full(x.channels, scale)))

    def max_pool(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        self._refuse_other_windows(node, attributes)
        if attributes.get("ceil_mode"):
            raise self._refusal(node, "rounds its extents up")
        x, pads = self._map(node), attributes.get("pads", [0] * 4)
        kernel, strides = attributes["kernel_shape"], attributes.get("strides", [1, 1])
        layer = EngineLayer(node.name, x, x, tuple(kernel), tuple(strides), tuple(pads[:2]), None)
        self.pending[node.output[0]] = _Pending("maximum", layer)

    def relu(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        self._limit(node, 0.0, np.inf)

    def clip(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        names = (*node.input, "", "")[1:3]
        given = [self._constant_at(node, place).item() if name else None for place, name in enumerate(names, start=1)]
        low, high = given if len(node.input) > 1 else (attributes.get("min"), attributes.get("max"))
        self._limit(node, -np.inf if low is None else low, np.inf if high is None else high)

    def _limit(self, node: onnx.NodeProto, low: float, high: float) -> None:
        pending = self.pending.get(node.input[0])
        if pending is None:
            raise self._refusal(node, "does not follow a convolution or an addition")
        if pending.kind == "maximum":
            raise self._refusal(node, "limits the maximum of a pool")
        least, most = (min(max(limit, low), high) for limit in pending.limits)
        self.pending[node.output[0]] = replace(pending, limits=(least, most))

    def add(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        if not all(name in self.tensors for name in node.input):
            raise self._refusal(node, "adds what is no quantized tensor")
        self.pending[node.output[0]] = _Pending("added", tuple(self.tensors[name] for name in node.input))

    def flatten(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        name, shape = node.input[0], self.shapes.get(node.output[0], [])
        if len(shape) != 2 or shape[0] != 1:
            raise self._refusal(node, "does more than flatten a map")
        if name in self.pending and self.shapes.get(name, [])[2:] == [1, 1]:
            self.pending[node.output[0]] = self.pending[name]
        elif name in self.tensors:
            self.tensors[node.output[0]] = self.tensors[name]
        else:
            raise self._refusal(node, "reads no quantized tensor")


OPERATORS: Mapping[str, Callable[[_Reader, onnx.NodeProto, Mapping[str, Any]], None]] = {
    "QuantizeLinear": _Reader.quantize,
    "DequantizeLinear": _Reader.dequantize,
    "Constant": _Reader.constant,
    "Conv": _Reader.conv,
    "Gemm": _Reader.gemm,
    "MatMul": _Reader.matmul,
    "GlobalAveragePool": _Reader.global_average_pool,
    "AveragePool": _Reader.average_pool,
    "MaxPool": _Reader.max_pool,
    "Relu": _Reader.relu,
    "Clip": _Reader.clip,
    "Add": _Reader.add,
    "Flatten": _Reader.flatten,
    "Reshape": _Reader.flatten,
}


def _quantized(limit: float, y: EngineTensor) -> int:
    """Return a limit of the float result as the integer that it is quantized to, and cut off as all are."""
    if np.isinf(limit):
        return LEAST if limit < 0 else MOST
    return int(np.clip(np.rint(np.float32(limit) / y.scale) + y.zero, LEAST, MOST))

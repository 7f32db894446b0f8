"""Reads a quantized model node by node: tensors in integers, and what a layer makes before it is quantized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from common.fpga.rtl.engine.network import LEAST, MOST, UNSIGNED_MOVE, EngineLayer, EngineNetwork, EngineTensor, Layout
from common.messages.errors import PipelineError

MOST_EXTENT = 32767  # of a field of a descriptor
BIAS_TOLERANCE = 1e-6  # some roundings of the float32 product scale(x) * scale(w)
CONSTANT_KINDS: Mapping[str, type[np.generic] | None] = {
    "value": None,  # a tensor with a type of its own
    **dict.fromkeys(("value_float", "value_floats"), np.float32),
    **dict.fromkeys(("value_int", "value_ints"), np.int64),
}
# Of rows: (1, T, H d), (1, T, H, d), (1, H, T, d), (1, H, d, T); stacked are (1, H, T, n) whose lines are H * T.
# Several tensors side by side are chunks (1, T, n, H, d), and piled (n, 1, H, T, d).
HeadOrder = Literal["plain", "split", "heads", "turned", "stacked", "chunks", "piled"]
LAYOUTS: Mapping[HeadOrder, Layout] = {"heads": "heads", "turned": "turned"}  # others are rows
Extents = tuple[int, int, int, Layout]  # channels, height, width


@dataclass(frozen=True, slots=True)
class Pending:
    """A float tensor that a layer or an addition made, and that is not quantized yet."""

    kind: str  # sums, maximum, added, joined; a key of FINISHES
    source: Any
    limits: tuple[float, float] = (-np.inf, np.inf)
    extents: Extents | None = None  # where the shape does not say what is a channel
    order: tuple[HeadOrder, int] = ("plain", 1)  # and the number of heads


Operator = Callable[["Reader", onnx.NodeProto, Mapping[str, Any]], None]
Finish = Callable[["Reader", onnx.NodeProto, Pending, EngineTensor], None]


def name_of(node: onnx.NodeProto) -> str:
    return node.name or node.output[0]


class Reader:
    """The state of reading a model with known shapes and a batch of one: what each name of it is so far.

    ``finishes`` say how a layer of each kind of :class:`Pending` is made when its result is quantized.
    """

    def __init__(self, model: onnx.ModelProto, finishes: Mapping[str, Finish]) -> None:
        self.finishes = finishes
        self.graph = model.graph
        self.opset = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=1)
        self.constants = {each.name: numpy_helper.to_array(each) for each in self.graph.initializer}
        self.inputs = {each.name for each in self.graph.input} - self.constants.keys()
        known = [*self.graph.value_info, *self.graph.input, *self.graph.output]
        self.shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in known}
        self.readers = Counter(name for node in self.graph.node for name in node.input)
        self.tensors: dict[str, EngineTensor] = {}  # quantized, by the names of the integers and of the floats
        self.pending: dict[str, Pending] = {}
        self.weights: dict[str, tuple[NDArray[Any], NDArray[np.float32]]] = {}
        self.orders: dict[str, tuple[HeadOrder, int]] = {}  # of rows whose heads are apart
        self.functions: dict[str, tuple[EngineTensor, NDArray[np.float32]]] = {}  # results, by name: of what, values
        self.layers: list[EngineLayer] = []
        self.added: list[tuple[EngineTensor, NDArray[np.int8]]] = []  # constants that are added

    def network(self, operators: Mapping[str, Operator]) -> EngineNetwork:
        inputs = []
        for node in self.graph.node:
            attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
            if node.op_type not in operators:
                raise self.refusal(node, "the engine has no such operator")
            operators[node.op_type](self, node, attributes)
            if node.op_type == "QuantizeLinear" and node.input[0] in self.inputs:
                inputs.append(self.tensors[node.output[0]])
        if missing := [each.name for each in self.graph.output if each.name not in self.tensors]:
            raise PipelineError(missing[0], "is no quantized output", "end the model with DequantizeLinear")
        outputs = tuple(self._output(each.name) for each in self.graph.output)
        return EngineNetwork(tuple(inputs), outputs, tuple(self._needed(outputs)), tuple(self.added))

    def _output(self, name: str) -> EngineTensor:
        """Return what the host reads, arranged as the model has it."""
        tensor, (order, _) = self.tensors[name], self.order_of(name)
        if tensor.of is not None or order in ("chunks", "piled"):
            raise PipelineError(name, "is an output that is a part of another tensor")
        return tensor if tensor.layout == "map" else replace(tensor, layout=LAYOUTS.get(order, "rows"))

    def _needed(self, outputs: Sequence[EngineTensor]) -> list[EngineLayer]:
        """Return the layers without functions that nothing reads, because others are tables of the same tensor."""
        read = {tensor.name for tensor in outputs} | {each.name for layer in self.layers for each in layer.reads}
        return [layer for layer in self.layers if layer.y.name not in self.functions or layer.y.name in read]

    def refusal(self, node: onnx.NodeProto, reason: str) -> PipelineError:
        return PipelineError(f"{node.op_type} {name_of(node)}", reason)

    def order_of(self, name: str) -> tuple[HeadOrder, int]:
        """Return how the heads of rows are arranged, and how many there are."""
        return self.orders.get(name, ("plain", 1))

    def constant_at(self, node: onnx.NodeProto, place: int) -> NDArray[Any]:
        if node.input[place] not in self.constants:
            raise self.refusal(node, f"its operand {node.input[place]} is no constant")
        return self.constants[node.input[place]]

    def _zero_point(self, node: onnx.NodeProto, default: NDArray[Any]) -> NDArray[Any]:
        return self.constant_at(node, 2) if len(node.input) > 2 and node.input[2] else default

    def map_at(self, node: onnx.NodeProto) -> EngineTensor:
        if node.input[0] not in self.tensors:
            raise self.refusal(node, "reads no quantized tensor")
        return self.tensors[node.input[0]]

    # --- number formats ---------------------------------------------------------------------------------------------

    def dequantize(self, node: onnx.NodeProto, _: Mapping[str, Any]) -> None:
        values, scale = node.input[0], self.constant_at(node, 1)
        if values in self.constants:
            whole = self.constants[values]
            zero = self._zero_point(node, np.zeros(1, whole.dtype))
            if whole.dtype not in (np.int8, np.uint8, np.int32):
                raise self.refusal(node, f"weights of {whole.dtype}, which are neither int8 nor uint8")
            if np.any(zero != np.ravel(zero)[0]):
                raise self.refusal(node, "has several zero points")
            self.weights[node.output[0]] = whole.astype(np.int64) - int(np.ravel(zero)[0]), np.atleast_1d(scale)
        elif values in self.tensors:
            tensor = self.tensors[values]
            move = UNSIGNED_MOVE if tensor.is_unsigned else 0
            zero = self._zero_point(node, np.zeros(()))
            if np.any(scale != tensor.scale) or np.any(zero - float(move) != tensor.zero):
                raise self.refusal(node, "has another scale or zero point than the tensor that it reads")
            self.keep(node.output[0], values)
        else:
            raise self.refusal(node, "reads no quantized tensor")

    def quantize(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        name, scale = node.output[0], self.constant_at(node, 1)
        kind = attributes.get("output_dtype", 0) or onnx.TensorProto.UINT8
        zero = self._zero_point(node, np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(kind)))
        if scale.size != 1 or zero.size != 1 or zero.dtype not in (np.int8, np.uint8):
            raise self.refusal(node, "does not make int8 or uint8 with one scale")
        if not 0 < scale.item() < np.inf:
            raise self.refusal(node, f"has a scale of {scale.item():g}")
        is_unsigned = zero.dtype == np.uint8
        number = np.float32(scale.item()), int(zero.item()) - (UNSIGNED_MOVE if is_unsigned else 0), is_unsigned
        before, pending = self.tensors.get(node.input[0]), self.pending.get(node.input[0])
        if before is not None and before.number_format == number:
            self.keep(name, node.input[0])  # the same integers
            return
        if node.input[0] in self.constants:
            self._quantize_constant(node, *number)
            return
        if before is not None and pending is None:  # another number format, as one that is joined with nothing
            order = self.order_of(node.input[0])
            extents = self.extents_of(node, before, order[0])
            pending = Pending("joined", ("channels", [before]), extents=extents, order=order)
        if pending is None and node.input[0] not in self.inputs:
            raise self.refusal(node, "quantizes what the engine did not compute")
        extents = pending.extents if pending and pending.extents else self._extents(node, node.input[0])
        tensor = EngineTensor(name, *extents[:3], *number, extents[3])
        self.tensors[name] = tensor
        if pending is not None:
            if pending.order[0] != "plain":
                self.orders[name] = pending.order
            self.finishes[pending.kind](self, node, pending, tensor)

    def keep(self, name: str, known: str) -> None:
        """Let a name mean the same integers, in the same order, as another one."""
        self.tensors[name] = self.tensors[known]
        if known in self.orders:
            self.orders[name] = self.orders[known]

    def _quantize_constant(self, node: onnx.NodeProto, scale: np.float32, zero: int, is_unsigned: bool) -> None:
        low, high = (0, 255) if is_unsigned else (LEAST, MOST)
        move = UNSIGNED_MOVE if is_unsigned else 0
        whole = np.clip(np.rint(self.constants[node.input[0]] / scale) + zero + move, low, high)
        self.constants[node.output[0]] = whole.astype(np.uint8 if is_unsigned else np.int8)

    def _extents(self, node: onnx.NodeProto, name: str) -> Extents:
        shape = self.shapes.get(name, [])
        if len(shape) not in (2, 3, 4) or not all(shape) or shape[0] != 1:
            raise self.refusal(node, f"needs a map or rows of batch 1 with known extents, not {shape}")
        if len(shape) == 3:
            return shape[2], shape[1], 1, "rows"
        if max(shape) > MOST_EXTENT:
            raise self.refusal(node, f"has an extent above {MOST_EXTENT}: {shape}")
        channels, height, width = (*shape[1:], 1, 1)[:3]
        return channels, height, width, "map"

    def extents_of(self, node: onnx.NodeProto, x: EngineTensor, order: HeadOrder) -> Extents:
        """Return the extents of a result that is arranged as a tensor in this order is."""
        if order in ("chunks", "piled"):
            raise self.refusal(node, "works on several tensors side by side")
        return x.channels, x.height, x.width, "map" if x.layout == "map" else LAYOUTS.get(order, "rows")

    def is_read_once(self, tensor: EngineTensor) -> bool:
        """Whether nothing but one reader of its numbers has a tensor, which is no output."""
        names = [name for name, each in self.tensors.items() if each is tensor]
        outputs = {each.name for each in self.graph.output}
        return sum(self.readers[name] for name in names) <= len(names) and not outputs & set(names)

    def constant(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
        if len(attributes) != 1 or not attributes.keys() <= CONSTANT_KINDS.keys():
            raise self.refusal(node, f"a constant that is no tensor and no number: {', '.join(attributes)}")
        ((kind, value),) = attributes.items()
        dtype = CONSTANT_KINDS[kind]
        self.constants[node.output[0]] = numpy_helper.to_array(value) if dtype is None else np.array(value, dtype)

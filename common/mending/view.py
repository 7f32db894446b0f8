"""The graph of a model as a mend reads it: who writes a tensor, who reads it, which tensors are constant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from common.messages.errors import PipelineError
from common.onnx_graph.reading.naming import expand

Array: TypeAlias = npt.NDArray[Any]
STANDARD = ("", "ai.onnx")
MOST_BYTES = 2**31 - 2**20  # of one protobuf message, less the graph
# Standard operators of which each element depends on one element, and a zero stays finite.
ACTIVATIONS = frozenset(["Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Tanh"])


def mendable_model(path: Path) -> onnx.ModelProto:
    """Read a model that was loaded before, so that its file is known to be valid.

    Raises:
        PipelineError: it is too large to be written as one file.
    """
    model, _ = expand(onnx.load(path))
    if model.ByteSize() > MOST_BYTES:
        raise PipelineError(path, "its weights take more than 2 GB, so no mended model can be written")
    return model


@dataclass(frozen=True)
class View:
    """A model as a mend reads it; whoever changes the model makes a new view."""

    model: onnx.ModelProto

    @property
    def graph(self) -> onnx.GraphProto:
        return self.model.graph

    @cached_property
    def writers(self) -> Mapping[str, onnx.NodeProto]:
        return {name: node for node in self.graph.node for name in node.output if name}

    @cached_property
    def readers(self) -> Mapping[str, Sequence[onnx.NodeProto]]:
        """The nodes that read a tensor, once per operand; the owner of a body reads what the body reads."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in read_by(node):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def returned(self) -> frozenset[str]:
        return frozenset(output.name for output in self.graph.output)

    @cached_property
    def given(self) -> frozenset[str]:
        return frozenset(value.name for value in self.graph.input)

    @cached_property
    def constants(self) -> Mapping[str, TensorProto]:
        """Tensors that no caller can change: an initializer that is also an input is a default, and not constant."""
        found = {tensor.name: tensor for tensor in self.graph.initializer if tensor.name not in self.given}
        for node in self.graph.node:
            if node.op_type == "Constant" and (value := attribute(node, "value")) is not None:
                found[node.output[0]] = value
        return found

    @cached_property
    def _types(self) -> Mapping[str, onnx.TypeProto.Tensor]:
        model = self.model
        if model.ByteSize() < MOST_BYTES:  # which shape inference takes
            try:
                model = shape_inference.infer_shapes(model, data_prop=True)
            except Exception:  # it raises what it likes; then only declared shapes are known
                model = self.model
        declared = (*model.graph.input, *model.graph.value_info, *model.graph.output)
        return {value.name: value.type.tensor_type for value in declared}

    def constant(self, tensor: str) -> Array | None:
        held = self.constants.get(tensor)
        return None if held is None else numpy_helper.to_array(held)

    def shape(self, tensor: str) -> tuple[int | None, ...] | None:
        """Return the sizes of a tensor's axes, None for those that are not fixed; None if even the rank is unknown."""
        if (held := self.constants.get(tensor)) is not None:
            return tuple(held.dims)
        known = self._types.get(tensor)
        if known is None or not known.HasField("shape"):
            return None
        return tuple(axis.dim_value if axis.HasField("dim_value") else None for axis in known.shape.dim)

    def element_type(self, tensor: str) -> int:
        """Return the type of a tensor's elements, as a number of TensorProto; 0 where it is unknown."""
        held = self.constants.get(tensor)
        if held is not None:
            return held.data_type
        return self._types[tensor].elem_type if tensor in self._types else TensorProto.UNDEFINED

    def number(self, tensor: str) -> float | None:
        """Return the element of a constant that has one."""
        held = self.constant(tensor)
        return float(held.reshape(-1)[0]) if held is not None and held.size == 1 else None

    def writer(self, tensor: str, *op_types: str) -> onnx.NodeProto | None:
        """Return the node that writes a tensor if it is one of these operators of ONNX."""
        node = self.writers.get(tensor)
        return node if node is not None and is_standard(node, *op_types) else None

    def only_reader(self, tensor: str, *op_types: str) -> onnx.NodeProto | None:
        """Return the node that alone reads a tensor, if it is one of these operators of ONNX, or if none are given.

        None if several nodes read it, or the model returns it.
        """
        readers = self.readers.get(tensor, ())
        if len(readers) != 1 or tensor in self.returned or (op_types and not is_standard(readers[0], *op_types)):
            return None
        return readers[0]


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that a node and its bodies read."""
    yield from filter(None, node.input)
    for one in node.attribute:
        for body in (one.g, *one.graphs):
            for inner in body.node:
                yield from read_by(inner)
            yield from (output.name for output in body.output)


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


def is_standard(node: onnx.NodeProto, *op_types: str) -> bool:
    return node.op_type in op_types and node.domain in STANDARD


def operand(node: onnx.NodeProto | None, place: int) -> str:
    """Return the name of an operand; the empty text where it, or the node, is absent."""
    return node.input[place] if node is not None and place < len(node.input) else ""


def beside(node: onnx.NodeProto | None, tensor: str) -> str:
    """Return the name of the first operand that is another tensor; the empty text where there is none."""
    return next((name for name in node.input if name != tensor), "") if node is not None else ""

"""Types and shapes of every value: ONNX's own inference, and where that stops, one node at a time.

The whole graph goes through ONNX's inference first, with data propagation where its inputs are small. What is still
unknown after that is taken up in topological order: by the operator's own inference with the values that can be found
(``values``), by the rules for ONNX Runtime's operators (``contrib_shapes``), or from the node's value itself. Control
flow is in ``control_flow``. With ``bounded`` a shape that depends on data becomes the largest that it can be
(``upper_bounds``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import onnx
from onnx import helper, numpy_helper

from common.graph import Body, Tensor
from common.onnx_graph import control_flow
from common.onnx_graph.contrib_shapes import contrib_outputs
from common.onnx_graph.regions import Region, read_region
from common.onnx_graph.types import UNKNOWN, TensorType, ValueType, merge, to_tensor, type_proto, value_type
from common.onnx_graph.upper_bounds import upper_bound
from common.onnx_graph.values import Array, Values

# What ONNX raises about a graph or a node that it finds wrong.
INVALID = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError)
LARGEST_PROPAGATED = 65_536  # elements of a graph's input
LARGEST_VALUE = 4096  # elements: no operator takes a shape, an axis or a bound from a larger tensor


@dataclass(slots=True)
class Inference:
    """The types of all values, and the bodies with how often they run."""

    opsets: Mapping[str, int]
    values: Values
    types: dict[str, ValueType]
    bodies: dict[str, Body] = field(default_factory=dict)
    bounded: bool = False

    def visit(self, region: Region) -> None:
        """Complete the types of a region and of the bodies in it."""
        for node in region.nodes:
            if node.name in region.bodies:
                control_flow.visit(self, node, region)
                if not region.name:  # inside a body the names that a nested one captures are other ones
                    self._learn_all(self._by_value(node))
            elif not all(self._is_known(name) for name in node.output if name):
                self._complete(node)

    def has_unknowns(self, region: Region) -> bool:
        """Whether a shape or the number of passes through a body depends on data."""
        passes = any(body.execution_count is None for body in self.bodies.values())
        made = (name for part in region.walk() for node in part.nodes for name in node.output if name)
        return passes or any(not self._is_known(name) for name in made)

    def tensor_type(self, name: str) -> TensorType:
        """What is known of a tensor; nothing where it is no tensor."""
        found = self.types.get(name, UNKNOWN)
        return found if isinstance(found, TensorType) else UNKNOWN

    def learn(self, name: str, found: ValueType) -> None:
        """Add to what is known of a value."""
        if name:
            self.types[name] = merge(self.types.get(name), found)

    def _learn_all(self, found: Mapping[str, ValueType]) -> None:
        for name, value in found.items():
            self.learn(name, value)

    def _is_known(self, name: str) -> bool:
        found = self.types.get(name)
        return found is not None and (not isinstance(found, TensorType) or found.is_known)

    def _complete(self, node: onnx.NodeProto) -> None:
        if self.bounded and node.op_type == "Split":  # its last part may shrink while the data grow
            self._bound(node)
        for infer in (self._by_schema, self._by_contrib_rule, self._by_value):
            self._learn_all(infer(node))
            if all(self._is_known(name) for name in node.output if name):
                return
        if self.bounded:
            self._bound(node)

    def _by_schema(self, node: onnx.NodeProto) -> dict[str, ValueType]:
        """The operator's own inference, with the operands' values where they can be found."""
        schema = _schema(node.op_type, self.opsets.get(node.domain, 0), node.domain)
        if schema is None or any(name not in self.types for name in node.input if name):
            return {}
        types = {name: type_proto(self.types[name]) for name in node.input if name}
        data = {name: numpy_helper.from_array(value) for name in types if (value := self._small(name)) is not None}
        imports = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        try:
            found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, None, imports, _IR_VERSION)
        except INVALID:
            return {}
        return {name: value_type(proto) for name, proto in found.items()}

    def _small(self, name: str) -> Array | None:
        """The value of an operand that may hold a shape, an axis or a bound."""
        count = self.tensor_type(name).element_count
        if count is None or count > LARGEST_VALUE:
            return None
        value = self.values.find(name)
        return value if value is not None and value.dtype.kind in "iufb" else None

    def _by_contrib_rule(self, node: onnx.NodeProto) -> dict[str, ValueType]:
        operands = [self._operand(name) for name in node.input]
        found = contrib_outputs(node, operands, self.values.find) or ()
        return {name: TensorType(*output) for name, output in zip(node.output, found, strict=False) if name and output}

    def _operand(self, name: str) -> Tensor | None:
        return to_tensor(name, self.types.get(name, UNKNOWN), "activation") if name else None

    def _by_value(self, node: onnx.NodeProto) -> dict[str, ValueType]:
        unknown = (name for name in node.output if name and not self._is_known(name))
        values = {name: self.values.find(name) for name in unknown}
        return {
            name: TensorType(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in values.items()
            if value is not None
        }

    def _bound(self, node: onnx.NodeProto) -> None:
        operands = [self._operand(name) for name in node.input]
        for name, shape in zip(node.output, upper_bound(node, operands, self.values.find) or (), strict=False):
            self.learn(name, TensorType(self.tensor_type(name).element_type, shape))


def infer_model(model: onnx.ModelProto, given: Mapping[str, Array]) -> tuple[Region, Inference]:
    """The types of all values of a model whose nodes have names of their own and whose inputs have numbers as shapes.

    Args:
        model: the model, its functions inlined; it is used up.
        given: values of graph inputs, for shapes that depend on them.

    Raises:
        PipelineError: a control-flow node breaks its operator's specification.
    """
    _say_defaults(model)
    opsets = imported_opsets(model)
    region = read_region(_inferred(model).graph)
    types = region.stored_types()
    inference = Inference(opsets, Values(types, opsets, dict(given)), types)
    inference.values.add_region(region)
    inference.visit(region)
    return region, inference


def imported_opsets(model: onnx.ModelProto) -> dict[str, int]:
    """Operator set versions by domain; ONNX's own domain is an empty name."""
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what ONNX's own inference finds; as it is where that gives up as a whole."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=_is_small(model.graph))
    except (*INVALID, MemoryError):
        return model
    model.Clear()  # else it would stand in memory twice
    return inferred


def _is_small(graph: onnx.GraphProto) -> bool:
    """Whether values may be propagated: ONNX does that for any tensor with one axis, at 200 bytes an element."""
    inputs = (value_type(value.type) for value in graph.input)
    counts = [found.element_count for found in inputs if isinstance(found, TensorType)]
    return all(count is not None and count <= LARGEST_PROPAGATED for count in counts)


def _say_defaults(model: onnx.ModelProto) -> None:
    """ONNX's inference takes an STFT that does not say so for two-sided; the operator's default is one-sided."""
    for node in model.graph.node:
        if node.op_type == "STFT" and not any(attribute.name == "onesided" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("onesided", 1))


def bound_types(region: Region, exact: Inference) -> Inference:
    """The same with every shape that depends on data as large as it can be; values stay those that are certain."""
    values = Values(exact.types, exact.opsets, exact.values.given)
    inference = Inference(exact.opsets, values, dict(exact.types), bounded=True)
    values.add_region(region)
    inference.visit(region)
    return inference


_IR_VERSION = 10


@cache
def _schema(op_type: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # a name that is no text comes as bytes
        return None

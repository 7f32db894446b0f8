"""Types and shapes of the outputs of one node, for a node where ONNX's inference of the whole graph stopped.

There are three sources, in this order: the operator's own inference with the known values of its operands (``values``),
the rules for ONNX Runtime's operators (``contrib_shapes``), and the value of the output itself. With ``bounded``, a
shape that depends on data takes its upper bound (``upper_bounds``).
"""

from __future__ import annotations

from functools import cache

import onnx
from onnx import helper, numpy_helper

from common.graph import Tensor
from common.onnx_graph.contrib_shapes import contrib_outputs
from common.onnx_graph.inference_state import InferenceState
from common.onnx_graph.malformed import INVALID
from common.onnx_graph.types import UNKNOWN, TensorType, ValueType, to_tensor, type_proto, value_type
from common.onnx_graph.upper_bounds import upper_bound
from common.onnx_graph.values import Array

LARGEST_VALUE = 4096  # elements: no operator takes a shape, an axis or a bound from a larger tensor
IR_VERSION = 10


def infer_node(state: InferenceState, node: onnx.NodeProto) -> None:
    """Complete the types of a node's outputs as far as they can be known."""
    if state.bounded and node.op_type == "Split":  # its last part may shrink while the data grow
        _take_bounds(state, node)
    for infer in (_by_schema, _by_contrib_rule, by_value):
        state.learn_all(infer(state, node))
        if all(state.is_known(name) for name in node.output if name):
            return
    if state.bounded:
        _take_bounds(state, node)


def by_value(state: InferenceState, node: onnx.NodeProto) -> dict[str, ValueType]:
    """Return the types of the outputs whose values can be computed without running the model."""
    unknown = (name for name in node.output if name and not state.is_known(name))
    values = {name: state.values.find(name) for name in unknown}
    return {
        name: TensorType(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in values.items()
        if value is not None
    }


def _by_schema(state: InferenceState, node: onnx.NodeProto) -> dict[str, ValueType]:
    """Ask the operator's own inference, with the operands' values where they can be found."""
    schema = _schema(node.op_type, state.opsets.get(node.domain, 0), node.domain)
    if schema is None or any(name not in state.types for name in node.input if name):
        return {}
    types = {name: type_proto(state.types[name]) for name in node.input if name}
    data = {name: numpy_helper.from_array(value) for name in types if (value := _small_value(state, name)) is not None}
    imports = [helper.make_opsetid(domain, version) for domain, version in state.opsets.items()]
    try:
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, types, data, None, imports, IR_VERSION)
    except INVALID:
        return {}
    return {name: value_type(proto) for name, proto in inferred.items()}


@cache
def _schema(op_type: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: a name that is not text arrives as bytes
        return None


def _small_value(state: InferenceState, name: str) -> Array | None:
    """Return the value of an operand that may hold a shape, an axis or a bound."""
    count = state.tensor_type(name).element_count
    if count is None or count > LARGEST_VALUE:
        return None
    value = state.values.find(name)
    return value if value is not None and value.dtype.kind in "iufb" else None


def _by_contrib_rule(state: InferenceState, node: onnx.NodeProto) -> dict[str, ValueType]:
    outputs = contrib_outputs(node, _operands(state, node), state.values.find) or ()
    return {name: TensorType(*output) for name, output in zip(node.output, outputs, strict=False) if name and output}


def _take_bounds(state: InferenceState, node: onnx.NodeProto) -> None:
    shapes = upper_bound(node, _operands(state, node), state.values.find) or ()
    for name, shape in zip(node.output, shapes, strict=False):
        state.learn(name, TensorType(state.tensor_type(name).element_type, shape))


def _operands(state: InferenceState, node: onnx.NodeProto) -> list[Tensor | None]:
    return [to_tensor(name, state.types.get(name, UNKNOWN), "activation") if name else None for name in node.input]

"""Types and shapes of the outputs of one node, for a node where ONNX's inference of the whole graph stopped.

There are three sources, in this order: the operator's own inference with the known values of its operands (``values``),
the rules for ONNX Runtime's operators (``contrib``), and the value of the output itself. With ``bounded``, a
shape that depends on data is replaced by its upper bound (``upper_bounds``).
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from functools import cache, lru_cache

import onnx
from onnx import helper, numpy_helper

from common.graphs.graph import Tensor
from common.onnx_graph.malformed import INVALID, MalformedNodeError
from common.onnx_graph.shapes.contrib import contrib_outputs
from common.onnx_graph.shapes.evaluation import (
    MOST_KEPT,
    Frozen,
    Opsets,
    frozen,
    holds_bodies,
    is_small,
    nameless,
    thawed,
)
from common.onnx_graph.shapes.inference_state import InferenceState
from common.onnx_graph.shapes.types import UNKNOWN, Array, TensorType, ValueType, to_tensor, type_proto, value_type
from common.onnx_graph.shapes.upper_bounds import upper_bound

LARGEST_VALUE = 4096  # elements: no operator takes a shape, an axis or a bound from a larger tensor, or from a matrix
IR_VERSION = 10
# What is before the reason in an error of ONNX.
_REASON = re.compile(r"^(?:\[\w+Error\]|\(op_type:.*?\):|Inference error\(s\):|\s)+")


def infer_node(state: InferenceState, node: onnx.NodeProto) -> None:
    """Complete the types of a node's outputs as far as they can be known."""
    if state.bounded and node.op_type == "Split":  # its last part may shrink while the data grow
        _take_bounds(state, node)
    for infer in (_by_schema, _by_contrib_rule, by_value):
        state.learn_all(infer(state, node))
        if state.is_settled(node):
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
    has_types = all(name in state.types for name in node.input if name)
    if not has_types or not has_schema(node.op_type, state.opsets.get(node.domain, 0), node.domain):
        return {}
    types = [state.types[name] if name else None for name in node.input]
    values = [_small_value(state, name) if name else None for name in node.input]
    imports = tuple(state.opsets.items())
    is_plain = not holds_bodies(node) and not any(isinstance(known, onnx.TypeProto) for known in types)
    if is_plain and all(value is None or is_small(value) for value in values):
        inferred = _kept(nameless(node), tuple(types), tuple(map(frozen, values)), imports)
    else:
        inferred = _inferred(node, types, values, imports)
    return {name: learned for name, learned in zip(node.output, inferred, strict=False) if name and learned}


@lru_cache(MOST_KEPT)
def _kept(
    content: bytes, types: tuple[TensorType | None, ...], values: tuple[Frozen | None, ...], imports: Opsets
) -> tuple[ValueType | None, ...]:
    """Return what was inferred for a node of the same attributes and operands; a model has many alike."""
    arrays = [None if key is None else thawed(key) for key in values]
    return _inferred(onnx.NodeProto.FromString(content), types, arrays, imports)


def _inferred(
    node: onnx.NodeProto, types: Sequence[ValueType | None], values: Sequence[Array | None], imports: Opsets
) -> tuple[ValueType | None, ...]:
    try:
        return _inferred_by_schema(node, types, values, imports)
    except INVALID:
        return ()


def _inferred_by_schema(
    node: onnx.NodeProto, types: Sequence[ValueType | None], values: Sequence[Array | None], imports: Opsets
) -> tuple[ValueType | None, ...]:
    """Return the types of the outputs; ONNX raises one of ``INVALID`` for operands that the operator does not allow."""
    schema = onnx.defs.get_schema(node.op_type, dict(imports).get(node.domain, 0), node.domain)
    operands = [*zip(node.input, types, values, strict=True)]
    protos = {name: type_proto(known) for name, known, _ in operands if known is not None}
    data = {name: numpy_helper.from_array(value) for name, _, value in operands if value is not None}
    opsets = [helper.make_opsetid(domain, number) for domain, number in imports]
    inferred = onnx.shape_inference.infer_node_outputs(schema, node, protos, data, None, opsets, IR_VERSION)
    return tuple(value_type(inferred[name]) if name in inferred else None for name in node.output)


@cache
def has_schema(op_type: str, version: int, domain: str) -> bool:
    try:
        return bool(onnx.defs.get_schema(op_type, version, domain))
    except onnx.defs.SchemaError:
        return False


def require_allowed(state: InferenceState, node: onnx.NodeProto, fixed: Container[str]) -> None:
    """Check the operands of a node by its operator's own inference, as ONNX Runtime does when it loads a model.

    Types are those of the finished inference. Of operands that are not ``fixed`` only the rank counts, because their
    extents may be those of a sample or of one pass. Operands that are not allowed are a MalformedNodeError.
    """
    version = state.opsets.get(node.domain, 0)
    names = [name for name in node.input if name]
    if holds_bodies(node) or not has_schema(node.op_type, version, node.domain) or not state.types.keys() >= {*names}:
        return
    types = [_of_rank(state.types[name], name in fixed) if name else None for name in node.input]
    values = [_small_value(state, name) if name in fixed else None for name in node.input]
    try:
        _inferred_by_schema(node, types, values, tuple(state.opsets.items()))
    except INVALID as error:
        raise MalformedNodeError(node, _REASON.sub("", str(error).strip().splitlines()[0])) from None


def _of_rank(known: ValueType, is_fixed: bool) -> ValueType:
    if is_fixed or not isinstance(known, TensorType) or known.shape is None:
        return known
    return TensorType(known.element_type, (None,) * len(known.shape))


def _small_value(state: InferenceState, name: str) -> Array | None:
    known = state.tensor_type(name)
    if known.element_count is None or known.element_count > LARGEST_VALUE or len(known.shape or ()) > 1:
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

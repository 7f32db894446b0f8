"""A model in fp16 computes in fp32: a processor without fp16 arithmetic converts each operand before it computes."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from common.mending.rewrite import Case, Mended, NoMend, fresh, tidied
from common.mending.view import View

TYPES = ("to", "dtype")  # attributes that name an element type
HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT
WITH_BODY = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def widen_halves(case: Case) -> Mended | NoMend:
    """Make every fp16 tensor inside the model fp32; inputs and outputs keep their types, behind casts."""
    if any(attribute.type in WITH_BODY for node in case.model.graph.node for attribute in node.attribute):
        return NoMend("the model has bodies, whose tensors keep their types")
    model = deepcopy(case.model)
    graph = model.graph
    is_half = [_widened(held) for held in graph.initializer]
    is_half += [_with_float(part) for node in graph.node for part in node.attribute]
    for value in filter(_of_half, graph.value_info):
        is_half.append(True)
        value.type.tensor_type.elem_type = FLOAT
    if not any([*is_half, _border(View(case.model), graph)]):
        return NoMend("the model has no fp16")
    used = [node.name for node in case.model.graph.node if node.name in case.nodes]
    return Mended(tidied(model), tuple(used))


def _of_half(one: onnx.ValueInfoProto) -> bool:
    return bool(one.type.tensor_type.elem_type == HALF)


def _widened(held: TensorProto) -> bool:
    if held.data_type != HALF:
        return False
    held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held).astype(np.float32), held.name))
    return True


def _with_float(one: onnx.AttributeProto) -> bool:
    if one.type == onnx.AttributeProto.TENSOR:
        return _widened(one.t)
    if one.name in TYPES and one.type == onnx.AttributeProto.INT and one.i == HALF:
        one.i = FLOAT
        return True
    return False


def _border(view: View, graph: onnx.GraphProto) -> bool:
    """Cast inputs after they come, and outputs before they go; return whether any was in fp16."""
    defaults = {tensor.name for tensor in graph.initializer}
    halves = [(value, False) for value in graph.input if _of_half(value)]
    halves += [(value, True) for value in graph.output if _of_half(value)]
    for value, is_output in halves:
        if not is_output and value.name in defaults:
            value.type.tensor_type.elem_type = FLOAT
            continue
        wide = fresh(view, f"{value.name}/wide")
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [wide if name == value.name else name for name in names]
        source, target, to = (wide, value.name, HALF) if is_output else (value.name, wide, FLOAT)
        graph.node.append(helper.make_node("Cast", [source], [target], wide, to=to))
    return bool(halves)

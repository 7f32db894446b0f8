"""If, Loop and Scan: what their bodies are given and give back, and how often each runs.

Definitions: onnx.ai/onnx/operators (If, Loop, Scan). A body's count is None where it depends on data; the bound is
then the most that it can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from common.errors import PipelineError
from common.graph import Body, Count, Dim, Shape
from common.onnx_graph.regions import Region
from common.onnx_graph.types import TensorType, ValueType, common_shape, merge

if TYPE_CHECKING:
    from common.onnx_graph.inference import Inference

NO_LIMIT = 2**63 - 1  # what exporters write as the trip count of a `while`
LOOP_PARAMETERS = 2  # trip count and condition, before the carried values


def visit(inference: Inference, node: onnx.NodeProto, region: Region) -> None:
    """Complete the types in a control-flow node's bodies and of its outputs.

    Raises:
        PipelineError: the node breaks its operator's specification.
    """
    bodies = region.bodies[node.name]
    outer = inference.bodies.get(region.name, Body("", "", 1, 1))
    try:
        _VISITS.get(node.op_type, _visit_other)(inference, node, bodies, outer)
    except (LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        problem = f"its operands, attributes or bodies are none that {node.op_type} takes"
        remedy = "onnx.checker tells what is wrong with the model"
        raise PipelineError(f"node {node.name!r}", problem, remedy) from error


def _visit_other(inference: Inference, _node: onnx.NodeProto, bodies: Sequence[Region], outer: Body) -> None:
    """SequenceMap, or an operator that this project does not know: nobody knows how often its bodies run."""
    for body in bodies:
        _enter(inference, body, outer, None, None)


def aliases(node: onnx.NodeProto, body: Region) -> dict[str, str]:
    """What the body calls the operands that are handed to it, by the name in the body."""
    if node.op_type == "Loop":  # the first formal input is the number of the iteration, which no operand gives
        return dict(zip(body.inputs[1:], node.input[1:], strict=False))
    return dict(zip(body.inputs, node.input, strict=False))


def _enter(inference: Inference, body: Region, outer: Body, count: Count | None, bound: Count | None) -> None:
    """Note how often the body runs, and complete its types."""
    executions, most = _times(outer.execution_count, count), _times(outer.execution_bound, bound)
    inference.bodies[body.name] = Body(body.name, body.owner, executions, most)
    for name in (name for made in body.nodes for name in made.output):  # an earlier pass may have known too much
        inference.types.pop(name, None)
        inference.values.known.pop(name, None)
    inputs = set(body.inputs)
    for name, stored in body.stored_types().items():
        if name not in inputs:  # those are given, and may change from pass to pass
            inference.learn(name, stored)
    inference.values.add_region(body)
    inference.visit(body)


def _times(one: Count | None, other: Count | None) -> Count | None:
    return None if one is None or other is None else one * other


# --- If -------------------------------------------------------------------------------------------------------------


def _visit_if(inference: Inference, node: onnx.NodeProto, bodies: Sequence[Region], outer: Body) -> None:
    """The branch taken where the condition is known; what holds of both where it is not."""
    condition = inference.values.find(node.input[0])
    taken = None if condition is None else ("then_branch" if condition.item() else "else_branch")
    for body in bodies:
        count = None if taken is None else int(body.attribute == taken)
        _enter(inference, body, outer, count, 1 if count is None else count)
    outcomes = [body.outputs for body in bodies if taken in (None, body.attribute)]
    for position, name in enumerate(node.output):
        inference.learn(name, _either(inference, [names[position] for names in outcomes]))


def _either(inference: Inference, names: Sequence[str]) -> ValueType:
    first = inference.types.get(names[0], TensorType(0, None))
    if isinstance(first, onnx.TypeProto):
        return first
    shape: Shape = first.shape
    for name in names[1:]:
        other = inference.tensor_type(name).shape
        shape = _larger(shape, other) if inference.bounded else common_shape(shape, other)
    return TensorType(first.element_type, shape)


def _larger(one: Shape, other: Shape) -> Shape:
    if one is None or other is None or len(one) != len(other) or None in one or None in other:
        return common_shape(one, other)
    return tuple(max(dims) for dims in zip(one, other, strict=True))


# --- Loop -----------------------------------------------------------------------------------------------------------


def _visit_loop(inference: Inference, node: onnx.NodeProto, bodies: Sequence[Region], outer: Body) -> None:
    """Carried values keep their shape if one pass gives them back unchanged; what changes is unknown."""
    body = bodies[0]
    limit, condition = ([*node.input[:LOOP_PARAMETERS], "", ""])[:LOOP_PARAMETERS]
    initial = [inference.types.get(name, TensorType(0, None)) for name in node.input[LOOP_PARAMETERS:]]
    scalars: list[ValueType] = [TensorType(onnx.TensorProto.INT64, ()), TensorType(onnx.TensorProto.BOOL, ())]
    carried = dict(zip(body.inputs[LOOP_PARAMETERS:], body.outputs[1:], strict=False))
    _settle(inference, body, [*scalars, *initial], carried, outer)
    count, bound = _trips(inference, body, limit, condition)
    _enter(inference, body, outer, count, bound)
    states = len(initial)
    for name, result, start in zip(node.output, body.outputs[1:], initial, strict=False):
        inference.learn(name, start if count == 0 else _kept(inference, result))
    rows = bound if inference.bounded and count is None else count
    for name, result in zip(node.output[states:], body.outputs[1 + states :], strict=True):
        inference.learn(name, _stacked(inference.tensor_type(result), rows, 0))


def _settle(
    inference: Inference, body: Region, given: Sequence[ValueType], carried: Mapping[str, str], outer: Body
) -> None:
    """Give the body its inputs, and drop what a pass shows to change from one iteration to the next.

    Args:
        inference: what is known so far.
        body: the body.
        given: what it is given in the first pass, in the order of its inputs.
        carried: what it calls a carried value, and what it calls the same after the pass.
        outer: the body around it.
    """
    for name, found in zip(body.inputs, given, strict=False):
        inference.types[name] = merge(body.declared.get(name), found)
    is_settled = False
    while not is_settled:  # each pass drops a dimension or is the last
        _enter(inference, body, outer, None, None)
        is_settled = True
        for name, result in carried.items():
            before, after = inference.tensor_type(name), inference.tensor_type(result)
            kept = TensorType(before.element_type, common_shape(before.shape, after.shape))
            if kept.shape != before.shape:
                inference.types[name], is_settled = kept, False


def _kept(inference: Inference, name: str) -> ValueType:
    return inference.types.get(name, TensorType(0, None))


def _trips(inference: Inference, body: Region, limit: str, condition: str) -> tuple[int | None, int | None]:
    """How often the body runs in one run of the Loop, and the most that it can."""
    given = inference.values.find(limit) if limit else None
    most = None if given is None else max(0, int(given.item()))
    if most == NO_LIMIT:
        limit, given, most = "", None, None
    start = inference.values.find(condition) if condition else np.array(True)
    if start is not None and not start.item():
        return 0, 0
    goes_on = _goes_on(inference, body)
    if goes_on is False:
        most = 1 if most is None else min(most, 1)
        is_certain = given is not None or not limit
    else:
        is_certain = goes_on is True
    return (most if is_certain and start is not None else None), most


def _goes_on(inference: Inference, body: Region) -> bool | None:
    """Whether the body's condition is always true: it is the one that was given, or a constant. None: data decide."""
    name = body.outputs[0]
    copies = {node.output[0]: node.input[0] for node in body.nodes if node.op_type == "Identity"}
    while name in copies:
        name = copies.pop(name)
    value = inference.values.find(name)
    if name == body.inputs[1]:
        return True
    return None if value is None else bool(value.item())


# --- Scan -----------------------------------------------------------------------------------------------------------


def _visit_scan(inference: Inference, node: onnx.NodeProto, bodies: Sequence[Region], outer: Body) -> None:
    """Each scanned operand is cut along its axis; the body runs once per slice (operator set 9 and newer)."""
    body = bodies[0]
    attributes = {attribute.name: attribute for attribute in node.attribute}
    scanned = attributes["num_scan_inputs"].i
    states = len(node.input) - scanned
    axes = list(attributes["scan_input_axes"].ints) if "scan_input_axes" in attributes else [0] * scanned
    operands = [inference.tensor_type(name) for name in node.input]
    slices = [_slice(operand, axis) for operand, axis in zip(operands[states:], axes, strict=True)]
    lengths = [length for length, _ in slices if length is not None]
    count = lengths[0] if lengths else None
    carried = dict(zip(body.inputs[:states], body.outputs, strict=False))
    _settle(inference, body, [*operands[:states], *(slice_type for _, slice_type in slices)], carried, outer)
    _enter(inference, body, outer, count, count)
    for name, result in zip(node.output[:states], body.outputs[:states], strict=True):
        inference.learn(name, _kept(inference, result))
    stacked = len(node.output) - states
    axes = list(attributes["scan_output_axes"].ints) if "scan_output_axes" in attributes else [0] * stacked
    for name, result, axis in zip(node.output[states:], body.outputs[states:], axes, strict=True):
        inference.learn(name, _stacked(inference.tensor_type(result), count, axis))


def _slice(operand: TensorType, axis: int) -> tuple[Dim, TensorType]:
    if operand.shape is None:
        return None, operand
    axis %= len(operand.shape)
    rest = operand.shape[:axis] + operand.shape[axis + 1 :]
    return operand.shape[axis], TensorType(operand.element_type, rest)


def _stacked(found: TensorType, count: Dim, axis: int) -> TensorType:
    """The results of all passes, put together along a new axis."""
    if found.shape is None:
        return found
    axis %= len(found.shape) + 1
    return TensorType(found.element_type, (*found.shape[:axis], count, *found.shape[axis:]))


_VISITS = {"If": _visit_if, "Loop": _visit_loop, "Scan": _visit_scan}

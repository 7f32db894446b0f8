"""Shape inference through a graph and the bodies of If, Loop and Scan, with how often each body runs.

Definitions: onnx.ai/onnx/operators (If, Loop, Scan). The execution count of a body is None where it depends on data;
its bound is the largest count that is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import onnx

from common.graphs.graph import Body, Count, Dim, Shape
from common.graphs.operators import ONNX
from common.graphs.sums import product, total
from common.onnx_graph.malformed import MalformedNodeError
from common.onnx_graph.shapes.inference_state import InferenceState
from common.onnx_graph.shapes.node_inference import by_value, infer_node
from common.onnx_graph.shapes.regions import Region
from common.onnx_graph.shapes.types import UNKNOWN, Array, TensorType, ValueType, common_shape, merge

NO_LIMIT = 2**63 - 1  # what exporters write as the trip count of a `while`
MOST_STEPS = 10_000  # nodes that a value may take to compute; the reference implementation runs 20,000 a second
LOOP_PARAMETERS = 2  # trip count and condition, before the carried values


def infer_region(state: InferenceState, region: Region) -> None:
    """Complete the types of a region and of the bodies in it."""
    for node in region.nodes:
        if node.name in region.bodies:
            bodies, is_onnx = region.bodies[node.name], node.domain in (ONNX, "ai.onnx")
            (_RULES.get(node.op_type, _infer_other) if is_onnx else _infer_other)(state, node, bodies)
            steps = _steps(state, bodies)
            if steps is None or steps > MOST_STEPS:
                state.values.known.update((name, None) for name in node.output if name)
            if not region.name:  # in a body, the names that a nested body captures are renamed
                state.learn_all(by_value(state, node))
        elif not state.is_settled(node) and (region.name or not state.repeats(node)):
            infer_node(state, node)
            state.inferred.add(node.name)
        if not region.name:
            state.compare(node, captures=node.name in region.bodies)


def executions(state: InferenceState, region: Region, count: Count | None = 1, bound: Count | None = 1) -> list[Body]:
    """Return how often each body in a region runs, if the region itself runs ``count`` times, ``bound`` at most."""
    counted = []
    for body in (body for bodies in region.bodies.values() for body in bodies):
        passes, most = state.passes[body.name]
        inner = Body(body.name, body.owner, _repeated(count, passes), _repeated(bound, most))
        counted += [inner, *executions(state, body, inner.execution_count, inner.execution_bound)]
    return counted


def _repeated(count: Count | None, passes: Count | None) -> Count | None:
    """Return how often a body runs in all; a number that no counter holds (Loops of 2⁶² passes in Loops) is unknown."""
    runs = product((count, passes))
    return None if isinstance(runs, int) and runs > NO_LIMIT else runs


def _steps(state: InferenceState, bodies: Sequence[Region]) -> Count | None:
    """Return how many nodes the bodies run at most; a pass counts as one, as a body may be empty."""
    inner = ((body, _steps(state, [part for parts in body.bodies.values() for part in parts])) for body in bodies)
    return total(product((state.passes[body.name][1], total((1, len(body.nodes), steps)))) for body, steps in inner)


def _infer_other(state: InferenceState, _node: onnx.NodeProto, bodies: Sequence[Region]) -> None:
    """Infer SequenceMap or an operator that is not known here: how often its bodies run is unknown."""
    for body in bodies:
        state.passes[body.name] = None, None
        _enter(state, body)


def _enter(state: InferenceState, body: Region) -> None:
    for name in (name for node in body.nodes for name in node.output):  # an earlier pass may have assumed too much
        state.types.pop(name, None)
        state.values.known.pop(name, None)
    inputs = set(body.inputs)
    for name, stored in body.stored_types().items():
        if name not in inputs:  # inputs are given, and may change from pass to pass
            state.learn(name, stored)
    state.values.add_region(body)
    infer_region(state, body)


def _single(node: onnx.NodeProto, value: Array, role: str) -> int:
    if value.size != 1 or value.dtype.kind not in "biu":
        raise MalformedNodeError(node, f"its {role} is not a single integer or boolean")
    return int(value.item())


def _infer_if(state: InferenceState, node: onnx.NodeProto, bodies: Sequence[Region]) -> None:
    """Infer the branch that is taken; if the condition is unknown, infer what holds for both."""
    results = {body.attribute: len(body.outputs) for body in bodies}
    if results.keys() != {"then_branch", "else_branch"} or not node.input:
        raise MalformedNodeError(node, "its condition or one of its branches is missing")
    if min(results.values()) < len(node.output):
        raise MalformedNodeError(node, f"it has {len(node.output)} outputs, a branch of it {min(results.values())}")
    condition = state.values.find(node.input[0])
    taken = None
    if condition is not None:
        taken = "then_branch" if _single(node, condition, "condition") else "else_branch"
    for body in bodies:
        count = None if taken is None else int(body.attribute == taken)
        state.passes[body.name] = count, 1 if count is None else count
        _enter(state, body)
    outcomes = [body.outputs for body in bodies if taken in (None, body.attribute)]
    for position, name in enumerate(node.output):
        state.learn(name, _either(state, [names[position] for names in outcomes]))


def _either(state: InferenceState, names: Sequence[str]) -> ValueType:
    first = state.types.get(names[0], UNKNOWN)
    if isinstance(first, onnx.TypeProto):
        return first
    others = (state.tensor_type(name).shape for name in names[1:])
    return TensorType(first.element_type, reduce(_larger if state.bounded else common_shape, others, first.shape))


def _larger(left: Shape, right: Shape) -> Shape:
    """Return the larger extent of each axis; what two shapes have in common where an extent is unknown."""
    if left is None or right is None or len(left) != len(right) or None in left or None in right:
        return common_shape(left, right)
    return tuple(max(dims) for dims in zip(left, right, strict=True))


def _infer_loop(state: InferenceState, node: onnx.NodeProto, bodies: Sequence[Region]) -> None:
    """Infer a Loop: a carried value keeps its shape if one pass returns it unchanged, else the shape is unknown."""
    body, states = bodies[0], max(len(node.input) - LOOP_PARAMETERS, 0)
    stacked, scanned = node.output[states:], body.outputs[1 + states :]
    if len(body.inputs) < LOOP_PARAMETERS or len(body.outputs) <= states or len(stacked) != len(scanned):
        raise MalformedNodeError(node, f"its body has {len(body.inputs)} inputs and {len(body.outputs)} outputs")
    limit, condition = ([*node.input[:LOOP_PARAMETERS], "", ""])[:LOOP_PARAMETERS]
    initial = [state.types.get(name, UNKNOWN) for name in node.input[LOOP_PARAMETERS:]]
    scalars: list[ValueType] = [TensorType(onnx.TensorProto.INT64, ()), TensorType(onnx.TensorProto.BOOL, ())]
    carried = dict(zip(body.inputs[LOOP_PARAMETERS:], body.outputs[1:], strict=False))
    _settle(state, body, [*scalars, *initial], carried)
    count, bound = state.passes[body.name] = _trip_counts(state, node, body, limit, condition)
    for name, result, start in zip(node.output, body.outputs[1:], initial, strict=False):
        state.learn(name, start if count == 0 else state.types.get(result, UNKNOWN))
    rows = bound if state.bounded and count is None else count
    for name, result in zip(stacked, scanned, strict=True):
        state.learn(name, _stacked(state.tensor_type(result), rows, 0))


def _settle(state: InferenceState, body: Region, given: Sequence[ValueType], carried: Mapping[str, str]) -> None:
    """Give the body its inputs, infer it, and forget what changes from one iteration to the next.

    A body in a body is inferred again with each pass of the outer one. It goes on from what it forgot before, or the
    time would double with each level. ``carried`` maps the name of each carried value at the start of a pass to its
    name at the end.
    """
    for name, known in zip(body.inputs, given, strict=False):
        state.types[name] = merge(body.declared.get(name), known)
        if name in state.changing:
            _forget(state, name, state.changing[name])
    changed = [""]
    while changed:  # each pass drops a dimension or is the last
        _enter(state, body)
        changed = [name for name, result in carried.items() if _forget(state, name, state.tensor_type(result).shape)]


def _forget(state: InferenceState, name: str, other: Shape) -> bool:
    """Forget the extents of a carried value that differ in its other shape; return whether there are any."""
    before = state.tensor_type(name)
    kept = common_shape(before.shape, other)
    if kept == before.shape:
        return False
    state.types[name], state.changing[name] = TensorType(before.element_type, kept), kept
    return True


def _trip_counts(
    state: InferenceState, node: onnx.NodeProto, body: Region, limit: str, condition: str
) -> tuple[int | None, int | None]:
    """Return how often the body runs in one execution of the Loop, and its upper bound."""
    given = state.values.find(limit) if limit else None
    most = None if given is None else max(0, _single(node, given, "trip count"))
    if most == NO_LIMIT:
        limit, given, most = "", None, None
    start = state.values.find(condition) if condition else np.array(True)
    if start is not None and not _single(node, start, "condition"):
        return 0, 0
    goes_on = _goes_on(state, node, body)
    if goes_on is False:
        most = 1 if most is None else min(most, 1)
        is_certain = given is not None or not limit
    else:
        is_certain = goes_on is True
    return (most if is_certain and start is not None else None), most


def _goes_on(state: InferenceState, node: onnx.NodeProto, body: Region) -> bool | None:
    """Return whether the body's condition stays true (a constant, or passed through); None if it depends on data."""
    name = body.outputs[0]
    copies = {copy.output[0]: copy.input[0] for copy in body.nodes if copy.op_type == "Identity" and copy.input}
    while name in copies:
        name = copies.pop(name)
    value = state.values.find(name)
    if name == body.inputs[1]:
        return True
    return None if value is None else bool(_single(node, value, "condition"))


def _infer_scan(state: InferenceState, node: onnx.NodeProto, bodies: Sequence[Region]) -> None:
    """Infer a Scan (operator set 9 and newer): the body runs once per slice of the scanned operands."""
    body = bodies[0]
    attributes = {attribute.name: attribute for attribute in node.attribute}
    scanned = attributes["num_scan_inputs"].i if "num_scan_inputs" in attributes else 0
    if not 0 < scanned <= len(node.input):
        raise MalformedNodeError(node, f"it has {len(node.input)} operands and scans {scanned}")
    if len(body.outputs) != len(node.output):
        raise MalformedNodeError(node, f"it has {len(node.output)} outputs, its body {len(body.outputs)}")
    states = len(node.input) - scanned
    operands = [state.tensor_type(name) for name in node.input]
    axes = _axes(node, "scan_input_axes", scanned)
    slices = [_slice(node, operand, axis) for operand, axis in zip(operands[states:], axes, strict=True)]
    lengths = [length for length, _ in slices if length is not None]
    count = lengths[0] if lengths else None
    carried = dict(zip(body.inputs[:states], body.outputs, strict=False))
    _settle(state, body, [*operands[:states], *(slice_type for _, slice_type in slices)], carried)
    state.passes[body.name] = count, count
    for name, result in zip(node.output[:states], body.outputs[:states], strict=True):
        state.learn(name, state.types.get(result, UNKNOWN))
    axes = _axes(node, "scan_output_axes", len(node.output[states:]))
    for name, result, axis in zip(node.output[states:], body.outputs[states:], axes, strict=True):
        state.learn(name, _stacked(state.tensor_type(result), count, axis))


def _axes(node: onnx.NodeProto, name: str, count: int) -> list[int]:
    axes = next((list(attribute.ints) for attribute in node.attribute if attribute.name == name), [0] * count)
    if len(axes) != count:
        raise MalformedNodeError(node, f"{name} names {len(axes)} axes for {count} tensors")
    return axes


def _slice(node: onnx.NodeProto, operand: TensorType, axis: int) -> tuple[Dim, TensorType]:
    if operand.shape is None:
        return None, operand
    if not operand.shape:
        raise MalformedNodeError(node, "it scans a scalar")
    axis %= len(operand.shape)
    slice_shape = operand.shape[:axis] + operand.shape[axis + 1 :]
    return operand.shape[axis], TensorType(operand.element_type, slice_shape)


def _stacked(result: TensorType, count: Dim, axis: int) -> TensorType:
    if result.shape is None:
        return result
    axis %= len(result.shape) + 1
    return TensorType(result.element_type, (*result.shape[:axis], count, *result.shape[axis:]))


_RULES = {"If": _infer_if, "Loop": _infer_loop, "Scan": _infer_scan}

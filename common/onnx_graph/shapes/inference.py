"""Types and shapes of every value of a model.

The whole graph goes through ONNX's inference first, with data propagation where its inputs are small. Whatever is
still unknown after that is inferred in topological order, node by node (``node_inference``) and body by body
(``control_flow``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx
from onnx import helper

from common.onnx_graph.malformed import INVALID, MalformedNodeError
from common.onnx_graph.shapes.budget import EvaluationBudget
from common.onnx_graph.shapes.control_flow import executions, infer_region
from common.onnx_graph.shapes.inference_state import InferenceState
from common.onnx_graph.shapes.node_inference import require_allowed
from common.onnx_graph.shapes.regions import Region, read_region, with_bodies
from common.onnx_graph.shapes.types import Array, TensorType, Value, value_type
from common.onnx_graph.shapes.values import Values

LARGEST_PROPAGATED = 65_536  # elements of a graph's input, or of any tensor with one axis


@dataclass(slots=True)
class Learned:
    """The outcome of inference at one binding of a model's dimensions, for the other bindings."""

    region: Region | None = None  # the model's region with any types, from which the others take their nodes
    constants: dict[str, Array | None] = field(default_factory=dict)
    # The state at the first binding. A shape that is unknown there is unknown over symbols, too.
    first: InferenceState | None = None
    bounds: InferenceState | None = None
    # What may still be computed of values, at all bindings together
    budget: EvaluationBudget = field(default_factory=EvaluationBudget)
    # Whether to seek bounds: all is known at the first binding, or a bound completes a shape there
    has_bounds: bool = True

    def keep(self, exact: InferenceState, bounds: InferenceState | None) -> None:
        self.first, self.bounds = exact, bounds
        self.has_bounds = not bounds or bool(exact.bodies) or bounds.completes(exact)


def infer_model(model: onnx.ModelProto, given: Mapping[str, Array], learned: Learned) -> tuple[Region, InferenceState]:
    """Infer the types of all values of a model whose nodes have unique names and whose input shapes are numbers.

    The model, its functions inlined and its defaults written out, is used up. Constants are added to what other
    bindings of its dimensions have ``learned``. A node that breaks its operator's specification is a PipelineError.
    """
    opsets = imported_opsets(model)
    inferred, is_doubtful = _inferred_by_onnx(model)
    region = read_region(inferred.graph, learned.region)
    types = region.stored_types()
    values = Values(types, opsets, dict(given), constants=learned.constants, budget=learned.budget)
    state = _inferred(region, InferenceState(opsets, values, types, first=learned.first))
    if is_doubtful and not learned.first:
        _require_allowed(region, state, is_bound=learned.region is None)
    if learned.region is None:
        _require_whole_reshapes(region, state)
    return region, state


def _require_allowed(region: Region, state: InferenceState, *, is_bound: bool) -> None:
    """Check every node; extents of weights always count, others only outside bodies and with all dimensions bound."""
    for part in region.walk():
        fixed = state.types if is_bound and part is region else {*region.initializers, *part.initializers}
        for node in part.nodes:
            require_allowed(state, node, fixed)


def _require_whole_reshapes(region: Region, state: InferenceState) -> None:
    """Check that each Reshape to known sizes keeps the number of elements, which ONNX's inference does not.

    An exporter may write a size of its sample into the graph although the dimension has a name. Such a model runs at
    that size alone.
    """
    for node in region.nodes:
        if node.op_type != "Reshape" or node.domain or len(node.input) != 2:
            continue
        read, made = (state.tensor_type(name) for name in (node.input[0], node.output[0]))
        if read.element_count is None or read.element_count == made.element_count:
            continue
        sizes = state.values.find(node.input[1])
        if sizes is not None and sizes.size and (sizes > 0).all() and read.element_count != math.prod(map(int, sizes)):
            problem = f"makes {sizes.tolist()} of {list(read.shape or ())}, which has another number of elements"
            remedy = "the exporter has fixed a size: give that size with <dim>, or export the model again"
            raise MalformedNodeError(node, problem, remedy)


def infer_bounds(region: Region, exact: InferenceState, learned: Learned) -> InferenceState:
    """Infer a model again, with the upper bound of every shape that depends on data; certain values stay."""
    certain: dict[str, Value | None] = {name: value for name, value in exact.values.known.items() if value is not None}
    values = Values(exact.types, exact.opsets, exact.values.given, certain, exact.values.constants, learned.budget)
    state = InferenceState(exact.opsets, values, dict(exact.types), first=learned.bounds or learned.first, bounded=True)
    return _inferred(region, state)


def _inferred(region: Region, state: InferenceState) -> InferenceState:
    state.values.add_region(region)
    infer_region(state, state.to_visit(region))
    state.bodies = {body.name: body for body in executions(state, region)}
    return state


def imported_opsets(model: onnx.ModelProto) -> dict[str, int]:
    """Return operator set versions by domain; ONNX's own domain is an empty name."""
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}


def _inferred_by_onnx(model: onnx.ModelProto) -> tuple[onnx.ModelProto, bool]:
    """Return the model with the shapes that ONNX infers, and whether its inference failed at a node or as a whole.

    Where it fails as a whole, the model is unchanged.
    """
    is_doubtful = False
    try:
        is_small = _has_small_inputs(model.graph) and not _outgrows_its_inputs(model)
        try:
            inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=is_small)
        except INVALID:
            is_doubtful = True
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=is_small)
    except (*INVALID, MemoryError):
        return model, True
    model.Clear()  # else it would be in memory twice
    return inferred, is_doubtful


def _has_small_inputs(graph: onnx.GraphProto) -> bool:
    """Return whether values may be propagated: ONNX then holds 200 bytes per element of a tensor with one axis."""
    types = (value_type(value.type) for value in graph.input)
    counts = [known.element_count for known in types if isinstance(known, TensorType)]
    return all(count is not None and count <= LARGEST_PROPAGATED for count in counts)


def _outgrows_its_inputs(model: onnx.ModelProto) -> bool:
    """Return whether small inputs are joined to a large tensor with one axis, as by Concat(x, x) again and again."""
    if not any(node.op_type == "Concat" for graph in with_bodies(model.graph) for node in graph.node):
        return False
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=False)
    values = (value for graph in with_bodies(inferred.graph) for value in (*graph.value_info, *graph.output))
    types = (value_type(value.type) for value in values)
    lists = (known for known in types if isinstance(known, TensorType) and known.shape and len(known.shape) == 1)
    return any((known.element_count or 0) > LARGEST_PROPAGATED for known in lists)


def write_out_defaults(model: onnx.ModelProto) -> None:
    """Make the default of STFT explicit: ONNX's inference assumes two-sided, the operator's default is one-sided."""
    for node in model.graph.node:
        if node.op_type == "STFT" and not any(attribute.name == "onesided" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("onesided", 1))

"""Which shapes that depend on data follow from the values of the graph's inputs, so that giving these settles them.

The load reads no weights, so a value that a weight helped to compute (the scores of a router) is known only in a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.graphs.graph import Graph, Node, Tensor, is_symbolic
from common.graphs.operators import CONTROL_FLOW, MACHINE_LEARNING, ONNX, REDUCTIONS, SHAPE_CONSTANTS
from common.onnx_graph.reading.scan import KEPT_BYTES
from common.onnx_graph.shapes.budget import LARGEST_OPERAND, NEVER_EVALUATED

# Operands whose values decide the shape of an output; all of them, where an operator is not listed.
SHAPE_OPERANDS: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "TopK", "OneHot", "Split", "Squeeze", "Unsqueeze", "Compress"), (1,)),
    **dict.fromkeys(("CenterCropPad", "SequenceAt", *REDUCTIONS), (1,)),
    **dict.fromkeys(("Slice", "Resize"), (1, 2, 3, 4)),
    "Pad": (1, 3),
}


def settled_by_inputs(graph: Graph) -> frozenset[str]:
    """Return the nodes whose shapes are all known once the values of the graph's inputs are."""
    values = {name for name, tensor in graph.tensors.items() if _is_given(tensor)}
    shapes = {name for name, tensor in graph.tensors.items() if _has_shape(tensor)}
    settled = set[str]()
    for node in graph.nodes:
        read = [name for name in node.inputs if name]
        if _is_computable(graph, node) and values.issuperset(read):
            values.update(node.outputs)
            shapes.update(node.outputs)
        elif shapes.issuperset(read) and values.issuperset(_deciding(graph, node)):
            shapes.update(node.outputs)
            if node.op_type in SHAPE_CONSTANTS:
                values.update(node.outputs)
        if shapes.issuperset(name for name in (*read, *node.outputs) if name):
            settled.add(node.name)
    return frozenset(settled)


def _is_given(tensor: Tensor) -> bool:
    if tensor.kind == "weight":
        size = tensor.size_bytes
        return not is_symbolic(size) and (size or 0) <= KEPT_BYTES
    return tensor.kind == "input"


def _has_shape(tensor: Tensor) -> bool:
    return tensor.kind in ("input", "weight") or (tensor.shape is not None and None not in tensor.shape)


def _is_computable(graph: Graph, node: Node) -> bool:
    is_known = node.domain in (ONNX, MACHINE_LEARNING) and node.op_type not in NEVER_EVALUATED | CONTROL_FLOW
    counts = (graph.tensors[name].element_count for name in (*node.inputs, *node.outputs) if name)
    return is_known and not any(isinstance(count, int) and count > LARGEST_OPERAND for count in counts)


def _deciding(graph: Graph, node: Node) -> list[str]:
    """Return the operands whose values decide the node's shapes, of which at least one is unknown."""
    unknown = [name for name in node.outputs if name and not _has_shape(graph.tensors[name])]
    if not unknown or node.op_type in SHAPE_CONSTANTS:
        return []
    listed = SHAPE_OPERANDS.get(node.op_type)
    if listed is not None:
        return [node.inputs[index] for index in listed if index < len(node.inputs) and node.inputs[index]]
    read = [name for name in node.inputs if name]
    is_origin = all(_has_shape(graph.tensors[name]) for name in read)
    return read if is_origin or node.op_type in CONTROL_FLOW else []

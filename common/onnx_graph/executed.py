"""The graph that ONNX Runtime executes: stored without its weights, loaded, and with the shapes of the trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import onnx
from onnx import helper

from common.graphs.graph import Graph, Node, Shape, Tensor, WorkInRun
from common.graphs.sums import total
from common.messages.errors import UpstreamError
from common.onnx_graph.counts import times
from common.onnx_graph.reading.naming import Bodies, every_node, rename_saved
from common.onnx_graph.reading.scan import scan
from common.onnx_graph.reading.stripping import strip_weights
from common.onnx_graph.reading.validity import require_order
from common.onnx_graph.shapes.inference import imported_opsets
from common.onnx_graph.shapes.regions import read_region, to_graph
from common.onnx_graph.shapes.types import element_type, named_bits, stored_bytes
from common.onnx_graph.shapes.values import Values
from common.onnx_graph.symbols.dimensions import bind_all, size_of
from common.onnx_graph.symbols.lengths import length_inputs, length_operands, length_values, longest, with_values
from common.onnx_graph.work import Work, measure
from common.table_rows import ExecutedEdgesRow, OpLatencyRow
from common.table_rows import Shape as CellShape

Shapes: TypeAlias = Sequence[CellShape | None]  # of the operands of a node, or of its outputs


def without_weights(path: Path, traced: Iterable[tuple[str, str]]) -> bytes:
    """Return the model at ``path`` as bytes, without its weights; see :mod:`common.onnx_graph.reading.stripping`.

    The runtime saves an unnamed node without a name, but traces it as ``OpType_index`` with an index of its own. Such a
    node is given its traced name; nodes of one operator type are matched in the order of their execution.
    """
    model = scan(path).model
    strip_weights(model)
    nodes = [*every_node(model.graph.node)]
    saved = {node.name for node in nodes}
    unnamed: dict[str, deque[str]] = {}
    for name, op_type in traced:
        if name not in saved:
            unnamed.setdefault(op_type, deque()).append(name)
    for node in nodes:
        if not node.name and unnamed.get(node.op_type):
            node.name = unnamed[node.op_type].popleft()
    return bytes(model.SerializeToString(deterministic=True))


def load_executed_graph(path: Path, dimensions: Mapping[str, int]) -> Graph:
    """Load the graph that ONNX Runtime saved, with the shapes that it wrote into the file and its symbols bound."""
    return _executed(path, scan(path).model, dimensions)


def _executed(path: Path, model: onnx.ModelProto, dimensions: Mapping[str, int]) -> Graph:
    require_order(path, model)
    lengths = length_inputs(model)
    bind_all(model, dimensions)
    region = read_region(model.graph)
    types = {name: stored for part in region.walk() for name, stored in part.stored_types().items()}
    given = length_values(model, lengths, partial(size_of, dimensions=dimensions))
    values = Values(types, imported_opsets(model), given)
    values.add_region(region)
    names = (*lengths, *length_operands(region.every_node()))
    numbers = {name: longest(values.find(name)) for name in names}
    return with_values(to_graph(region, types, {}), numbers)


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """The graph that the runtime saved, with a name for each node; ``content`` is a model file without weights."""

    content: bytes
    graph: Graph
    bodies: Bodies


def saved_graph(path: Path, traced: Iterable[tuple[str, str]], dimensions: Mapping[str, int]) -> SavedGraph:
    """Read the graph that the runtime saved.

    Arguments are those of :func:`without_weights` and :func:`load_executed_graph`.
    """
    content, bodies = rename_saved(without_weights(path, traced))
    return SavedGraph(content, _executed(path, onnx.load_from_string(content), dimensions), bodies)


def executed_sizes(executed: Graph, traced: Iterable[OpLatencyRow]) -> dict[str, int | None]:
    """Return the bytes of every tensor, from the shapes of the trace, or else of the saved file, which has few."""
    sizes = {name: tensor.size_bytes for name, tensor in executed.tensors.items()}
    for row in traced:
        node = executed.by_name.get(row["executed_node"])
        if node is None:
            remedy = "both files must come from one run of <op_latency>"
            raise UpstreamError("op_latency.csv", f"{row['executed_node']} is not in the executed graph", remedy)
        for name, dtype, shape in zip(node.outputs, row["output_dtypes"], row["output_shapes"], strict=False):
            known = _traced(shape)
            sizes[name] = None if known is None or None in known else stored_bytes(dtype, known)
    return sizes


def work_in_run(ran: Graph, row: OpLatencyRow, model_shapes: tuple[Shapes, Shapes] = ((), ())) -> WorkInRun:
    """Count one node by its own operator, by the formulas that count the model's nodes.

    ``ran`` is what :func:`with_traced_shapes` returned. An extent that the model knows, by the position of the operand
    or of the output, replaces the traced one, which may be padded.
    """
    node, passes = ran.by_name[row["executed_node"]], row["events_per_run_count"]
    variants = row["shape_variants"] or [[[], [], 1]]  # the graph has the shapes of a node that always has the same
    works = [
        measure(replace(ran, tensors=_tensors(ran, node, inputs, outputs, model_shapes)), node)
        for inputs, outputs, _ in variants
    ]
    counts = [count for *_, count in variants]
    return WorkInRun(*(_in_run(works, field.name, counts, passes) for field in fields(WorkInRun)))


def _in_run(works: Sequence[Work], figure: str, counts: Sequence[int], passes: int | None) -> int | None:
    """Return a figure of one run, to the nearest whole number, where all runs did each work ``counts`` times."""
    amount: int | None = total(times(getattr(work, figure), count) for work, count in zip(works, counts, strict=True))
    events = sum(counts)
    if amount is None or passes is None or not events:
        return None
    return (2 * amount * passes + events) // (2 * events)


def _tensors(
    ran: Graph, node: Node, inputs: Shapes, outputs: Shapes, model_shapes: tuple[Shapes, Shapes]
) -> dict[str, Tensor]:
    tensors = {name: ran.tensors[name] for name in (*node.inputs, *node.outputs) if name}
    for name, shape in (*_operand_shapes(ran, node, inputs), *zip(node.outputs, outputs, strict=False)):
        if name:
            tensors[name] = replace(tensors[name], shape=_traced(shape))
    for names, shapes in zip((node.inputs, node.outputs), model_shapes, strict=True):
        for name, shape in zip(names, shapes, strict=False):
            if name:
                tensors[name] = replace(tensors[name], shape=_known_extents(tensors[name].shape, shape))
    return tensors


def _traced(shape: CellShape | None) -> Shape:
    return None if shape is None else tuple(extent if isinstance(extent, int) else None for extent in shape)


def _known_extents(traced: Shape, known: CellShape | None) -> Shape:
    if traced is None or known is None or len(traced) != len(known):
        return traced
    return tuple(of_model if isinstance(of_model, int) else ran for ran, of_model in zip(traced, known, strict=True))


def with_traced_shapes(executed: Graph, traced: Iterable[OpLatencyRow]) -> Graph:
    """Return the graph with the shapes of the trace; the saved file has few shapes."""
    tensors = dict(executed.tensors)
    for row in traced:
        node = executed.by_name[row["executed_node"]]
        outputs = zip(node.outputs, row["output_shapes"], row["output_dtypes"], strict=False)
        for name, shape, dtype in outputs:
            if name:
                before = tensors[name]
                tensors[name] = Tensor(name, dtype, named_bits(dtype), _traced(shape), before.kind, before.value)
        for name, shape in _operand_shapes(executed, node, row["input_shapes"]):
            if tensors[name].shape is None or None in (tensors[name].shape or ()):
                tensors[name] = replace(tensors[name], shape=_traced(shape))
    return replace(executed, tensors=tensors)


def _operand_shapes(executed: Graph, node: Node, shapes: Shapes) -> Iterable[tuple[str, CellShape | None]]:
    """Return operands with their traced shapes; weights that the runtime has packed are missing from the trace."""
    names = [name for name in node.inputs if name]
    activations = [name for name in names if executed.tensors[name].kind != "weight"]
    return next((zip(known, shapes, strict=True) for known in (names, activations) if len(known) == len(shapes)), ())


def edge_rows(executed: Graph, sizes: Mapping[str, int | None], timed: Set[str]) -> list[ExecutedEdgesRow]:
    """Return every tensor between two nodes that ran, and the graph's own inputs and outputs, as rows."""
    ends = timed | {""}
    return [
        {
            "tensor": edge.tensor,
            "producer": edge.producer,
            "consumer": edge.consumer,
            "tensor_bytes": sizes[edge.tensor],
        }
        for edge in executed.edges()
        if edge.producer in ends and edge.consumer in ends
    ]


def graph_bytes(graph: Graph) -> bytes:
    """Return a graph as a model file: nodes without attributes, and the types and shapes of all tensors."""
    inputs = [tensor for tensor in graph.tensors.values() if tensor.kind == "input"]
    outputs = [graph.tensors[name] for name in graph.outputs]
    ends = {tensor.name for tensor in (*inputs, *outputs)}
    inner = [tensor for tensor in graph.tensors.values() if tensor.name not in ends]
    nodes = [
        helper.make_node(node.op_type, node.inputs, node.outputs, name=node.name, domain=node.domain)
        for node in graph.nodes
    ]
    proto = helper.make_graph(nodes, "executed", _values(inputs), _values(outputs), value_info=_values(inner))
    domains = dict.fromkeys(node.domain for node in graph.nodes)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid(domain, 1) for domain in domains])
    return bytes(model.SerializeToString(deterministic=True))


def _values(tensors: list[Tensor]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(tensor.name, element_type(tensor.dtype), tensor.shape) for tensor in tensors]

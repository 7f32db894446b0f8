"""The graph of the model file: which nodes write and read each tensor, and how many bytes each of them must move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.graphs.cache_names import PAST, paired_names
from common.graphs.graph import Node, operands
from common.graphs.operators import CONTROL_FLOW, SHAPE_CONSTANTS
from common.messages.errors import UpstreamError
from common.messages.names import shown
from common.table_rows import OpEdgesRow, OpMetricsRow


@dataclass(frozen=True, slots=True)
class SourceGraph:
    """Nodes in graph order and their tensors."""

    nodes: dict[str, Node] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    # The node that writes each tensor; weights and inputs of the model have none
    producer: dict[str, str] = field(default_factory=dict)
    consumers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    returned: frozenset[str] = frozenset()
    # Tensors that no run changes: weights, and what is computed from weights or shapes alone
    constants: set[str] = field(default_factory=set)
    # For each tensor the one that holds its bytes: for the output of a view (Reshape, …), the tensor viewed
    storage: dict[str, str] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int | None] = field(default_factory=dict)
    # Bytes that a node must read of a tensor, by (tensor, node)
    reads: dict[tuple[str, str], int | None] = field(default_factory=dict)
    written: dict[str, int | None] = field(default_factory=dict)  # bytes of each tensor that its producer must write

    def variables(self, node: Node) -> tuple[str, ...]:
        """Return the operands of a node that change from run to run."""
        return tuple(name for name in operands(node) if name not in self.constants)

    def sole_reader(self, tensor: str) -> Node | None:
        """Return the only reader of a tensor; None where there are several, or the model returns the tensor."""
        readers = self.consumers.get(tensor, ())
        return self.nodes[readers[0]] if len(readers) == 1 and tensor not in self.returned else None

    def is_free(self, name: str) -> bool:
        """Return whether a node computes and moves nothing in a run: it is a view, or its result is a constant."""
        outputs = self.nodes[name].outputs
        free = [tensor in self.constants or self.storage.get(tensor, tensor) != tensor for tensor in outputs]
        return bool(free) and all(free)

    def in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=self.position.__getitem__))


def from_rows(metrics: Iterable[OpMetricsRow], edges: Iterable[OpEdgesRow]) -> SourceGraph:
    return build({row["source_node"]: row["op_type"] for row in metrics}, tuple(edges))


def build(op_types: Mapping[str, str], edges: Sequence[OpEdgesRow]) -> SourceGraph:
    """Return the graph of nodes, given with their types in graph order, and the tensors between them.

    A tensor that names none of the nodes, or a node that reads what a later one writes, is an UpstreamError.
    """
    inputs: dict[str, dict[str, None]] = {name: {} for name in op_types}
    outputs: dict[str, dict[str, None]] = {name: {} for name in op_types}
    for edge in edges:
        for name, ends in ((edge["producer"], outputs), (edge["consumer"], inputs)):
            if name and name not in op_types:
                problem = f"tensor {shown(edge['tensor'])} names {shown(name)}, which is no node of the model"
                raise UpstreamError("op_edges.csv", problem, "rerun <op_metrics>")
            if name:
                ends[name][edge["tensor"]] = None
    nodes = {name: Node(name, op_types[name], "", tuple(inputs[name]), tuple(outputs[name])) for name in op_types}
    position = {name: index for index, name in enumerate(nodes)}
    _refuse_disorder(position, edges)
    consumers: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for tensor in node.inputs:
            consumers.setdefault(tensor, []).append(name)
    graph = SourceGraph(
        nodes=nodes,
        position=position,
        producer={tensor: name for name, node in nodes.items() for tensor in node.outputs},
        consumers={tensor: tuple(names) for tensor, names in consumers.items()},
        returned=frozenset(edge["tensor"] for edge in edges if not edge["consumer"]),
        constants={edge["tensor"] for edge in edges if edge["tensor_kind"] == "weight"},
        dtypes={edge["tensor"]: edge["dtype"] for edge in edges},
        sizes={edge["tensor"]: edge["tensor_bytes"] for edge in edges},
        reads={(edge["tensor"], edge["consumer"]): edge["read_bytes"] for edge in edges},
        written={edge["tensor"]: edge["written_bytes"] for edge in edges},
    )
    for node in nodes.values():
        _classify_outputs(graph, node)
    return graph


def with_resident_caches(graph: SourceGraph) -> SourceGraph:
    """Return a graph in which a cache of a generative model stays with the node that extends it.

    That node reads a past which it wrote in the call before, and returns it for the next one. So the past is like a
    weight, and nobody outside waits for the present. The keys of an encoder, which no call changes, are like weights
    for all nodes.
    """
    inputs = [tensor for tensor in graph.consumers if tensor not in graph.producer and tensor not in graph.constants]
    paired = paired_names(inputs, graph.returned)
    pairs = {
        past: present for past, present in paired.items() if graph.consumers[past] == (graph.producer.get(present),)
    }
    unchanged = {tensor for tensor in inputs if pairs and PAST in tensor and tensor not in paired}
    kept, returned = graph.constants | pairs.keys() | unchanged, graph.returned - {*pairs.values()}
    return replace(graph, constants=kept, returned=returned)


def _refuse_disorder(position: Mapping[str, int], edges: Iterable[OpEdgesRow]) -> None:
    """Refuse a node that reads what a later node writes: walks along the tensors would go round for ever."""
    for edge in edges:
        producer, consumer = edge["producer"], edge["consumer"]
        if producer and consumer and position[producer] >= position[consumer]:
            problem = f"tensor {shown(edge['tensor'])} goes from {shown(producer)} to {shown(consumer)}"
            raise UpstreamError("op_edges.csv", f"{problem}, which does not come later", "rerun <op_metrics>")


def _classify_outputs(graph: SourceGraph, node: Node) -> None:
    """Add the node's outputs to the constants or to the storage; its operands are there already."""
    variables = graph.variables(node)
    if node.op_type in SHAPE_CONSTANTS or (node.inputs and not variables):
        graph.constants.update(node.outputs)
        return
    moves = [graph.reads[tensor, node.name] for tensor in node.inputs] + [graph.written[name] for name in node.outputs]
    may_be_view = bool(variables) and bool(node.outputs) and node.op_type not in CONTROL_FLOW
    is_view = may_be_view and not any(size is None or size for size in moves)
    for tensor in node.outputs:
        graph.storage[tensor] = graph.storage.get(variables[0], variables[0]) if is_view else tensor

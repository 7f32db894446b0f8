"""The graph of the model file: which nodes write and read each tensor, and how many bytes each of them must move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from common.graphs.cache_names import PAST, paired_names
from common.graphs.graph import Edge, Node, TensorKind, operands
from common.graphs.operators import CONTROL_FLOW, SHAPE_CONSTANTS
from common.messages.errors import UpstreamError
from common.messages.names import shown
from common.table_rows import OpEdgesRow, OpMetricsRow


@dataclass(frozen=True, slots=True)
class EdgeBytes:
    """An edge with the bytes that its producer must write and its consumer must read; None is unknown."""

    edge: Edge
    kind: TensorKind
    dtype: str
    tensor_bytes: int | None
    read_bytes: int | None
    written_bytes: int | None


@dataclass(frozen=True, slots=True)
class SourceGraph:
    """Nodes in graph order and their tensors.

    Attributes:
        producer: the node that writes each tensor; weights and inputs of the model have none.
        constants: tensors that no run changes: weights, and what is computed from weights or shapes alone.
        storage: for each tensor the one that holds its bytes: for the output of a view (Reshape, …), the tensor viewed.
        reads: bytes that a node must read of a tensor, by (tensor, node).
        written: bytes of each tensor that its producer must write.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    producer: dict[str, str] = field(default_factory=dict)
    consumers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    returned: frozenset[str] = frozenset()
    constants: set[str] = field(default_factory=set)
    storage: dict[str, str] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int | None] = field(default_factory=dict)
    reads: dict[tuple[str, str], int | None] = field(default_factory=dict)
    written: dict[str, int | None] = field(default_factory=dict)

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
    flows = [
        EdgeBytes(
            edge=Edge(row["tensor"], row["producer"], row["consumer"]),
            kind=cast("TensorKind", row["tensor_kind"]),
            dtype=row["dtype"],
            tensor_bytes=row["tensor_bytes"],
            read_bytes=row["read_bytes"],
            written_bytes=row["written_bytes"],
        )
        for row in edges
    ]
    return build(((row["source_node"], row["op_type"]) for row in metrics), flows)


def build(op_types: Iterable[tuple[str, str]], flows: Iterable[EdgeBytes]) -> SourceGraph:
    """Return the graph of nodes, given as (name, op_type) in graph order, and the tensors between them.

    Raises:
        UpstreamError: a tensor names a node that is not among the nodes, or a node reads what a later one writes.
    """
    type_of = dict(op_types)
    flows = tuple(flows)
    inputs: dict[str, dict[str, None]] = {name: {} for name in type_of}
    outputs: dict[str, dict[str, None]] = {name: {} for name in type_of}
    for flow in flows:
        edge = flow.edge
        for name, ends in ((edge.producer, outputs), (edge.consumer, inputs)):
            if name and name not in type_of:
                problem = f"tensor {shown(edge.tensor)} names {shown(name)}, which is no node of the model"
                raise UpstreamError("op_edges.csv", problem, "rerun <op_metrics>")
            if name:
                ends[name][edge.tensor] = None
    nodes = {name: Node(name, type_of[name], "", tuple(inputs[name]), tuple(outputs[name])) for name in type_of}
    graph = SourceGraph(
        nodes=nodes,
        position={name: index for index, name in enumerate(nodes)},
        producer={tensor: name for name, node in nodes.items() for tensor in node.outputs},
        returned=frozenset(flow.edge.tensor for flow in flows if not flow.edge.consumer),
        constants={flow.edge.tensor for flow in flows if flow.kind == "weight"},
    )
    _refuse_disorder(graph.position, flows)
    _add_bytes(graph, flows)
    _add_consumers(graph)
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


def _refuse_disorder(position: Mapping[str, int], flows: tuple[EdgeBytes, ...]) -> None:
    """Refuse a node that reads what a later node writes: walks along the tensors would go round for ever."""
    for edge in (flow.edge for flow in flows if flow.edge.producer and flow.edge.consumer):
        if position[edge.producer] >= position[edge.consumer]:
            nodes = f"{shown(edge.producer)} to {shown(edge.consumer)}"
            problem = f"tensor {shown(edge.tensor)} goes from {nodes}, which does not come later"
            raise UpstreamError("op_edges.csv", problem, "rerun <op_metrics>")


def _add_bytes(graph: SourceGraph, flows: tuple[EdgeBytes, ...]) -> None:
    for flow in flows:
        tensor = flow.edge.tensor
        graph.dtypes[tensor] = flow.dtype
        graph.sizes[tensor] = flow.tensor_bytes
        graph.written[tensor] = flow.written_bytes
        graph.reads[tensor, flow.edge.consumer] = flow.read_bytes


def _add_consumers(graph: SourceGraph) -> None:
    readers: dict[str, list[str]] = {}
    for name, node in graph.nodes.items():
        for tensor in node.inputs:
            readers.setdefault(tensor, []).append(name)
    graph.consumers.update((tensor, tuple(names)) for tensor, names in readers.items())


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

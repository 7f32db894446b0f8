"""Tensors that cross a border: the memory traffic of a group, and the transfers between host and board."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Literal

from common.fusion.groups import Group
from common.graphs.graph import Graph, Node, Traffic
from common.graphs.source_graph import SourceGraph
from common.graphs.sums import total

BorderRole = Literal["weight", "read", "write"]


@dataclass(frozen=True, slots=True)
class BorderTensor:
    """A tensor that a group must read or write once."""

    tensor: str
    role: BorderRole
    dtype: str
    size_bytes: int | None


def border(graph: SourceGraph, nodes: Collection[str]) -> tuple[BorderTensor, ...]:
    """Return the distinct tensors that a group reads from outside and those that it writes for others.

    A tensor that several nodes of the group read is read once, to the largest extent that one of them needs.
    """
    members = set(nodes)
    sizes: dict[tuple[str, BorderRole], int | None] = {}
    for name in nodes:
        node = graph.nodes[name]
        for tensor in node.inputs:
            if graph.producer.get(tensor) not in members:
                role: BorderRole = "weight" if tensor in graph.constants else "read"
                _widen(sizes, (tensor, role), graph.reads[tensor, name])
        for tensor in node.outputs:
            if tensor in graph.returned or not members.issuperset(graph.consumers.get(tensor, ())):
                _widen(sizes, (tensor, "write"), graph.written[tensor])
    return tuple(BorderTensor(tensor, role, graph.dtypes[tensor], size) for (tensor, role), size in sizes.items())


def traffic(graph: SourceGraph, nodes: Collection[str]) -> Traffic:
    """Return the bytes that cross the border of fused nodes in one run."""
    tensors, roles = border(graph, nodes), ("weight", "read", "write")
    return Traffic(*(total_bytes(tensor for tensor in tensors if tensor.role == role) for role in roles))


def executed_traffic(
    source: SourceGraph, executed: Graph, owned: Mapping[str, Collection[str]], sizes: Mapping[str, int | None]
) -> dict[str, Traffic]:
    """Return the compulsory traffic of every executed node.

    ``owned`` has the source nodes of each executed node that the runtime did not insert, ``sizes`` the bytes of each
    tensor of the executed graph.
    """

    def whole(node: Node) -> Traffic:
        """Return the traffic of a node that the runtime inserted: all of its operands and outputs."""
        return Traffic(0, *(total(sizes[name] for name in ends if name) for ends in (node.inputs, node.outputs)))

    return {
        node.name: traffic(source, owned[node.name]) if node.name in owned else whole(node) for node in executed.nodes
    }


def _widen(sizes: dict[tuple[str, BorderRole], int | None], key: tuple[str, BorderRole], size: int | None) -> None:
    """Raise the size of an entry to ``size`` if it is smaller; an unknown size stays unknown."""
    known = sizes.get(key, 0)
    sizes[key] = None if size is None or known is None else max(size, known)


def total_bytes(tensors: Iterable[BorderTensor]) -> int | None:
    """Return the bytes of all tensors; None where one is unknown."""
    return total(tensor.size_bytes for tensor in tensors)


def unfused_bytes(graph: SourceGraph, group: Group) -> int | None:
    """Return the traffic of the same nodes if each were a kernel of its own."""
    nodes = [graph.nodes[name] for name in group.nodes]
    read = (graph.reads[tensor, node.name] for node in nodes for tensor in node.inputs)
    written = (graph.written[tensor] for node in nodes for tensor in node.outputs)
    return total((*read, *written))


def crossings(graph: SourceGraph, on_board: Set[str]) -> tuple[str, ...]:
    """Return the tensors to transfer when the nodes ``on_board`` run on the board and all others on the host.

    A view is not transferred: its bytes are those of the tensor behind it. Constants are loaded before the first run.
    """
    at_host = {graph.storage.get(tensor, tensor) for tensor in graph.returned}
    at_board: set[str] = set()
    for name, node in graph.nodes.items():
        for tensor in graph.variables(node):
            if graph.reads[tensor, name] != 0:
                readers = at_board if name in on_board else at_host
                readers.add(graph.storage.get(tensor, tensor))
    to_board = {tensor for tensor in at_board if graph.producer.get(tensor) not in on_board}
    to_host = {tensor for tensor in at_host if graph.producer.get(tensor) in on_board}
    return tuple(sorted(to_board | to_host))


def board_phases(graph: SourceGraph, groups: Iterable[Group], on_board: Set[str]) -> dict[str, int]:
    """Number the phases in which host and board take turns: the phase by the last node of each group on the board.

    A group runs in the phase of the latest group that it waits for, or in the next phase if that group is on the other
    side. Groups of one phase need no synchronization with the host between them. The groups are in an order in which
    they can run.
    """
    phase_of_node: dict[str, int] = {}
    phases: dict[str, int] = {}
    for group in groups:
        is_on_board = group.nodes[-1] in on_board
        phase = int(is_on_board)
        for name in group.nodes:
            for tensor in graph.variables(graph.nodes[name]):
                before = graph.producer.get(graph.storage.get(tensor, tensor), "")
                if before in phase_of_node:
                    phase = max(phase, phase_of_node[before] + ((before in on_board) != is_on_board))
        phase_of_node.update(dict.fromkeys(group.nodes, phase))
        if is_on_board:
            phases[group.nodes[-1]] = phase
    return phases

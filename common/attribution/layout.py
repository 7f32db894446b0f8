"""Owners of inserted nodes: the runtime inserts a node (a change of layout or precision, a copy) for another node."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Set

from common.attribution.precision_casts import gives_back
from common.graph import Graph, Node, operands


def layout_owners(executed: Graph, with_sources: Set[str]) -> dict[str, str]:
    """Return the owner of each executed node without source nodes.

    The owner is the nearest node downstream that has source nodes, else the nearest upstream; empty without either. A
    cast that gives back the precision of the node before it looks upstream first.
    """
    inserted = dict.fromkeys(node.name for node in executed.nodes if node.name not in with_sources)
    owners = [node for node in executed.nodes if node.name in with_sources]
    downstream = _nearest(executed, owners, inserted, _writers)
    upstream = _nearest(executed, owners, inserted, _readers)
    backwards = {name: upstream[name] for name in upstream if gives_back(executed.by_name[name])}
    return dict.fromkeys(inserted, "") | upstream | downstream | backwards


def _readers(graph: Graph, node: Node) -> list[str]:
    return [name for tensor in node.outputs for name in graph.consumers.get(tensor, ())]


def _writers(graph: Graph, node: Node) -> list[str]:
    return [graph.producer[tensor] for tensor in operands(node) if tensor in graph.producer]


def _nearest(
    graph: Graph,
    owners: Iterable[Node],
    inserted: Container[str],
    neighbours: Callable[[Graph, Node], Iterable[str]],
) -> dict[str, str]:
    """Return the nearest owner of each inserted node, by one breadth-first search from all owners at once."""
    frontier = deque((node, node.name) for node in owners)
    nearest: dict[str, str] = {}
    while frontier:
        node, owner = frontier.popleft()
        for name in neighbours(graph, node):
            if name in inserted and name not in nearest:
                nearest[name] = owner
                frontier.append((graph.by_name[name], owner))
    return nearest

"""Whose layout a node serves that the runtime inserted: no source node asked for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Set

from common.graph import Graph, Node, operands


def layout_owners(executed: Graph, with_sources: Set[str]) -> dict[str, str]:
    """For each executed node without source nodes: the nearest downstream one with some, else the nearest upstream."""
    inserted = dict.fromkeys(node.name for node in executed.nodes if node.name not in with_sources)
    owners = [node for node in executed.nodes if node.name in with_sources]
    downstream = _nearest(executed, owners, inserted, _writers)
    upstream = _nearest(executed, owners, inserted, _readers)
    return {name: downstream.get(name) or upstream.get(name, "") for name in inserted}


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
    """The nearest owner of each inserted node: one breadth-first search, from all owners at once, away from them."""
    frontier = deque((node, node.name) for node in owners)
    found: dict[str, str] = {}
    while frontier:
        node, owner = frontier.popleft()
        for name in neighbours(graph, node):
            if name in inserted and name not in found:
                found[name] = owner
                frontier.append((graph.by_name[name], owner))
    return found

"""Which source nodes each executed node computes, and which node owns the layout that an inserted node serves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Set
from dataclasses import dataclass

from common.attribution.match import Match, match_nodes
from common.attribution.precision_casts import gives_back
from common.graphs.graph import Graph, Node, operands
from common.graphs.operators import CONTRACTIONS
from common.graphs.source_graph import SourceGraph, build
from common.table_rows import NodeMapRow, OpEdgesRow


@dataclass(frozen=True, slots=True)
class Attribution:
    """The owner of every source node."""

    matches: tuple[Match, ...]  # one per source node, in source order
    sources: Mapping[str, tuple[str, ...]]  # source nodes of each executed node that has some, in source order
    # For each other executed node, the node whose layout it serves; empty where there is none
    layout_of: Mapping[str, str]

    @property
    def removed(self) -> tuple[str, ...]:
        """Source nodes that no executed node computes, in source order."""
        return tuple(match.source_node for match in self.matches if not match.executed_node)


def attribute(source: SourceGraph, executed: Graph, contractions: Set[str]) -> Attribution:
    """Match every source node to the executed node that computes it, and every other one to the owner of its layout."""
    matches = match_nodes(source, executed, contractions)
    sources = owned_sources(matches)
    return Attribution(tuple(matches), sources, layout_owners(executed, sources.keys()))


def node_map_rows(attribution: Attribution) -> list[NodeMapRow]:
    return [
        {"executed_node": match.executed_node, "source_node": match.source_node, "rule": match.rule}
        for match in attribution.matches
    ]


def owned_sources(matches: Iterable[Match]) -> dict[str, tuple[str, ...]]:
    owned: dict[str, list[str]] = {}
    for match in matches:
        if match.executed_node:
            owned.setdefault(match.executed_node, []).append(match.source_node)
    return {executed: tuple(sources) for executed, sources in owned.items()}


def computed_sources(source: Graph, executed: Graph) -> dict[str, list[tuple[str, str]]]:
    """Return name and operator type of the source nodes that each executed node computes, in graph order."""
    op_types, sources = {node.name: node.op_type for node in source.nodes}, owners(source, executed).sources
    return {node.name: [(name, op_types[name]) for name in sources.get(node.name, ())] for node in executed.nodes}


def owners(source: Graph, executed: Graph) -> Attribution:
    """Return the owner of every source node from the two graphs alone, before any work is counted."""
    contractions = {node.name for node in source.nodes if node.op_type in CONTRACTIONS}
    return attribute(_without_bytes(source), executed, contractions)


def _without_bytes(source: Graph) -> SourceGraph:
    edges: list[OpEdgesRow] = [
        {
            "tensor": edge.tensor,
            "producer": edge.producer,
            "consumer": edge.consumer,
            "tensor_kind": source.tensors[edge.tensor].kind,
            "dtype": "",
            "tensor_bytes": None,
            "read_bytes": None,
            "written_bytes": None,
        }
        for edge in source.edges()
    ]
    return build({node.name: node.op_type for node in source.nodes}, edges)


# --- nodes that the runtime inserted: changes of layout or precision, copies -----------------------------------------


def layout_owners(executed: Graph, with_sources: Set[str]) -> dict[str, str]:
    """Return the owner of each executed node without source nodes.

    The owner is the nearest node downstream that has source nodes, else the nearest upstream; empty without either. A
    cast that gives back the precision of the node before it looks upstream first.
    """
    inserted = dict.fromkeys(node.name for node in executed.nodes if node.name not in with_sources)
    owners = [node for node in executed.nodes if node.name in with_sources]
    downstream = _nearest(executed, owners, inserted, _writers)
    upstream = _nearest(executed, owners, inserted, Graph.readers)
    backwards = {name: upstream[name] for name in upstream if gives_back(executed.by_name[name])}
    return dict.fromkeys(inserted, "") | upstream | downstream | backwards


def _writers(graph: Graph, node: Node) -> list[str]:
    return [graph.producer[tensor] for tensor in operands(node) if tensor in graph.producer]


def _nearest(
    graph: Graph, owners: Iterable[Node], inserted: Container[str], neighbours: Callable[[Graph, Node], Iterable[str]]
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

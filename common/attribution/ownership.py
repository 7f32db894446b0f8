"""Which source nodes each executed node computes, and which node owns the layout that an inserted node serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from common.attribution.layout import layout_owners
from common.attribution.match import Match, match_nodes
from common.graph import Graph
from common.operators import CONTRACTIONS
from common.source_graph import EdgeBytes, SourceGraph, build


@dataclass(frozen=True, slots=True)
class Attribution:
    """The owner of every source node.

    Attributes:
        matches: one per source node, in source order.
        sources: source nodes of each executed node that has some, in source order.
        layout_of: for each other executed node, the node whose layout it serves; empty where there is none.
    """

    matches: tuple[Match, ...]
    sources: Mapping[str, tuple[str, ...]]
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


def owned_sources(matches: Iterable[Match]) -> dict[str, tuple[str, ...]]:
    """Return the source nodes of each executed node that has some, in source order."""
    owned: dict[str, list[str]] = {}
    for match in matches:
        if match.executed_node:
            owned.setdefault(match.executed_node, []).append(match.source_node)
    return {executed: tuple(sources) for executed, sources in owned.items()}


def computed_sources(source: Graph, executed: Graph) -> dict[str, list[tuple[str, str]]]:
    """Return name and operator type of the source nodes that each executed node computes, in graph order."""
    kinds, sources = {node.name: node.op_type for node in source.nodes}, owners(source, executed).sources
    return {node.name: [(name, kinds[name]) for name in sources.get(node.name, ())] for node in executed.nodes}


def owners(source: Graph, executed: Graph) -> Attribution:
    """Return the owner of every source node from the two graphs alone, before any work is counted."""
    contractions = {node.name for node in source.nodes if node.op_type in CONTRACTIONS}
    return attribute(_without_bytes(source), executed, contractions)


def _without_bytes(source: Graph) -> SourceGraph:
    """Return the graph with its tensors, of unknown sizes."""
    flows = [EdgeBytes(edge, source.tensors[edge.tensor].kind, "", None, None, None) for edge in source.edges()]
    return build(((node.name, node.op_type) for node in source.nodes), flows)

"""Attribution from the two graphs alone, for use before any work is counted."""

from __future__ import annotations

from common.attribution.ownership import Attribution, attribute
from common.graph import Graph
from common.operators import CONTRACTIONS
from common.source_graph import EdgeBytes, SourceGraph, build


def computed_sources(source: Graph, executed: Graph) -> dict[str, list[tuple[str, str]]]:
    """Return name and operator type of the source nodes that each executed node computes, in graph order.

    Args:
        source: the model's graph.
        executed: the graph that the runtime saved; a node that it inserted computes no source node.
    """
    kinds, sources = {node.name: node.op_type for node in source.nodes}, owners(source, executed).sources
    return {node.name: [(name, kinds[name]) for name in sources.get(node.name, ())] for node in executed.nodes}


def owners(source: Graph, executed: Graph) -> Attribution:
    """Return the owner of every source node; arguments as in :func:`computed_sources`."""
    contractions = {node.name for node in source.nodes if node.op_type in CONTRACTIONS}
    return attribute(_without_bytes(source), executed, contractions)


def _without_bytes(source: Graph) -> SourceGraph:
    """Return the graph with its tensors, of unknown sizes."""
    flows = [EdgeBytes(edge, source.tensors[edge.tensor].kind, "", None, None, None) for edge in source.edges()]
    return build(((node.name, node.op_type) for node in source.nodes), flows)

"""The graph of a model with one byte for each element: its sizes are then words of whatever memory keeps it."""

from __future__ import annotations

from dataclasses import replace

from common.number_formats import stored_elements
from common.source_graph import SourceGraph

ONE_BYTE = "uint8"


def in_elements(graph: SourceGraph) -> SourceGraph:
    """Return the graph with one byte for each element; a tensor whose elements have no fixed width keeps its bytes."""

    def elements(tensor: str, size_bytes: int | None) -> int | None:
        counted = None if size_bytes is None else stored_elements(size_bytes, graph.dtypes[tensor])
        return size_bytes if counted is None else counted

    return replace(
        graph,
        dtypes=dict.fromkeys(graph.dtypes, ONE_BYTE),
        sizes={tensor: elements(tensor, size) for tensor, size in graph.sizes.items()},
        reads={ends: elements(ends[0], size) for ends, size in graph.reads.items()},
        written={tensor: elements(tensor, size) for tensor, size in graph.written.items()},
    )

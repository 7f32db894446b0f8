"""Where the feature maps of a network are stored while an overlay engine runs it, and which of them it moves.

A feature map that fits a bank of the buffer stays on the chip and is neither written to memory nor read. The inputs of
a Concat are stored in its result's buffer, so a Concat moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.errors import PipelineError
from common.fusion.border import border
from common.number_formats import stored_elements
from common.source_graph import SourceGraph


def places_of(graph: SourceGraph) -> dict[str, int]:
    """Return the size at int8 of the buffer of each tensor: its own, or that of the Concat that it is part of."""
    places: dict[str, int] = {}
    for node in reversed(graph.nodes.values()):
        for tensor in node.outputs:
            stored = graph.storage.get(tensor, tensor)
            size = max(places.get(tensor, 0), places.get(stored, 0), elements(graph, tensor))
            places[tensor] = places[stored] = size
            if node.op_type == "Concat":
                for part in graph.variables(node):
                    source = graph.storage.get(part, part)
                    places[source] = max(places.get(source, 0), size)
    return places


def elements(graph: SourceGraph, tensor: str) -> int:
    """Return the number of elements of a tensor, which is its size in bytes at int8.

    Raises:
        PipelineError: its size is unknown.
    """
    size, dtype = graph.sizes[tensor], graph.dtypes[tensor]
    if size is None:
        raise PipelineError(
            f"tensor {tensor}",
            "its size is unknown",
            "rerun <op_metrics> with a size for every dynamic dimension (<dim>)",
        )
    count = stored_elements(size, dtype)
    return size if count is None else count


def moved(graph: SourceGraph, nodes: Sequence[str], places: Mapping[str, int], bank_bytes: int) -> tuple[int, int]:
    """Return the bytes that fused nodes read and write: maps that fit no bank, and the network's inputs and outputs."""
    read = written = 0
    for tensor in border(graph, nodes):
        name = graph.storage.get(tensor.tensor, tensor.tensor)
        is_end = name not in graph.producer or tensor.tensor in graph.returned or name in graph.returned
        if tensor.role == "weight" or not (is_end or places.get(name, 0) > bank_bytes):
            continue
        if tensor.role == "read":
            read += elements(graph, tensor.tensor)
        else:
            written += elements(graph, tensor.tensor)
    return read, written


def ends(graph: SourceGraph) -> tuple[int, int]:
    """Return the numbers of input and output elements of the network, for one image."""
    inputs = {tensor for tensor in graph.consumers if tensor not in graph.producer and tensor not in graph.constants}
    entering, leaving = (sum(elements(graph, tensor) for tensor in names) for names in (inputs, graph.returned))
    return entering, leaving

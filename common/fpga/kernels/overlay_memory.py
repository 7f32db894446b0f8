"""Where the feature maps of a network lie while an overlay engine runs it, and which of them it must move.

A feature map stays on the chip if it fits a bank of the buffer: it is then neither written nor read. What a Concat
joins lies where its result lies, so that joining moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.errors import PipelineError
from common.fusion.border import border
from common.number_formats import stored_elements
from common.source_graph import SourceGraph


def places_of(graph: SourceGraph) -> dict[str, int]:
    """Bytes at int8 of the buffer that each tensor lies in: its own, or that of the Concat that it is a part of."""
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
    """Elements of a tensor, a byte each at int8.

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
    elements = stored_elements(size, dtype)
    return size if elements is None else elements


def moved(graph: SourceGraph, nodes: Sequence[str], places: Mapping[str, int], bank_bytes: int) -> tuple[int, int]:
    """Bytes that fused nodes read and write in memory: what does not fit a bank, and the ends of the network."""
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
    """Elements that enter the network and that leave it, of one image."""
    inputs = {tensor for tensor in graph.consumers if tensor not in graph.producer and tensor not in graph.constants}
    entering, leaving = (sum(elements(graph, tensor) for tensor in names) for names in (inputs, graph.returned))
    return entering, leaving

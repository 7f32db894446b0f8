"""The loop nests of a model's operators, read from rows of op_metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from common.graphs import number_formats
from common.graphs.number_formats import stored_elements
from common.graphs.operators import PACKED_PRODUCTS
from common.graphs.source_graph import SourceGraph
from common.messages.errors import UpstreamError
from common.messages.names import shown
from common.table_rows import OpMetricsRow
from common.workload.layer_rows import layers_by_node
from common.workload.layers import Convolution, Layer, Matmul
from common.workload.loop_nests import LoopNest, nest_of

USUAL_PACKED_BITS = 4  # where MatMulNBits does not say them (ONNX Runtime, docs/ContribOperators.md)
UNKNOWN_WIDTH_BITS = 8  # of an element type without a fixed width, which no contraction has


def require_bound(metrics: Iterable[OpMetricsRow]) -> None:
    """Refuse rows of op_metrics whose work depends on dimensions without a size, by an UpstreamError."""
    for row in metrics:
        if row["macs_expression"] or row["bytes_expression"]:
            problem = f"{shown(row['source_node'])} depends on dimensions that are unbound"
            raise UpstreamError("op_metrics.csv", problem, "rerun <op_metrics> with a size for each of them")


def runs_of(row: OpMetricsRow) -> int:
    """Return how often a node runs in one inference; once where nobody knows."""
    return row["execution_count"] or 1


def nests_by_node(metrics: Iterable[OpMetricsRow], graph: SourceGraph) -> dict[str, tuple[LoopNest, ...]]:
    """Return the loop nests of one pass of each source node, in the order of computation.

    A node without any computes no contraction, or one that is no nest of this form: a transposed, deformable or
    three-dimensional convolution, a recurrence, a shape that depends on data.
    """
    rows = {row["source_node"]: row for row in metrics}
    layers = layers_by_node(rows.values(), graph)
    return {name: _nests(row, graph, layers[name] or ()) for name, row in rows.items()}


def _nests(row: OpMetricsRow, graph: SourceGraph, layers: tuple[Layer, ...]) -> tuple[LoopNest, ...]:
    contractions = [layer for layer in layers if isinstance(layer, Convolution | Matmul)]
    if not contractions:
        return ()
    bits, pads = _operand_bits(row, graph), pads_before(row["attributes"].get("pads"))
    nests = [nest_of(layer, bits, pads) for layer in contractions]
    known = tuple(nest for nest in nests if nest is not None)
    return known if len(known) == len(nests) else ()


def pads_before(pads: Any) -> tuple[int, int]:
    """Return the rows above and the columns left of the input; a single axis is the width."""
    if not isinstance(pads, list | tuple) or len(pads) not in (2, 4):
        return 0, 0
    return (0, pads[0]) if len(pads) == 2 else (pads[0], pads[1])


def _operand_bits(row: OpMetricsRow, graph: SourceGraph) -> dict[str, int]:
    """Return the bits of an element of the first activation, of the largest constant, and of the result."""
    node = graph.nodes[row["source_node"]]
    variables = graph.variables(node) or node.inputs
    constants = [tensor for tensor in node.inputs if tensor in graph.constants]
    weight = max(constants, key=lambda tensor: graph.sizes[tensor] or 0) if constants else variables[-1]
    usual = USUAL_PACKED_BITS if row["op_type"] in PACKED_PRODUCTS else None
    packed = row["attributes"].get("bits", usual)  # of weights that are stored packed in bytes
    return {
        "input": _bits(graph.dtypes[variables[0]]),
        "weight": packed if type(packed) is int and packed > 0 else _bits(graph.dtypes[weight]),
        "output": _bits(graph.dtypes[node.outputs[0]]),
    }


def _bits(dtype: str) -> int:
    return number_formats.element_bits(dtype) or UNKNOWN_WIDTH_BITS


def in_elements(graph: SourceGraph) -> SourceGraph:
    """Return the graph with one byte for each element; a tensor whose elements have no fixed width keeps its bytes."""

    def elements(tensor: str, size_bytes: int | None) -> int | None:
        counted = None if size_bytes is None else stored_elements(size_bytes, graph.dtypes[tensor])
        return size_bytes if counted is None else counted

    return replace(
        graph,
        dtypes=dict.fromkeys(graph.dtypes, "uint8"),
        sizes={tensor: elements(tensor, size) for tensor, size in graph.sizes.items()},
        reads={ends: elements(ends[0], size) for ends, size in graph.reads.items()},
        written={tensor: elements(tensor, size) for tensor, size in graph.written.items()},
    )

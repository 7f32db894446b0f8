"""Work and compulsory traffic of a node, from its formula and the sizes of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.graphs.graph import Count, Graph, Node, Traffic
from common.graphs.sums import total
from common.onnx_graph.work.registry import FORMULAS, Cost, Gemm, Operation, UnknownShapeError


@dataclass(frozen=True, slots=True)
class Work(Traffic):
    """Counts of one node in one execution; None is unknown. ``read_bytes`` and ``written_bytes`` are per tensor."""

    is_counted: bool
    macs: Count | None
    flops: Count | None
    gemm: Gemm | None
    dequantized: Count | None
    read_bytes: Mapping[str, Count | None]
    written_bytes: Mapping[str, Count | None]


def measure(graph: Graph, node: Node) -> Work:
    """Count one node. An operator without a formula has unknown work, but its operands are still read."""
    cost, is_counted = _cost(graph, node)
    known = cost or Cost()
    reads, written = _bytes(graph, node.inputs, known, known.reads), _bytes(graph, node.outputs, known, known.writes)
    weights = [size for name, size in reads.items() if graph.tensors[name].kind == "weight"]
    activations = [size for name, size in reads.items() if graph.tensors[name].kind != "weight"]
    return Work(
        is_counted=is_counted,
        macs=cost.macs if cost else None,
        flops=2 * cost.macs + cost.other_flops if cost else None,
        gemm=cost.gemm if cost else None,
        dequantized=cost.dequantized if cost else None,
        read_bytes=reads,
        written_bytes=written,
        weight_bytes=total(weights),
        input_bytes=total(activations),
        output_bytes=total(written.values()),
    )


def _cost(graph: Graph, node: Node) -> tuple[Cost | None, bool]:
    """Return the cost by the formula (None where a shape is unknown), and whether there is a formula."""
    formula = FORMULAS.get((node.domain, node.op_type))
    if formula is None:
        return None, False
    inputs, outputs = (
        tuple(graph.tensors[name] if name else None for name in names) for names in (node.inputs, node.outputs)
    )
    try:
        return formula(Operation(node, inputs, outputs)), True
    except UnknownShapeError:
        return None, True


def _bytes(
    graph: Graph, names: Sequence[str], cost: Cost, differing: Mapping[int, Count | None]
) -> dict[str, Count | None]:
    """Return the bytes that each operand or output costs: its size, apart from those that are ``differing``."""
    sizes = {name: 0 if cost.moves_nothing else graph.tensors[name].size_bytes for name in names if name}
    return sizes | {names[index]: size for index, size in differing.items() if names[index]}

"""Which operators fuse with which: heads, the regions that follow them, and the pattern of attention.

Sources: layer fusion of Conv, BatchNorm, activation and element-wise addition as in Jacob et al. 2018
(arXiv:1712.05877, section 3) and in the fusion rules of ONNX Runtime's optimizer; attention as one kernel as in Dao et
al. 2022 (arXiv:2205.14135).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf
from typing import Literal

from common.graphs import operators
from common.graphs.graph import Node
from common.graphs.source_graph import SourceGraph

GroupKind = Literal["conv", "gemm", "attention", "rowwise", "pool", "pointwise", "none"]

# The contractions that head a group; products that quantize their operands or have a layout of their own do not.
HEADS: dict[str, GroupKind] = {
    **dict.fromkeys(operators.CONVOLUTIONS | {"ConvTranspose"}, "conv"),
    **dict.fromkeys(operators.MATRIX_PRODUCTS - {"DynamicQuantizeMatMul", "QOrderedMatMul"}, "gemm"),
    **dict.fromkeys(operators.ATTENTION, "attention"),
}
ATTENTION_PRODUCTS = frozenset({"MatMul", "FusedMatMul", "QLinearMatMul"})  # QKᵀ and PV of a written-out attention
# Reductions with one accumulator per row, as written-out normalizations and softmax have them.
ROW_REDUCTIONS = operators.REDUCTIONS - {"ReduceLogSum", "ReduceLogSumExp", "ReduceProd"}
# Operators that are a kernel of rows by themselves.
ROWS = operators.SOFTMAX | operators.NORMALIZATIONS | operators.GELUS
# Element types of indices, shapes and masks.
INDEX_TYPES = frozenset({"bool", "int32", "int64", "uint32", "uint64", "string"})
# Between QKᵀ and the softmax, and between the softmax and PV.
SCALE_AND_MASK = operators.QUANTIZERS | frozenset(
    ["Mul", "Div", "Add", "Sub", "Where", "Min", "Max", "Cast", "Clip", "Identity", "QLinearMul", "QLinearAdd"]
)
AFTER_SOFTMAX = operators.QUANTIZERS | operators.COPIES | {"Cast"}

# Operators that a kernel can apply while it reads its operands.
READ_AS = frozenset({operators.DEQUANTIZE})
READ_AS_BY_ATTENTION = READ_AS | {"Transpose", "Mul", "Div", "Cast", "Identity", "Gather"}  # of packed Q, K and V

# A tanh-GELU written out has nine nodes; beyond a dozen nodes, nothing that exporters write is one activation.
MOST_POINTWISE_NODES = 12
MOST_MASK_NODES = 10  # scale and mask, each with a pair of nodes that quantizes it


def epilogue(graph: SourceGraph, tensor: str) -> tuple[str, ...]:
    """Return the point-wise region behind a tensor, also behind a tensor that is quantized in between.

    Examples are Relu alone, Sigmoid and Mul (SiLU), or the five nodes of an erf-GELU. Other operands are constants.
    There is none where another node reads the tensor too, or the graph returns it.
    """
    reader = graph.sole_reader(tensor)
    if reader is None or reader.op_type not in READ_AS or len(reader.outputs) != 1:
        return closed_region(graph, tensor, operators.POINTWISE)
    region = closed_region(graph, reader.outputs[0], operators.POINTWISE)
    return (reader.name, *region) if region else ()


def closed_region(
    graph: SourceGraph, tensor: str, allowed: frozenset[str], free: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the fewest nodes of the allowed operators that include every reader of ``tensor`` and have one result.

    The nodes are in graph order; there are none without such a region. They may also read ``free`` tensors, which exist
    before the region begins.
    """
    readers = graph.consumers.get(tensor, ())
    inside: dict[str, None] = {}
    unread = {tensor: len(readers)}  # tensors of the region and how many of their readers are not in it yet
    pending = list(readers) if tensor not in graph.returned else []
    while pending and len(pending) + len(inside) <= MOST_POINTWISE_NODES:
        node = graph.nodes[min(pending, key=graph.position.__getitem__)]
        pending.remove(node.name)
        inner = [name for name in graph.variables(node) if name in unread or name not in free]
        if node.op_type not in allowed or len(node.outputs) != 1 or not set(inner) <= set(unread):
            return ()
        inside[node.name] = None
        for name in inner:
            unread[name] -= 1
        output = node.outputs[0]
        if not any(unread.values()):
            return tuple(inside)
        if output in graph.returned:
            return ()
        unread[output] = len(graph.consumers.get(output, ()))
        pending += [name for name in graph.consumers.get(output, ()) if name not in pending]
    return ()


def is_gelu(op_types: Iterable[str]) -> bool:
    """Return whether operators are a GELU written out: x times one plus erf, or tanh with a cube in it."""
    present = set(op_types)
    return "Mul" in present and ("Erf" in present or {"Tanh", "Pow"} <= present)


def row_region(graph: SourceGraph, reducer: Node) -> tuple[str, ...]:
    """Return a normalization or softmax written out, from its first reduction on; empty where there is none.

    LayerNormalization is ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div; RMSNormalization begins with the squares;
    softmax is ReduceMax, Sub, Exp, ReduceSum, Div. In all of them, rows are combined with their own reduction.
    """
    squares = _squares(graph, reducer)
    source = graph.variables(squares or reducer)[0]
    nodes = [node.name for node in (squares, reducer) if node is not None]
    tail, meets = reducer.outputs[0], False
    while region := closed_region(graph, tail, operators.POINTWISE | ROW_REDUCTIONS, () if meets else (source,)):
        last = graph.nodes[region[-1]]
        if last.op_type in ROW_REDUCTIONS:
            break  # it reduces the finished rows: a pool behind them
        meets = meets or any(source in graph.nodes[name].inputs for name in region)
        nodes += region
        tail = last.outputs[0]
    return tuple(nodes) if meets else ()


def _squares(graph: SourceGraph, reducer: Node) -> Node | None:
    """The node that squares the rows before they are reduced, if nothing else reads the squares."""
    tensor = graph.variables(reducer)[0]
    node = graph.nodes.get(graph.producer.get(tensor, ""))
    if node is None or node.op_type not in ("Pow", "Mul") or len(graph.variables(node)) != 1:
        return None
    return node if graph.sole_reader(tensor) is not None else None


def attention_chain(graph: SourceGraph, scores: Node) -> tuple[str, ...]:
    """Return the nodes of QKᵀ, scale and mask, softmax and PV from ``scores`` on; empty where it is no attention."""
    if scores.op_type not in ATTENTION_PRODUCTS or len(graph.variables(scores)) < 2:
        return ()
    chain = [scores]
    for between, most, end in (
        (SCALE_AND_MASK, MOST_MASK_NODES, operators.SOFTMAX),
        (AFTER_SOFTMAX, inf, ATTENTION_PRODUCTS),
    ):
        node = _next(graph, chain[-1])
        while node is not None and node.op_type in between and len(chain) <= most:
            chain.append(node)
            node = _next(graph, node)
        if node is None or node.op_type not in end:
            return ()
        chain.append(node)
    return tuple(node.name for node in chain)


def _next(graph: SourceGraph, node: Node) -> Node | None:
    return graph.sole_reader(node.outputs[0]) if len(node.outputs) == 1 else None

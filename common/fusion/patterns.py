"""Which operators fuse with which: heads, what may follow them on the fly, and the shape of attention.

Sources: layer fusion of Conv, BatchNorm, activation and element-wise addition as in Jacob et al. 2018
(arXiv:1712.05877, section 3) and in the fusion rules of ONNX Runtime's optimizer; attention as one kernel as in Dao et
al. 2022 (arXiv:2205.14135).
"""

from __future__ import annotations

from typing import Literal

from common.fusion.source_graph import SourceGraph
from common.graph import Node

GroupKind = Literal["conv", "gemm", "attention", "none"]

HEADS: dict[str, GroupKind] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv", "ConvInteger", "QLinearConv"), "conv"),
    **dict.fromkeys(("Gemm", "MatMul", "FusedGemm", "FusedMatMul", "MatMulInteger", "QLinearMatMul"), "gemm"),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), "attention"),
}
MATMULS = frozenset({"MatMul", "FusedMatMul"})

# One value in, one value out, in any order: such an operator works on the stream that leaves the array.
ACTIVATIONS = (
    "Relu LeakyRelu PRelu Clip Sigmoid HardSigmoid HardSwish Tanh Elu Selu Celu Gelu FastGelu QuickGelu BiasGelu Swish "
    "Mish Softplus Softsign"
)
ARITHMETIC = "Erf Exp Sqrt Pow Neg Abs Add Sub Mul Div Min Max BatchNormalization Cast QuantizeLinear Identity Dropout"
POINTWISE = frozenset((*ACTIVATIONS.split(), *ARITHMETIC.split()))
RESIDUAL = frozenset({"Add", "Sum"})
SCALE_AND_MASK = frozenset({"Mul", "Div", "Add", "Sub", "Where", "Min", "Max", "Cast", "Clip", "Identity"})
AFTER_SOFTMAX = frozenset({"Cast", "Dropout", "Identity"})

# What a kernel can undo while it reads its operands.
READ_AS = frozenset({"DequantizeLinear"})
READ_AS_BY_ATTENTION = READ_AS | {"Transpose", "Mul", "Div", "Cast", "Identity"}

# A tanh-GELU written out has nine nodes; beyond a dozen nothing that exporters write is one activation.
MOST_POINTWISE_NODES = 12
MOST_MASK_NODES = 6


def pointwise_region(graph: SourceGraph, tensor: str) -> tuple[str, ...]:
    """The fewest point-wise nodes that take in every read of ``tensor`` and leave one tensor.

    Relu alone, or Sigmoid and Mul (SiLU), or the five nodes of an erf-GELU. Their other operands are constants.

    Returns:
        Node names in graph order; empty where another node reads the tensor too, or the graph returns it.
    """
    readers = graph.consumers.get(tensor, ())
    inside: dict[str, None] = {}
    unread = {tensor: len(readers)}  # tensors of the region and how many of their readers are not in it yet
    pending = list(readers) if tensor not in graph.returned else []
    while pending and len(pending) + len(inside) <= MOST_POINTWISE_NODES:
        node = graph.nodes[min(pending, key=graph.position.__getitem__)]
        pending.remove(node.name)
        variables = graph.variables(node)
        if node.op_type not in POINTWISE or len(node.outputs) != 1 or not set(variables) <= set(unread):
            return ()
        inside[node.name] = None
        for name in variables:
            unread[name] -= 1
        output = node.outputs[0]
        if not any(unread.values()):
            return tuple(inside)
        if output in graph.returned:
            return ()
        unread[output] = len(graph.consumers.get(output, ()))
        pending += [name for name in graph.consumers.get(output, ()) if name not in pending]
    return ()


def attention_chain(graph: SourceGraph, scores: Node) -> tuple[str, ...]:
    """QKᵀ, scale and mask, Softmax, PV: the nodes from ``scores`` on, or nothing if it heads no attention."""
    if scores.op_type not in MATMULS or len(graph.variables(scores)) < 2:
        return ()
    chain, node = [scores], _next(graph, scores)
    while node is not None and node.op_type in SCALE_AND_MASK and len(chain) <= MOST_MASK_NODES:
        chain.append(node)
        node = _next(graph, node)
    if node is None or node.op_type != "Softmax":
        return ()
    chain.append(node)
    node = _next(graph, node)
    while node is not None and node.op_type in AFTER_SOFTMAX:
        chain.append(node)
        node = _next(graph, node)
    if node is None or node.op_type not in MATMULS:
        return ()
    return tuple(member.name for member in (*chain, node))


def _next(graph: SourceGraph, node: Node) -> Node | None:
    return graph.sole_reader(node.outputs[0]) if len(node.outputs) == 1 else None

"""Products with weights that are stored in packed blocks, and mixtures of experts.

Dequantizing a packed weight is no work of the model but of its format, and at one row it would triple the FLOPs. So the
weights that are dequantized have a count of their own, and the FLOPs are those of the product.
"""

from __future__ import annotations

from functools import partial
from math import prod

from common.graphs.expressions import smaller
from common.graphs.graph import Count
from common.graphs.operators import MICROSOFT
from common.onnx_graph.work.convolutions import activation_flops
from common.onnx_graph.work.registry import RMS_NORM, Cost, Gemm, Operation, contraction, formula

# Operand of the bias of products with packed weights: K and N are attributes, or follow from operand and output.
BY_ATTRIBUTES = {"MatMulNBits": 5, "MatMulBnb4": None}
BY_SHAPES = {"MatMulBlockQuantizedFp4Weight": 5, "MatMulBlockQuantizedFp8Weight": 4}


def _rows(operation: Operation) -> Count:
    return prod(operation.shape(0)[:-1])


@formula(*BY_ATTRIBUTES, *BY_SHAPES, domains=(MICROSOFT,))
def count_packed_product(operation: Operation) -> Cost:
    """Count a product with a packed weight of K×N; each weight is dequantized once."""
    op_type, rows = operation.node.op_type, _rows(operation)
    if op_type in BY_ATTRIBUTES:
        inner, columns = operation.positive("K"), operation.positive("N")
    else:
        inner, columns = operation.dim(0, -1), operation.output_shape(least=1)[-1]
    bias = {**BY_ATTRIBUTES, **BY_SHAPES}[op_type]
    biased = operation.has(bias) if bias is not None else 0
    return contraction(Gemm(1, rows, inner, columns), biased * rows * columns, inner * columns)


@formula("MatMulNBitsMlp", domains=(MICROSOFT,))
def count_matmul_nbits_mlp(operation: Operation) -> Cost:
    """Count an RMS norm with a skip, then activation(A·gate) · (A·up): A, skip, norm scale, gate, …, up."""
    rows, inner, columns = _rows(operation), operation.positive("K"), operation.positive("N")
    outputs = rows * columns
    extra = (activation_flops(operation) + 1 + operation.has(5) + operation.has(8)) * outputs
    normalized = _normalization(operation, rows * inner)
    return Cost(macs=2 * inner * outputs, other_flops=extra + normalized, dequantized=2 * inner * columns)


@formula("MatMulNBitsQkv", domains=(MICROSOFT,))
def count_matmul_nbits_qkv(operation: Operation) -> Cost:
    """Count an RMS norm with an optional skip, then three products that share A: N is Nq + 2·Nkv."""
    rows, inner = _rows(operation), operation.positive("K")
    query, key = operation.positive("Nq"), operation.positive("Nkv")
    columns = query + 2 * key
    biases = rows * (operation.has(5) * query + (operation.has(8) + operation.has(11)) * key)
    extra = biases + _normalization(operation, rows * inner)
    return contraction(Gemm(1, rows, inner, columns), extra, inner * columns)


def _normalization(operation: Operation, elements: Count) -> Count:
    return (RMS_NORM * operation.has(2) + operation.has(1)) * elements


def _experts(
    operation: Operation, weights: tuple[int, ...], per_expert: tuple[int, ...], *, is_packed: bool = False
) -> Cost:
    """Each token visits k experts; the weights of min(experts, tokens · k) experts are read.

    Counted are the products, the router's softmax (5 FLOPs per logit), and the weighted sum of the k results (2 per
    output). Activations between the layers are not counted. Each packed weight that is read is dequantized once.
    """
    tokens, experts = prod(operation.shape(1)[:-1]), operation.dim(1, -1)
    chosen = operation.integer("k", 1)
    visits = tokens * chosen
    parameters = sum(
        prod(operation.shape(index)[1:]) * (_packed_per_byte(operation, layer) if is_packed else 1)
        for layer, index in enumerate(weights, start=1)
        if operation.has(index)
    )
    visited = smaller(experts, visits)
    extra = 5 * tokens * experts + 2 * operation.elements(0) * chosen
    reads = {
        index: operation.touched_bytes(index, visited * prod(operation.shape(index)[1:]))
        for index in per_expert
        if operation.has(index)
    }
    return Cost(visits * parameters, extra, dequantized=is_packed * visited * parameters, reads=reads)


def _packed_per_byte(operation: Operation, layer: int) -> int:
    """Return how many weights of a layer are packed in a byte; a layer may have its own width."""
    bits = operation.integer(f"fc{layer}_expert_weight_bits", 0) or operation.positive("expert_weight_bits", 4)
    return 8 // bits


# fc1, fc2 and the optional fc3, each with its bias; if packed, with scales, bias and zero points.
_plain = partial(_experts, weights=(2, 4, 6), per_expert=(2, 3, 4, 5, 6, 7))
_packed = partial(_experts, weights=(2, 5, 8), per_expert=tuple(range(2, 14)), is_packed=True)
formula("MoE", domains=(MICROSOFT,))(_plain)
formula("QMoE", domains=(MICROSOFT,))(_packed)

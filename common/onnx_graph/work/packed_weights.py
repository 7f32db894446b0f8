"""Products with weights that are stored in packed blocks, and mixtures of experts.

Source of the definitions: ONNX Runtime, docs/ContribOperators.md. A packed weight is dequantized once (2 FLOPs per
weight), so that a MatMulNBits costs what DequantizeLinear and MatMul would.
"""

from __future__ import annotations

from math import prod

from common.expressions import smaller
from common.graph import Count
from common.onnx_graph.work.convolutions import activation_flops
from common.onnx_graph.work.flops import DEQUANTIZE
from common.onnx_graph.work.registry import Cost, Gemm, Operation, contraction, formula
from common.operators import MICROSOFT


def _rows(operation: Operation) -> Count:
    return prod(operation.shape(0)[:-1])


def _by_attributes(operation: Operation, bias: int) -> Cost:
    """Count a product with a packed weight of K×N (attributes); each weight is dequantized once (2 FLOPs)."""
    rows, inner, columns = _rows(operation), operation.positive("K"), operation.positive("N")
    return contraction(
        Gemm(1, rows, inner, columns), DEQUANTIZE * inner * columns + operation.has(bias) * rows * columns
    )


@formula("MatMulNBits", domains=(MICROSOFT,))
def count_matmul_nbits(operation: Operation) -> Cost:
    """Operands A, packed B, scales, optional zero points, group index, bias (5)."""
    return _by_attributes(operation, bias=5)


@formula("MatMulBnb4", domains=(MICROSOFT,))
def count_matmul_bnb4(operation: Operation) -> Cost:
    """Operands A, packed B, absolute maxima."""
    return _by_attributes(operation, bias=3)


@formula("MatMulFpQ4", "MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", domains=(MICROSOFT,))
def count_matmul_block_quantized(operation: Operation) -> Cost:
    """N is the last extent of the output; each weight is dequantized once; the last operand may be a bias."""
    columns, inner, rows = operation.output_shape(least=1)[-1], operation.dim(0, -1), _rows(operation)
    bias = {"MatMulBlockQuantizedFp4Weight": 5, "MatMulBlockQuantizedFp8Weight": 4}.get(operation.node.op_type, 99)
    extra = DEQUANTIZE * inner * columns + operation.has(bias) * rows * columns
    return contraction(Gemm(1, rows, inner, columns), extra)


@formula("MatMulNBitsMlp", domains=(MICROSOFT,))
def count_matmul_nbits_mlp(operation: Operation) -> Cost:
    """RMS norm with an optional skip, then activation(A·gate) · (A·up): operands A, skip, norm scale, gate, …, up."""
    rows, inner, columns = _rows(operation), operation.positive("K"), operation.positive("N")
    outputs = rows * columns
    extra = (activation_flops(operation) + 1 + operation.has(5) + operation.has(8)) * outputs
    weights = DEQUANTIZE * 2 * inner * columns
    return Cost(macs=2 * inner * outputs, other_flops=extra + weights + _normalization(operation, rows * inner))


@formula("MatMulNBitsQkv", domains=(MICROSOFT,))
def count_matmul_nbits_qkv(operation: Operation) -> Cost:
    """RMS norm with an optional skip, then three products that share A: N is Nq + 2·Nkv."""
    rows, inner = _rows(operation), operation.positive("K")
    query, key = operation.positive("Nq"), operation.positive("Nkv")
    columns = query + 2 * key
    biases = rows * (operation.has(5) * query + (operation.has(8) + operation.has(11)) * key)
    extra = DEQUANTIZE * inner * columns + biases + _normalization(operation, rows * inner)
    return contraction(Gemm(1, rows, inner, columns), extra)


def _normalization(operation: Operation, elements: Count) -> Count:
    return (4 * operation.has(2) + operation.has(1)) * elements


@formula("MoE", domains=(MICROSOFT,))
def count_moe(operation: Operation) -> Cost:
    """Mixture of experts: fc1, fc2 and the optional fc3 are operands 2, 4, 6, biases 3, 5, 7."""
    return _experts(operation, weights=(2, 4, 6), per_expert=(2, 3, 4, 5, 6, 7), dequantize=0)


@formula("QMoE", domains=(MICROSOFT,))
def count_qmoe(operation: Operation) -> Cost:
    """Mixture of experts with packed weights at 2, 5, 8, each followed by scales, biases and zero points."""
    return _experts(operation, weights=(2, 5, 8), per_expert=tuple(range(2, 14)), dequantize=DEQUANTIZE)


def _experts(operation: Operation, weights: tuple[int, ...], per_expert: tuple[int, ...], dequantize: int) -> Cost:
    """Each token visits k experts; the weights of min(experts, tokens · k) experts are read.

    Counted are the products, the router's softmax (5 FLOPs per logit), the weighted sum of the k results (2 per
    output), and dequantizing each weight that is read once. Activations between the layers are not counted.
    """
    tokens, experts = prod(operation.shape(1)[:-1]), operation.dim(1, -1)
    chosen = operation.integer("k", 1)
    visits = tokens * chosen
    parameters = sum(
        prod(operation.shape(index)[1:]) * (_packed_per_byte(operation, layer) if dequantize else 1)
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
    return Cost(visits * parameters, extra + dequantize * visited * parameters, reads=reads)


def _packed_per_byte(operation: Operation, layer: int) -> int:
    """Return how many weights of a layer are packed in a byte; a layer may have its own width."""
    bits = operation.integer(f"fc{layer}_expert_weight_bits", 0) or operation.positive("expert_weight_bits", 4)
    return 8 // bits

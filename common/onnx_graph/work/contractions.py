"""Multiply-accumulates of matrix products, in their plain, integer, quantized and fused forms.

Source of the definitions: the operator specifications of ONNX (onnx.ai/onnx/operators) and ONNX Runtime
(docs/ContribOperators.md).
"""

from __future__ import annotations

from math import prod
from typing import Any

from common.graph import Count
from common.onnx_graph.work.convolutions import activation_flops
from common.onnx_graph.work.flops import DEQUANTIZE, QUANTIZE_DYNAMICALLY, REQUANTIZE
from common.onnx_graph.work.registry import Cost, Gemm, Operation, broadcast, contraction, formula
from common.operators import MICROSOFT


def outputs_of(cost: Cost) -> Count:
    gemm = cost.gemm
    return gemm.batch * gemm.m * gemm.n if gemm else 0


def matrix(shape: tuple[Count, ...], transposed: Any = 0) -> tuple[Count, Count]:
    rows, columns = shape
    return (columns, rows) if transposed else (rows, columns)


@formula("Gemm")
@formula("FusedGemm", domains=(MICROSOFT,))
def count_gemm(operation: Operation) -> Cost:
    """Y = α·A'·B' + β·C: M·K·N MACs; C and a scale other than 1 add one FLOP per output each."""
    rows, inner = matrix(operation.shape(0, rank=2), operation.attribute("transA", 0))
    _, columns = matrix(operation.shape(1, rank=2), operation.attribute("transB", 0))
    scaled = int(operation.attribute("alpha", 1.0) != 1.0)
    extra = operation.has(2) + scaled + activation_flops(operation)
    return contraction(Gemm(1, rows, inner, columns), extra * rows * columns)


@formula("GemmFloat8", domains=(MICROSOFT,))
def count_gemm_float8(operation: Operation) -> Cost:
    """A Gemm of 8-bit floats whose output is scaled (2 FLOPs: the product of the scales, and to the output's)."""
    return count_gemm(operation).plus(REQUANTIZE * operation.output_elements())


@formula("QGemm", domains=(MICROSOFT,))
def count_qgemm(operation: Operation) -> Cost:
    """Operands A, scale, zero point, B, scale, zero point, optional C and output scale and zero point."""
    rows, inner = matrix(operation.shape(0, rank=2), operation.attribute("transA", 0))
    _, columns = matrix(operation.shape(3, rank=2), operation.attribute("transB", 0))
    return contraction(Gemm(1, rows, inner, columns), (REQUANTIZE + operation.has(6)) * rows * columns)


@formula("GemmFastGelu", domains=(MICROSOFT,))
def count_gemm_fast_gelu(operation: Operation) -> Cost:
    """Count a matrix product, an optional bias and a Gelu (5 FLOPs)."""
    cost = _matmul(operation.shape(0, least=1), operation.shape(1, least=1))
    return cost.plus((5 + operation.has(2)) * outputs_of(cost))


def _matmul(left: tuple[Count, ...], right: tuple[Count, ...]) -> Cost:
    """numpy.matmul: 1-D operands are a row or a column, leading dimensions broadcast."""
    rows, inner = (1, left[0]) if len(left) == 1 else left[-2:]
    columns = 1 if len(right) == 1 else right[-1]
    tall, wide = left[:-2], right[:-2]
    shared = prod(wide) == 1
    rank = max(len(tall), len(wide))
    padded = zip((1,) * (rank - len(tall)) + tall, (1,) * (rank - len(wide)) + wide, strict=True)
    batch = prod(broadcast(one, other) for one, other in padded)
    # With a shared right operand, the whole batch is one tall product for a kernel.
    if shared and len(left) > 1:
        return contraction(Gemm(1, batch * rows, inner, columns))
    return contraction(Gemm(batch, rows, inner, columns))


@formula("MatMul", "MatMulInteger")
@formula("MatMulInteger16", domains=(MICROSOFT,))
def count_matmul(operation: Operation) -> Cost:
    """Matrix product with numpy's broadcasting."""
    return _matmul(operation.shape(0, least=1), operation.shape(1, least=1))


@formula("QLinearMatMul")
def count_qlinear_matmul(operation: Operation) -> Cost:
    """Quantized matrix product: the right operand is operand 3; requantizing costs 2 FLOPs per output."""
    cost = _matmul(operation.shape(0, least=1), operation.shape(3, least=1))
    return cost.plus(REQUANTIZE * outputs_of(cost))


@formula("QOrderedMatMul", domains=(MICROSOFT,))
def count_qordered_matmul(operation: Operation) -> Cost:
    """Quantized: the right operand is operand 2, an optional bias operand 5 and a sum operand 6."""
    cost = _matmul(operation.shape(0, least=1), operation.shape(2, least=1))
    return cost.plus((REQUANTIZE + operation.has(5) + operation.has(6)) * outputs_of(cost))


def _transposed(shape: tuple[Count, ...], inner: Any, batch: Any) -> tuple[Count, ...]:
    """Return a shape as MatMul reads it: ``batch`` moves the first axis before the last, ``inner`` swaps two."""
    if len(shape) == 1:
        return shape
    if batch:
        shape = (*shape[1:-1], shape[0], shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if inner else shape


@formula("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domains=(MICROSOFT,))
def count_fused_matmul(operation: Operation) -> Cost:
    """Matrix product with transposed operands, a scale α (one FLOP per output where it is not 1), an activation."""
    left, right = (
        _transposed(
            operation.shape(index, least=1), operation.attribute(f"trans{name}", 0), operation.attribute(batch, 0)
        )
        for index, name, batch in ((0, "A", "transBatchA"), (1, "B", "transBatchB"))
    )
    cost = _matmul(left, right)
    scaled = int(operation.attribute("alpha", 1.0) != 1.0)
    return cost.plus((scaled + activation_flops(operation)) * outputs_of(cost))


@formula("DynamicQuantizeMatMul", domains=(MICROSOFT,))
def count_dynamic_quantize_matmul(operation: Operation) -> Cost:
    """Quantize A (5 FLOPs per element), scale the integer product (2 per output), add an optional bias."""
    cost = _matmul(operation.shape(0, least=1), operation.shape(1, least=1))
    extra = (DEQUANTIZE + operation.has(4)) * outputs_of(cost)
    return cost.plus(QUANTIZE_DYNAMICALLY * operation.elements(0) + extra)


@formula("MatMulIntegerToFloat", domains=(MICROSOFT,))
def count_matmul_integer_to_float(operation: Operation) -> Cost:
    """Scale the integer product (2 FLOPs per output), add an optional bias (operand 6)."""
    cost = _matmul(operation.shape(0, least=1), operation.shape(1, least=1))
    return cost.plus((DEQUANTIZE + operation.has(6)) * outputs_of(cost))


@formula("GatedRelativePositionBias", domains=(MICROSOFT,))
def count_gated_relative_position_bias(operation: Operation) -> Cost:
    """Each head's query row meets a small weight (head size × D, operand 3), whose results gate the position bias.

    The query bias costs 1 FLOP per element; a row's D results 2 each (bias, sum over D/2), two sigmoids and the gate
    12; the product with the position bias 1 per output.
    """
    inner, columns = operation.shape(3, rank=2)
    rows = prod(operation.shape(0)[:-1]) * operation.integer("num_heads", 1)
    extra = operation.elements(0) + (2 * columns + 12) * rows + operation.output_elements()
    return contraction(Gemm(1, rows, inner, columns), extra)

"""Multiply-accumulates of matrix products (plain, integer, quantized, fused), linear models and support vectors."""

from __future__ import annotations

from functools import partial
from math import prod

from common.graphs.graph import Count
from common.graphs.operators import MACHINE_LEARNING, MICROSOFT, ONNX
from common.onnx_graph.attributes import transposed
from common.onnx_graph.work.convolutions import activation_flops
from common.onnx_graph.work.registry import (
    DEQUANTIZE,
    GELU,
    QUANTIZE_DYNAMICALLY,
    REQUANTIZE,
    Cost,
    Formula,
    Gemm,
    Operation,
    broadcast,
    contraction,
    formula,
)


def _matmul(left: tuple[Count, ...], right: tuple[Count, ...], flops: int = 0) -> Cost:
    """Count numpy.matmul: 1-D operands are a row or a column, leading dimensions broadcast; ``flops`` per output."""
    rows, inner = (1, left[0]) if len(left) == 1 else left[-2:]
    columns = 1 if len(right) == 1 else right[-1]
    tall, wide = left[:-2], right[:-2]
    rank = max(len(tall), len(wide))
    padded = zip((1,) * (rank - len(tall)) + tall, (1,) * (rank - len(wide)) + wide, strict=True)
    batch = prod(broadcast(*extents) for extents in padded)
    # With a shared right operand, the whole batch is one tall product for a kernel.
    is_shared = prod(wide) == 1 and len(left) > 1
    gemm = Gemm(1, batch * rows, inner, columns) if is_shared else Gemm(batch, rows, inner, columns)
    return contraction(gemm, flops * batch * rows * columns)


def _count_matmul(operation: Operation, right: int = 1, flops: int = 0, addends: tuple[int, ...] = ()) -> Cost:
    """Count a product with operand ``right``, its FLOPs per output, and one for each optional operand ``addends``."""
    shapes = operation.shape(0, least=1), operation.shape(right, least=1)
    return _matmul(*shapes, flops + operation.present(addends))


MATMULS: dict[tuple[str, str], Formula] = {
    (ONNX, "MatMul"): _count_matmul,
    (ONNX, "MatMulInteger"): _count_matmul,
    (MICROSOFT, "MatMulInteger16"): _count_matmul,
    (ONNX, "QLinearMatMul"): partial(_count_matmul, right=3, flops=REQUANTIZE),
    (MICROSOFT, "QOrderedMatMul"): partial(_count_matmul, right=2, flops=REQUANTIZE, addends=(5, 6)),
    (MICROSOFT, "MatMulIntegerToFloat"): partial(_count_matmul, flops=DEQUANTIZE, addends=(6,)),
    (MICROSOFT, "GemmFastGelu"): partial(_count_matmul, flops=GELU, addends=(2,)),
}
for (_domain, _op_type), _formula in MATMULS.items():
    formula(_op_type, domains=(_domain,))(_formula)


@formula("DynamicQuantizeMatMul", domains=(MICROSOFT,))
def count_dynamic_quantize_matmul(operation: Operation) -> Cost:
    """Quantize A (5 FLOPs per element), scale the integer product (2 per output), add an optional bias."""
    cost = _count_matmul(operation, flops=DEQUANTIZE, addends=(4,))
    return cost.plus(QUANTIZE_DYNAMICALLY * operation.elements(0))


@formula("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domains=(MICROSOFT,))
def count_fused_matmul(operation: Operation) -> Cost:
    """Count a product of transposed operands, a scale α (one FLOP per output where not 1), an activation."""
    operands = ((operation.shape(index, least=1), side) for index, side in enumerate("AB"))
    left, right = (transposed(shape, side, operation.attribute) for shape, side in operands)
    return _matmul(left, right, _scaled(operation) + activation_flops(operation))


def _scaled(operation: Operation) -> int:
    return int(operation.attribute("alpha", 1.0) != 1.0)


def _matrix(operation: Operation, index: int, transposition: str) -> tuple[Count, Count]:
    rows, columns = operation.shape(index, rank=2)
    return (columns, rows) if operation.attribute(transposition, 0) else (rows, columns)


def _gemm(operation: Operation, right: int, flops: int) -> Cost:
    rows, inner = _matrix(operation, 0, "transA")
    _, columns = _matrix(operation, right, "transB")
    return contraction(Gemm(1, rows, inner, columns), flops * rows * columns)


@formula("Gemm")
@formula("FusedGemm", domains=(MICROSOFT,))
def count_gemm(operation: Operation) -> Cost:
    """Count Y = α·A'·B' + β·C: M·K·N MACs; C and a scale other than 1 add one FLOP per output each."""
    return _gemm(operation, 1, operation.has(2) + _scaled(operation) + activation_flops(operation))


@formula("GemmFloat8", domains=(MICROSOFT,))
def count_gemm_float8(operation: Operation) -> Cost:
    """Count a Gemm of 8-bit floats, and its scale (2 FLOPs: product of the scales, and to the output's)."""
    return count_gemm(operation).plus(REQUANTIZE * operation.output_elements())


@formula("QGemm", domains=(MICROSOFT,))
def count_qgemm(operation: Operation) -> Cost:
    """Read A, scale, zero point, B, scale, zero point, optional C and output scale and zero point."""
    return _gemm(operation, 3, REQUANTIZE + operation.has(6))


@formula("GatedRelativePositionBias", domains=(MICROSOFT,))
def count_gated_relative_position_bias(operation: Operation) -> Cost:
    """Multiply each head's query row by a small weight (head size × D, operand 3) that gates the bias.

    The query bias costs 1 FLOP per element; a row's D results 2 each (bias, sum over D/2), two sigmoids and the gate
    12; the product with the position bias 1 per output.
    """
    inner, columns = operation.shape(3, rank=2)
    rows = prod(operation.shape(0)[:-1]) * operation.integer("num_heads", 1)
    extra = operation.elements(0) + (2 * columns + 12) * rows + operation.output_elements()
    return contraction(Gemm(1, rows, inner, columns), extra)


# --- ai.onnx.ml; its trees are not counted: how deep a sample goes depends on its values ----------------------------

# FLOPs per score of what the attribute ``post_transform`` names.
POST_TRANSFORM = {"NONE": 0, "LOGISTIC": 4, "SOFTMAX": 5, "SOFTMAX_ZERO": 5, "PROBIT": 1}
# FLOPs per support vector and sample beyond the dot product.
KERNEL = {"LINEAR": 0, "POLY": 3, "RBF": 3, "SIGMOID": 3}


@formula("LinearClassifier", "LinearRegressor", domains=(MACHINE_LEARNING,))
def count_linear(operation: Operation) -> Cost:
    """Count a product of (samples × features) by (features × targets); an intercept and a post-transform per score."""
    *samples, features = operation.shape(0, least=1)
    targets = operation.quotient(len(operation.items("coefficients")), features)
    intercepts = bool(operation.items("intercepts"))
    scores = prod(samples) * targets
    extra = (intercepts + operation.choice("post_transform", POST_TRANSFORM, "NONE")) * scores
    return contraction(Gemm(1, prod(samples), features, targets), extra)


@formula("SVMClassifier", "SVMRegressor", domains=(MACHINE_LEARNING,))
def count_support_vectors(operation: Operation) -> Cost:
    """Count a dot product and its kernel per sample and support vector, and each vector's coefficients.

    A model without support vectors is a linear one. Votes and probabilities of a classifier are not counted.
    """
    samples = prod(operation.shape(0)[:-1])
    vectors, coefficients = (len(operation.items(name)) for name in ("support_vectors", "coefficients"))
    features = operation.dim(0, -1)
    kernel = operation.choice("kernel_type", KERNEL, "LINEAR")
    extra = (kernel * operation.quotient(vectors, features) + len(operation.items("rho"))) * samples
    return Cost(macs=samples * (vectors + coefficients), other_flops=extra)

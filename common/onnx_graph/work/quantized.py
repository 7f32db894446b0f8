"""Quantized forms of element-wise operators, pools and reductions: 8-bit operands with a scale and a zero point each.

Convention: the operator costs as much as the graph that it replaces: 2 FLOPs to dequantize each element of each
quantized operand, the FLOPs of the plain operator, 3 to quantize each output (divide, round, saturate).
Source of the definitions: ONNX Runtime, docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from common.graph import Count
from common.onnx_graph.work.flops import DEQUANTIZE, QUANTIZE
from common.onnx_graph.work.registry import Cost, Formula, Operation, formula
from common.operators import MICROSOFT, NHWC


def _quantized(operation: Operation, operands: Iterable[int], plain_flops: Count) -> Cost:
    read = sum(operation.elements(index) for index in operands)
    return Cost(other_flops=DEQUANTIZE * read + plain_flops + QUANTIZE * operation.output_elements())


def _unary(flops: int) -> Formula:
    def count(operation: Operation) -> Cost:
        return _quantized(operation, (0,), flops * operation.elements(0))

    return count


formula("QLinearGlobalAveragePool", "QLinearReduceMean", domains=(MICROSOFT,))(_unary(1))
formula("QLinearLeakyRelu", domains=(MICROSOFT,))(_unary(2))
formula("QLinearSigmoid", domains=(MICROSOFT,))(_unary(4))
formula("QLinearSoftmax", domains=(MICROSOFT,))(_unary(5))


@formula("QLinearAdd", "QLinearMul", domains=(MICROSOFT,))
def count_qlinear_binary(operation: Operation) -> Cost:
    """Operands A, scale, zero point, B, scale, zero point, scale and zero point of the output."""
    return _quantized(operation, (0, 3), operation.output_elements())


@formula("QLinearWhere", domains=(MICROSOFT,))
def count_qlinear_where(operation: Operation) -> Cost:
    """Operands condition, X, scale, zero point, Y, scale, zero point, …."""
    return _quantized(operation, (1, 4), operation.output_elements())


@formula("QLinearConcat", domains=(MICROSOFT,))
def count_qlinear_concat(operation: Operation) -> Cost:
    """Scale and zero point of the output, then (operand, scale, zero point) for each part."""
    return _quantized(operation, range(2, len(operation.inputs), 3), 0)


@formula("QLinearAveragePool", domains=(MICROSOFT, NHWC))
def count_qlinear_average_pool(operation: Operation) -> Cost:
    """``taps`` FLOPs per output: the sums and a division."""
    taps = prod(operation.integers("kernel_shape"))
    return _quantized(operation, (0,), taps * operation.output_elements())

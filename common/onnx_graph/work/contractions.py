"""Multiply-accumulates: convolutions and matrix products, in their plain, integer and fused forms.

Source of the definitions: the operator specifications of ONNX (onnx.ai/onnx/operators) and ONNX Runtime
(docs/ContribOperators.md).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from common.onnx_graph.work.registry import MICROSOFT, NCHWC, Cost, Gemm, Operation, formula


def _contraction(gemm: Gemm, other_flops: int = 0) -> Cost:
    return Cost(macs=gemm.batch * gemm.m * gemm.k * gemm.n, other_flops=other_flops, gemm=gemm)


def _convolution(operation: Operation, weight: int, bias: int) -> Cost:
    """MACs = N · prod(output extent) · C_out · (C_in / groups) · prod(kernel); a bias adds one FLOP per output."""
    groups = int(operation.attribute("group", 1))
    channels, channels_per_group, *kernel = operation.shape(weight)
    batch, _, *extent = operation.output_shape()
    gemm = Gemm(groups, batch * prod(extent), channels_per_group * prod(kernel), channels // groups)
    return _contraction(gemm, operation.output_elements() if operation.has(bias) else 0)


@formula("Conv")
def count_conv(operation: Operation) -> Cost:
    """Convolution of any number of axes: operands X, W, optional B."""
    return _convolution(operation, weight=1, bias=2)


@formula("FusedConv", domains=(MICROSOFT,))
@formula("Conv", domains=(NCHWC,))
def count_fused_conv(operation: Operation) -> Cost:
    """Convolution with an optional fused sum (operand 3) and activation, one FLOP per output each."""
    cost = _convolution(operation, weight=1, bias=2)
    extra = operation.has(3) + bool(operation.text("activation", ""))
    return replace(cost, other_flops=cost.other_flops + extra * operation.output_elements())


@formula("ConvInteger")
def count_conv_integer(operation: Operation) -> Cost:
    """Integer convolution: operands x, w, optional zero points."""
    return _convolution(operation, weight=1, bias=len(operation.inputs))


@formula("QLinearConv")
def count_qlinear_conv(operation: Operation) -> Cost:
    """Quantized convolution: the weight is operand 3, the bias operand 8; requantizing costs 2 FLOPs per output."""
    cost = _convolution(operation, weight=3, bias=8)
    return replace(cost, other_flops=cost.other_flops + 2 * operation.output_elements())


@formula("ConvTranspose")
def count_conv_transpose(operation: Operation) -> Cost:
    """MACs = N · prod(input extent) · C_in · (C_out / groups) · prod(kernel), not reduced for cropping."""
    groups = int(operation.attribute("group", 1))
    batch, channels, *extent = operation.shape(0)
    _, outputs_per_group, *kernel = operation.shape(1)
    gemm = Gemm(groups, batch * prod(extent), channels // groups, outputs_per_group * prod(kernel))
    return _contraction(gemm, operation.output_elements() if operation.has(2) else 0)


@formula("Gemm")
@formula("FusedGemm", domains=(MICROSOFT,))
def count_gemm(operation: Operation) -> Cost:
    """Y = α·A'·B' + β·C: M·K·N MACs; C, a scale other than 1 and an activation add one FLOP per output each."""
    rows, inner = operation.shape(0)
    if operation.attribute("transA", 0):
        rows, inner = inner, rows
    columns = operation.output_shape()[1]
    scaled = operation.attribute("alpha", 1.0) != 1.0
    activated = bool(operation.text("activation", ""))
    extra = operation.has(2) + scaled + activated
    return _contraction(Gemm(1, rows, inner, columns), extra * rows * columns)


def _matmul(operation: Operation, right: int, *, transposed_left: bool = False) -> Cost:
    """Broadcast product: the batch is that of the output; 1-D operands are rows or columns (numpy.matmul)."""
    left_shape, right_shape, output = operation.shape(0), operation.shape(right), operation.output_shape()
    inner = left_shape[-2] if transposed_left else left_shape[-1]
    rows = 1 if len(left_shape) == 1 else output[-1 if len(right_shape) == 1 else -2]
    columns = 1 if len(right_shape) == 1 else output[-1]
    outputs = prod(output)
    batch = outputs // (rows * columns) if outputs else 0
    # A shared right operand makes one tall product of the whole batch: that is what a kernel sees.
    if prod(right_shape[:-2]) == 1 and len(left_shape) > 1:
        return _contraction(Gemm(1, batch * rows, inner, columns))
    return _contraction(Gemm(batch, rows, inner, columns))


@formula("MatMul", "MatMulInteger")
def count_matmul(operation: Operation) -> Cost:
    """Matrix product with numpy's broadcasting."""
    return _matmul(operation, right=1)


@formula("QLinearMatMul")
def count_qlinear_matmul(operation: Operation) -> Cost:
    """Quantized matrix product: the right operand is operand 3; requantizing costs 2 FLOPs per output."""
    return replace(_matmul(operation, right=3), other_flops=2 * operation.output_elements())


@formula("FusedMatMul", domains=(MICROSOFT,))
def count_fused_matmul(operation: Operation) -> Cost:
    """Matrix product with transposed operands and a scale α, one FLOP per output where it is not 1."""
    cost = _matmul(operation, right=1, transposed_left=bool(operation.attribute("transA", 0)))
    scaled = operation.attribute("alpha", 1.0) != 1.0
    return replace(cost, other_flops=operation.output_elements() if scaled else 0)

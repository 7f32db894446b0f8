"""Multiply-accumulates of convolutions, in their plain, integer, fused, blocked and channels-last forms.

Source of the definitions: the operator specifications of ONNX (onnx.ai/onnx/operators) and ONNX Runtime
(docs/ContribOperators.md). Only activations are blocked or channels-last; weights stay (C_out, C_in / groups, kernel…).
"""

from __future__ import annotations

from math import prod

from common.onnx_graph.work.flops import REQUANTIZE
from common.onnx_graph.work.registry import Cost, Gemm, Operation, contraction, formula
from common.operators import MICROSOFT, NCHWC, NHWC, ONNX

# FLOPs of a fused activation, per output; any other counts one.
ACTIVATION_FLOPS = {"": 0, "LeakyRelu": 2, "Clip": 2, "HardSigmoid": 4, "Sigmoid": 4, "Gelu": 5, "silu": 5, "swish": 5}
BILINEAR_FLOPS = 7  # four products and three sums of a value between four others


def activation_flops(operation: Operation) -> int:
    """Return the FLOPs per output of the activation that the attribute ``activation`` names."""
    name = operation.text("activation", "")
    return ACTIVATION_FLOPS.get("" if name == "none" else name, 1)


def _convolution(operation: Operation, weight: int, bias: int | None, *, channels_last: bool = False) -> Cost:
    """MACs = N · prod(output extent) · C_out · (C_in / groups) · prod(kernel); a bias adds one FLOP per output."""
    groups = operation.positive("group", 1)
    channels, channels_per_group, *kernel = operation.shape(weight, least=2)
    output = operation.output_shape(least=1)
    positions = prod(output[:-1]) if channels_last else output[0] * prod(output[2:])
    gemm = Gemm(groups, positions, channels_per_group * prod(kernel), channels // groups)
    return contraction(gemm, operation.output_elements() if bias is not None and operation.has(bias) else 0)


@formula("Conv")
def count_conv(operation: Operation) -> Cost:
    """Convolution of any number of axes: operands X, W, optional B."""
    return _convolution(operation, weight=1, bias=2)


@formula("FusedConv", domains=(MICROSOFT,))
@formula("Conv", domains=(NCHWC,))
def count_fused_conv(operation: Operation) -> Cost:
    """Convolution with an optional fused sum (operand 3, one FLOP per output) and activation."""
    extra = operation.has(3) + activation_flops(operation)
    return _convolution(operation, weight=1, bias=2).plus(extra * operation.output_elements())


@formula("NhwcConv", "NhwcFusedConv", domains=(MICROSOFT,))
@formula("Conv", domains=(NHWC,))
def count_nhwc_conv(operation: Operation) -> Cost:
    """Convolution with channels last, an optional fused sum and activation."""
    extra = operation.has(3) + activation_flops(operation)
    return _convolution(operation, weight=1, bias=2, channels_last=True).plus(extra * operation.output_elements())


@formula("ConvInteger")
def count_conv_integer(operation: Operation) -> Cost:
    """Integer convolution: operands x, w, optional zero points."""
    return _convolution(operation, weight=1, bias=None)


@formula("QLinearConv", domains=(ONNX, MICROSOFT, NHWC))
def count_qlinear_conv(operation: Operation) -> Cost:
    """Quantized convolution: the weight is operand 3, the bias operand 8; requantizing costs 2 FLOPs per output."""
    channels_last = bool(operation.attribute("channels_last", operation.node.domain == NHWC))
    cost = _convolution(operation, weight=3, bias=8, channels_last=channels_last)
    return cost.plus(REQUANTIZE * operation.output_elements())


def _transposed(operation: Operation, weight: int, bias: int | None, *, channels_last: bool = False) -> Cost:
    """MACs = N · prod(input extent) · C_in · (C_out / groups) · prod(kernel), not reduced for cropping."""
    groups = operation.positive("group", 1)
    channels, outputs_per_group, *kernel = operation.shape(weight, least=2)
    data = operation.shape(0, least=1)
    positions = prod(data[:-1]) if channels_last else data[0] * prod(data[2:])
    gemm = Gemm(groups, positions, channels // groups, outputs_per_group * prod(kernel))
    return contraction(gemm, operation.output_elements() if bias is not None and operation.has(bias) else 0)


@formula("ConvTranspose")
def count_conv_transpose(operation: Operation) -> Cost:
    """Transposed convolution, in which every input value meets the whole kernel: operands X, W, optional B."""
    return _transposed(operation, weight=1, bias=2)


@formula("ConvTranspose", domains=(NHWC,))
def count_nhwc_conv_transpose(operation: Operation) -> Cost:
    """Transposed convolution with channels last."""
    return _transposed(operation, weight=1, bias=2, channels_last=True)


@formula("ConvTransposeWithDynamicPads", domains=(MICROSOFT,))
def count_conv_transpose_with_pads(operation: Operation) -> Cost:
    """Transposed convolution whose pads are operand 2; the bias is operand 3."""
    return _transposed(operation, weight=1, bias=3)


@formula("QLinearConvTranspose", domains=(NHWC,))
def count_qlinear_conv_transpose(operation: Operation) -> Cost:
    """Quantized transposed convolution with channels last; requantizing costs 2 FLOPs per output."""
    cost = _transposed(operation, weight=3, bias=8, channels_last=True)
    return cost.plus(REQUANTIZE * operation.output_elements())


@formula("DeformConv")
def count_deform_conv(operation: Operation) -> Cost:
    """Count a convolution of bilinear samples: operands X, W, offset, optional B and mask.

    Each tap of each input channel at each output position is sampled (7 FLOPs), and scaled by the mask (1).
    """
    cost = _convolution(operation, weight=1, bias=3)
    batch, _, *extent = operation.output_shape(least=2)
    kernel = operation.shape(1)[2:]
    samples = batch * prod(extent) * operation.dim(0, 1) * prod(kernel)
    return cost.plus((BILINEAR_FLOPS + operation.has(4)) * samples)


@formula("CausalConvWithState")
@formula("CausalConvWithState", "VarlenCausalConvWithState", domains=(MICROSOFT,))
def count_causal_conv(operation: Operation) -> Cost:
    """Count a depthwise convolution: each output is prod(kernel) MACs; the weight is (channels, …, kernel)."""
    channels, *kernel = operation.shape(1, least=1)
    outputs = operation.output_elements()
    gemm = Gemm(channels, operation.quotient(outputs, channels), prod(kernel), 1)
    bias = operation.has(3 if operation.node.op_type.startswith("Varlen") else 2)
    return contraction(gemm, (bias + activation_flops(operation)) * outputs)

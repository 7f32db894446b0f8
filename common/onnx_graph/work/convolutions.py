"""Multiply-accumulates of convolutions, in their plain, integer, fused, blocked and channels-last forms.

Only activations are blocked or channels-last; weights stay (C_out, C_in / groups, kernel…).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

from common.graphs.operators import MICROSOFT, NCHWC, NHWC, ONNX
from common.onnx_graph.work.registry import REQUANTIZE, Cost, Gemm, Operation, contraction, formula

# FLOPs of a fused activation, per output; any other counts one.
ACTIVATION_FLOPS = {"": 0, "LeakyRelu": 2, "Clip": 2, "HardSigmoid": 4, "Sigmoid": 4, "Gelu": 5, "silu": 5, "swish": 5}
BILINEAR_FLOPS = 7  # four products and three sums of a value between four others


def activation_flops(operation: Operation) -> int:
    """Return the FLOPs per output of the activation that the attribute ``activation`` names."""
    name = operation.text("activation", "")
    return ACTIVATION_FLOPS.get("" if name == "none" else name, 1)


@dataclass(frozen=True, slots=True)
class Form:
    """Operands and layout of a kind of convolution."""

    weight: int = 1
    bias: int | None = 2  # operand of the bias, which adds one FLOP per output; None where the operator has none
    is_transposed: bool = False  # whether every input value meets the whole kernel; cropping does not reduce the MACs
    is_fused: bool = False  # whether operand 3 is a sum (one FLOP per output), and an attribute names an activation
    flops: int = 0  # further FLOPs per output


PLAIN, FUSED, QUANTIZED = Form(), Form(is_fused=True), Form(weight=3, bias=8, flops=REQUANTIZE)
TRANSPOSED = Form(is_transposed=True)
FORMS = {
    ONNX: {
        "Conv": PLAIN,
        "ConvInteger": Form(bias=None),  # its operands after the weight are zero points
        "QLinearConv": QUANTIZED,
        "ConvTranspose": TRANSPOSED,
    },
    MICROSOFT: {
        **dict.fromkeys(("FusedConv", "NhwcConv", "NhwcFusedConv"), FUSED),
        "QLinearConv": QUANTIZED,
        "ConvTransposeWithDynamicPads": Form(bias=3, is_transposed=True),  # operand 2 holds the pads
    },
    NCHWC: {"Conv": FUSED},
    NHWC: {
        "Conv": FUSED,
        "QLinearConv": QUANTIZED,
        "ConvTranspose": TRANSPOSED,
        "QLinearConvTranspose": Form(weight=3, bias=8, is_transposed=True, flops=REQUANTIZE),
    },
}


def _convolution(operation: Operation, form: Form) -> Cost:
    """Count output (transposed: input) positions · channels · (other channels / groups) · prod(kernel)."""
    groups = operation.positive("group", 1)
    channels, channels_per_group, *kernel = operation.shape(form.weight, least=2)
    swept = operation.shape(0, least=1) if form.is_transposed else operation.output_shape(least=1)
    node = operation.node
    is_last = operation.attribute("channels_last", node.domain == NHWC or node.op_type.startswith("Nhwc"))
    positions = prod(swept[:-1]) if is_last else swept[0] * prod(swept[2:])
    if form.is_transposed:
        gemm = Gemm(groups, positions, channels // groups, channels_per_group * prod(kernel))
    else:
        gemm = Gemm(groups, positions, channels_per_group * prod(kernel), channels // groups)
    extra = form.flops + (operation.has(form.bias) if form.bias is not None else 0)
    if form.is_fused:
        extra += operation.has(3) + activation_flops(operation)
    return contraction(gemm, extra * operation.output_elements() if extra else 0)


for _domain, _forms in FORMS.items():
    for _op_type, _form in _forms.items():
        formula(_op_type, domains=(_domain,))(partial(_convolution, form=_form))


@formula("DeformConv")
def count_deform_conv(operation: Operation) -> Cost:
    """Count a convolution of bilinear samples: operands X, W, offset, optional B and mask.

    Each tap of each input channel at each output position is sampled (7 FLOPs), and scaled by the mask (1).
    """
    cost = _convolution(operation, Form(bias=3))
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

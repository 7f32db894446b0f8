"""FLOPs per element: activations, arithmetic, normalisations, reductions, pools.

Convention: every addition, multiplication, division, comparison or elementary function (exp, log, sqrt, tanh, erf,
sin, …) is one FLOP, whatever its cost in instructions. Parameters that a graph fixes (scale and shift of an inference
BatchNorm) are folded first.
"""

from __future__ import annotations

from math import prod

from common.onnx_graph.work.registry import MICROSOFT, NCHWC, Cost, Formula, Operation, formula

# FLOPs per output element.
PER_OUTPUT = {
    1: "Relu Abs Neg Ceil Floor Round Sqrt Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf "
    "Reciprocal Sign Not BitwiseNot IsInf IsNaN Add Sub Mul Div Mod Pow And Or Xor BitwiseAnd BitwiseOr BitwiseXor "
    "BitShift Equal Greater GreaterOrEqual Less LessOrEqual Where PRelu",
    2: "LeakyRelu Clip ThresholdedRelu Softsign Softplus Shrink DequantizeLinear BatchNormalization",
    3: "Elu Celu QuantizeLinear",  # divide, round, saturate
    4: "Sigmoid HardSigmoid Selu",  # 1 / (1 + exp(-x))
    5: "HardSwish Gelu Swish Mish",  # x · Φ(x): scale, erf, add, two products
}
# FLOPs per element of the first operand.
PER_INPUT = {
    1: "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ArgMax ArgMin CumSum GlobalAveragePool "
    "GlobalMaxPool Hardmax",
    2: "ReduceL2 ReduceSumSquare ReduceLogSum GlobalLpPool LpNormalization",
    3: "ReduceLogSumExp",
    5: "Softmax",  # maximum, difference, exp, sum, division
    6: "LogSoftmax",
    7: "LayerNormalization InstanceNormalization GroupNormalization MeanVarianceNormalization",
    4: "RMSNormalization",
}


def _per_output(flops: int) -> Formula:
    def count(operation: Operation) -> Cost:
        return Cost(other_flops=flops * operation.output_elements())

    return count


def _per_input(flops: int) -> Formula:
    def count(operation: Operation) -> Cost:
        return Cost(other_flops=flops * operation.elements(0))

    return count


for _flops, _names in PER_OUTPUT.items():
    formula(*_names.split())(_per_output(_flops))
for _flops, _names in PER_INPUT.items():
    formula(*_names.split())(_per_input(_flops))
formula("GlobalAveragePool", "GlobalMaxPool", domains=(NCHWC,))(_per_input(1))
formula("Gelu", "FastGelu", "QuickGelu", "BiasGelu", domains=(MICROSOFT,))(_per_output(5))
formula("SimplifiedLayerNormalization")(_per_input(4))  # in ONNX Runtime's part of the ONNX domain
formula("SkipLayerNormalization", domains=(MICROSOFT,))(_per_input(8))
formula("SkipSimplifiedLayerNormalization", domains=(MICROSOFT,))(_per_input(5))


@formula("Sum", "Max", "Min", "Mean")
def count_variadic(operation: Operation) -> Cost:
    """One FLOP per output for each operand after the first (Mean divides as well)."""
    steps = len(operation.inputs) - 1 + (operation.node.op_type == "Mean")
    return Cost(other_flops=steps * operation.output_elements())


@formula("MaxPool", "AveragePool")
@formula("MaxPool", "AveragePool", domains=(NCHWC,))
def count_pool(operation: Operation) -> Cost:
    """``taps - 1`` comparisons or additions per output, and a division for an average."""
    taps = prod(operation.attribute("kernel_shape", ()))
    steps = taps - 1 + (operation.node.op_type != "MaxPool")
    return Cost(other_flops=steps * operation.output_elements())


@formula("LpPool")
def count_lp_pool(operation: Operation) -> Cost:
    """``taps`` powers, ``taps - 1`` additions and a root per output."""
    taps = prod(operation.attribute("kernel_shape", ()))
    return Cost(other_flops=2 * taps * operation.output_elements())

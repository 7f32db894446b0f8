"""FLOPs per element: activations, arithmetic, reductions, quantization.

Convention: every addition, multiplication, division, comparison or elementary function (exp, log, sqrt, tanh, erf,
sin, …) is one FLOP, whatever its cost in instructions. Parameters that a graph fixes (scale and shift of an inference
BatchNorm) are folded first.
"""

from __future__ import annotations

from common.onnx_graph.work.registry import Cost, Formula, Operation, formula
from common.operators import MACHINE_LEARNING, MICROSOFT, NCHWC, NHWC, ONNX

# FLOPs per output element, by domain.
PER_OUTPUT = {
    ONNX: {
        1: "Relu Abs Neg Ceil Floor Round Sqrt Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf "
        "Reciprocal Sign Not BitwiseNot IsInf IsNaN Add Sub Mul Div Mod Pow And Or Xor BitwiseAnd BitwiseOr BitwiseXor "
        "BitShift Equal Greater GreaterOrEqual Less LessOrEqual Where PRelu Scale",
        2: "LeakyRelu Clip ThresholdedRelu Softsign Softplus Shrink DequantizeLinear BatchNormalization Affine "
        "ImageScaler",
        3: "Elu Celu QuantizeLinear ScaledTanh",  # divide, round, saturate; two scales and tanh
        4: "Sigmoid HardSigmoid Selu ParametricSoftplus HannWindow HammingWindow",  # scale, cos, product, difference
        5: "HardSwish Gelu Swish Mish",  # x · Φ(x): scale, erf, add, two products
        6: "SwiGLU",
        8: "BlackmanWindow",
    },
    NHWC: {2: "BatchNormalization"},
    MICROSOFT: {
        2: "DequantizeLinear DequantizeWithOrder GatedAdd",
        3: "QuantizeLinear QuantizeWithOrder ComplexMul ComplexMulConj",
        5: "Gelu QuickGelu",
        6: "BiasGelu ScaledSiLU",
        8: "BiasSplitGelu",  # two biases, Gelu, product
        10: "QOrderedGelu",  # dequantize, Gelu, quantize
    },
    MACHINE_LEARNING: {1: "Binarizer Imputer", 2: "Scaler"},
}
# FLOPs per element of the first operand, by domain.
PER_INPUT = {
    ONNX: {
        1: "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ArgMax ArgMin CumSum CumProd "
        "GlobalAveragePool GlobalMaxPool Hardmax Col2Im",
        2: "ReduceL2 ReduceSumSquare ReduceLogSum GlobalLpPool LpNormalization Multinomial",
        3: "ReduceLogSumExp",
        5: "Softmax DynamicQuantizeLinear",  # maximum, difference, exp, sum, division; two extremes and a quantization
        6: "LogSoftmax",
        7: "LayerNormalization InstanceNormalization GroupNormalization MeanVarianceNormalization",
        4: "RMSNormalization SimplifiedLayerNormalization",  # the second in ONNX Runtime's part of the domain
    },
    NCHWC: {1: "GlobalAveragePool GlobalMaxPool"},
    NHWC: {1: "GlobalAveragePool GlobalMaxPool", 2: "GlobalLpPool", 7: "InstanceNormalization"},
    MICROSOFT: {
        3: "DynamicTimeWarping",  # two comparisons and a sum per cell of the table
        4: "BranchwiseRMSNorm",
        6: "BiasSoftmax",
        12: "QOrderedLayerNormalization",  # dequantize, normalise, quantize
    },
}


def _per_output(flops: int) -> Formula:
    def count(operation: Operation) -> Cost:
        return Cost(other_flops=flops * operation.output_elements())

    return count


def _per_input(flops: int) -> Formula:
    def count(operation: Operation) -> Cost:
        return Cost(other_flops=flops * operation.elements(0))

    return count


for _table, _formula_of in ((PER_OUTPUT, _per_output), (PER_INPUT, _per_input)):
    for _domain, _rows in _table.items():
        for _flops, _names in _rows.items():
            formula(*_names.split(), domains=(_domain,))(_formula_of(_flops))


@formula("Sum", "Max", "Min", "Mean")
def count_variadic(operation: Operation) -> Cost:
    """One FLOP per output for each operand after the first (Mean divides as well)."""
    steps = len(operation.inputs) - 1 + (operation.node.op_type == "Mean")
    return Cost(other_flops=steps * operation.output_elements())


@formula("FastGelu", domains=(MICROSOFT,))
def count_fast_gelu(operation: Operation) -> Cost:
    """Count a Gelu, and the bias where there is one."""
    return Cost(other_flops=(5 + operation.has(1)) * operation.output_elements())


@formula("BiasAdd", "BiasDropout", "BitmaskBiasDropout", domains=(MICROSOFT,))
def count_bias_add(operation: Operation) -> Cost:
    """Count the sum of data, bias and an optional third operand; inference drops nothing out."""
    return Cost(other_flops=(1 + operation.has(2)) * operation.output_elements())


@formula("CDist", domains=(MICROSOFT,))
def count_distances(operation: Operation) -> Cost:
    """Difference, square and sum for each pair of rows and column, and a root per pair unless they stay squared."""
    pairs = operation.dim(0, 0) * operation.dim(1, 0)
    rooted = int(operation.text("metric", "sqeuclidean") == "euclidean")
    return Cost(other_flops=pairs * (3 * operation.dim(0, 1) + rooted))


@formula("LinearAttentionGate", domains=(MICROSOFT,))
def count_linear_attention_gate(operation: Operation) -> Cost:
    """Bias, softplus and scale of the decay (4 FLOPs); a sigmoid (4) of the rate where there is one."""
    return Cost(other_flops=(4 + 4 * operation.has(3)) * operation.elements(0))


@formula("HyperConnectionPreMix", domains=(MICROSOFT,))
def count_pre_mix(operation: Operation) -> Cost:
    """Each stream's element is scaled and added, each output scaled."""
    return Cost(other_flops=2 * operation.elements(0) + operation.output_elements())


@formula("HyperConnectionPostMix", domains=(MICROSOFT,))
def count_post_mix(operation: Operation) -> Cost:
    """Each stream takes in its share of the block's output; a matrix (operand 3) mixes the streams before."""
    outputs = operation.elements(0)
    mixing = 2 * outputs * operation.dim(3, -1) if operation.has(3) else 0
    return Cost(other_flops=2 * outputs + mixing)


@formula("EngramGate", domains=(MICROSOFT,))
def count_engram_gate(operation: Operation) -> Cost:
    """Two RMS norms (4 each), their dot product (2), the gating (1) and a third norm if returned (4); a gate of 9."""
    gates = operation.elements(0)
    per_element = 4 + 4 + 2 + 1 + 4 * (len(operation.outputs) > 1 and operation.outputs[1] is not None)
    rows = operation.dim(0, 0) * operation.dim(0, 1) * operation.dim(0, 2)
    return Cost(other_flops=per_element * gates + 9 * rows)

"""FLOPs per element: activations, arithmetic, reductions, normalizations, quantized forms.

Convention: every addition, multiplication, division, comparison or elementary function (exp, log, sqrt, tanh, erf,
sin, …) is one FLOP, whatever its cost in instructions. Parameters that a graph fixes (scale and shift of an inference
BatchNorm) are folded first. A layer norm costs 7 FLOPs per element (sum, difference, square and sum, scale by the
deviation, scale, shift), a root mean square norm 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod

from common.graphs.graph import Count
from common.graphs.operators import MACHINE_LEARNING, MICROSOFT, NCHWC, NHWC, ONNX
from common.onnx_graph.work.registry import (
    DEQUANTIZE,
    LAYER_NORM,
    QUANTIZE,
    RMS_NORM,
    SIGMOID,
    SILU,
    Cost,
    Operation,
    formula,
)

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
        1: "BiasAdd",
        2: "DequantizeLinear DequantizeWithOrder GatedAdd",
        3: "QuantizeLinear QuantizeWithOrder ComplexMul ComplexMulConj",
        5: "Gelu QuickGelu FastGelu",
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
        5: "SkipSimplifiedLayerNormalization",
        6: "BiasSoftmax",
        8: "SkipLayerNormalization",
        12: "QOrderedLayerNormalization",  # dequantize, normalise, quantize
    },
}
# Optional operands of these that add one FLOP per element.
ADDENDS = {"BiasAdd": 2, "FastGelu": 1, "SkipLayerNormalization": 4, "SkipSimplifiedLayerNormalization": 3}
# Quantized forms cost as much as the graph that they replace: each element of each quantized operand is dequantized,
# each output quantized. FLOPs of the plain operator per element of the first operand; per output with two operands.
QUANTIZED_UNARY = {
    1: "QLinearGlobalAveragePool QLinearReduceMean",
    2: "QLinearLeakyRelu",
    4: "QLinearSigmoid",
    5: "QLinearSoftmax",
}
QUANTIZED_BINARY = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3), "QLinearWhere": (1, 4)}


def _count(operation: Operation, elements: Callable[[Operation], Count], flops: int) -> Cost:
    addend = ADDENDS.get(operation.node.op_type) if operation.node.domain == MICROSOFT else None
    return Cost(other_flops=(flops + (operation.has(addend) if addend is not None else 0)) * elements(operation))


for _table, _elements in ((PER_OUTPUT, Operation.output_elements), (PER_INPUT, partial(Operation.elements, index=0))):
    for _domain, _rows in _table.items():
        for _flops, _names in _rows.items():
            formula(*_names.split(), domains=(_domain,))(partial(_count, elements=_elements, flops=_flops))


@formula("Sum", "Max", "Min", "Mean")
def count_variadic(operation: Operation) -> Cost:
    """Count one FLOP per output for each operand after the first (Mean divides as well)."""
    steps = len(operation.inputs) - 1 + (operation.node.op_type == "Mean")
    return Cost(other_flops=steps * operation.output_elements())


@formula("CDist", domains=(MICROSOFT,))
def count_distances(operation: Operation) -> Cost:
    """Count difference, square and sum per pair of rows and column, and a root unless they stay squared."""
    pairs = operation.dim(0, 0) * operation.dim(1, 0)
    rooted = int(operation.text("metric", "sqeuclidean") == "euclidean")
    return Cost(other_flops=pairs * (3 * operation.dim(0, 1) + rooted))


@formula("LinearAttentionGate", domains=(MICROSOFT,))
def count_linear_attention_gate(operation: Operation) -> Cost:
    """Count bias, softplus and scale of the decay (4 FLOPs), and a sigmoid (4) of the rate where there is one."""
    return Cost(other_flops=(4 + 4 * operation.has(3)) * operation.elements(0))


@formula("HyperConnectionPreMix", domains=(MICROSOFT,))
def count_pre_mix(operation: Operation) -> Cost:
    """Count the scale and the sum of each stream's element, and the scale of each output."""
    return Cost(other_flops=2 * operation.elements(0) + operation.output_elements())


@formula("HyperConnectionPostMix", domains=(MICROSOFT,))
def count_post_mix(operation: Operation) -> Cost:
    """Count each stream's share of the block's output; a matrix (operand 3) mixes the streams before."""
    outputs = operation.elements(0)
    mixing = 2 * outputs * operation.dim(3, -1) if operation.has(3) else 0
    return Cost(other_flops=2 * outputs + mixing)


@formula("EngramGate", domains=(MICROSOFT,))
def count_engram_gate(operation: Operation) -> Cost:
    """Count two RMS norms (4 each), dot product (2), gating (1), a third norm if returned (4); a gate of 9."""
    gates = operation.elements(0)
    per_element = 4 + 4 + 2 + 1 + 4 * (len(operation.outputs) > 1 and operation.outputs[1] is not None)
    rows = operation.dim(0, 0) * operation.dim(0, 1) * operation.dim(0, 2)
    return Cost(other_flops=per_element * gates + 9 * rows)


@formula("GroupNorm", "SkipGroupNorm", domains=(MICROSOFT,))
def count_group_norm(operation: Operation) -> Cost:
    """Read X, gamma, beta, optional skip and bias; the attribute ``activation`` asks for a SiLU."""
    activated = SILU * operation.flag("activation")
    return Cost(other_flops=(LAYER_NORM + operation.has(3) + operation.has(4) + activated) * operation.elements(0))


@formula("GatedRMSNorm", domains=(MICROSOFT,))
def count_gated_rms_norm(operation: Operation) -> Cost:
    """Count a norm, the gate's activation, and the product with the gate."""
    gate = SIGMOID if operation.text("activation", "silu") == "sigmoid" else SILU
    return Cost(other_flops=(RMS_NORM + gate + 1) * operation.elements(0))


@formula("LRN", domains=(ONNX, NHWC))
def count_local_response_norm(operation: Operation) -> Cost:
    """Count a square, ``size - 1`` additions, scale, shift, power and division per element."""
    return Cost(other_flops=(operation.integer("size", 1) + 4) * operation.elements(0))


@formula("Normalizer", domains=(MACHINE_LEARNING,))
def count_normalizer(operation: Operation) -> Cost:
    """Count a comparison, an absolute value and sum, or a square and sum; and a division per element."""
    steps = operation.choice("norm", {"MAX": 1, "L1": 2, "L2": 2}, "MAX")
    return Cost(other_flops=(steps + 1) * operation.elements(0))


def _embedded(operation: Operation, positions: int | None, dequantized: int) -> Cost:
    """Add a row of each table per token, and normalize the sum. At most as many rows of a table as tokens are read.

    Operands are token and segment ids, word, position and segment tables (2, 3, 4), and perhaps ``positions``, which
    are the same for every sequence of the batch otherwise.
    """
    batch, length = operation.shape(0, rank=2)
    hidden = operation.dim(2, 1)
    tokens = batch * length
    rows = {2: tokens, 3: tokens if positions is not None and operation.has(positions) else length, 4: tokens}
    tables = [index for index in rows if operation.has(index)]
    reads: dict[int, Count] = {index: operation.touched_bytes(index, rows[index] * hidden) for index in tables}
    flops = LAYER_NORM + len(tables) - 1 + dequantized * len(tables)
    return Cost(other_flops=flops * tokens * hidden, reads=reads)


formula("EmbedLayerNormalization", domains=(MICROSOFT,))(partial(_embedded, positions=8, dequantized=0))
# Its tables are dequantized row by row.
_from_quantized = partial(_embedded, positions=None, dequantized=DEQUANTIZE)
formula("QEmbedLayerNormalization", domains=(MICROSOFT,))(_from_quantized)


def _quantized(operation: Operation, operands: Iterable[int], per_input: int = 0, per_output: int = 0) -> Cost:
    read = sum(operation.elements(index) for index in operands)
    return Cost(other_flops=(DEQUANTIZE + per_input) * read + (QUANTIZE + per_output) * operation.output_elements())


for _flops, _names in QUANTIZED_UNARY.items():
    formula(*_names.split(), domains=(MICROSOFT,))(partial(_quantized, operands=(0,), per_input=_flops))
for _op_type, _operands in QUANTIZED_BINARY.items():
    formula(_op_type, domains=(MICROSOFT,))(partial(_quantized, operands=_operands, per_output=1))


@formula("QLinearConcat", domains=(MICROSOFT,))
def count_qlinear_concat(operation: Operation) -> Cost:
    """Scale and zero point of the output, then (operand, scale, zero point) for each part."""
    return _quantized(operation, range(2, len(operation.inputs), 3))


@formula("QLinearAveragePool", domains=(MICROSOFT, NHWC))
def count_qlinear_average_pool(operation: Operation) -> Cost:
    """Count ``taps`` FLOPs per output: the sums and a division."""
    return _quantized(operation, (0,), per_output=prod(operation.integers("kernel_shape")))

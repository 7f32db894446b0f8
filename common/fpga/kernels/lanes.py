"""The operators of a lane that streams elements, for each ONNX operator that it serves.

A lane is a pipeline that takes one element in every cycle. It has as many adders, multipliers and so on as the most
demanding task that it is built for, and serves all others with them. Floating-point formats are computed in fp32.
Integer formats are computed in 32-bit integers, as I-BERT does with softmax, GELU and LayerNorm (Kim et al., ICML 2021,
arXiv:2101.01321); any function of one value is a table there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from common.operators import POOLS

# FLOPs per element, as docs/MODEL.md counts them. A normalizer reduces and writes a row; a fold leaves one value of it.
NORMALIZERS = {
    "Softmax": 5,
    "QLinearSoftmax": 10,
    "LayerNormalization": 7,
    "SkipLayerNormalization": 8,
    "RMSNormalization": 4,
    "SimplifiedLayerNormalization": 4,
    "SkipSimplifiedLayerNormalization": 5,
    "GroupNormalization": 7,
    "InstanceNormalization": 7,
}
FOLDS = {
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1"), 1),
    **dict.fromkeys(("ReduceL2", "ReduceSumSquare"), 2),
}
GELU_FLOPS = {"Gelu": 5, "FastGelu": 5, "BiasGelu": 6, "QuickGelu": 5}
# Operators on single elements, and those that move contiguous elements, by FLOPs.
ELEMENTWISE = {
    op_type: flops
    for flops, op_types in {
        0: "Cast Identity Dropout Concat QLinearConcat Split Slice Pad",
        1: "Add Sub Mul Div Sum Min Max Neg Abs Pow Sqrt Exp Erf Relu PRelu Tanh",
        2: "LeakyRelu Clip Softplus Softsign BatchNormalization DequantizeLinear",
        3: "Elu Celu QuantizeLinear",
        4: "Sigmoid HardSigmoid Selu",
        5: "HardSwish Swish Mish",
        7: "QLinearLeakyRelu",  # quantized: 2 to dequantize each operand, the operator's own, 3 to quantize
        8: "QLinearAdd QLinearMul",
        9: "QLinearSigmoid",
    }.items()
    for op_type in op_types.split()
}
FLOPS = NORMALIZERS | FOLDS | GELU_FLOPS | ELEMENTWISE
STREAMED = FLOPS.keys() | (POOLS - {"LpPool"})  # its powers and roots are in no lane

INTEGERS = frozenset({"int4", "int8", "int16"})
Counts = Mapping[str, int]


def _of(op_types: str, **counts: int) -> dict[str, Counts]:
    return dict.fromkeys(op_types.split(), counts)


# Operators per lane. A normalizer has those of both passes: sum and sum of squares, then the affine map. Softmax has
# the largest value, exponentials and their sum, then the exponentials again and the product with the reciprocal sum.
SIMPLE: Mapping[str, Counts] = {
    **_of("Identity Dropout Concat Split Slice Pad"),
    **_of("Add Sub Sum ReduceSum ReduceL1 ReduceMean", add=1),
    **_of("Mul Pow", multiply=1),
    **_of("Div", divide=1),
    **_of("Min Max Neg Abs Relu MaxPool GlobalMaxPool ReduceMax ReduceMin", compare=1),
    **_of("Clip", compare=2),
    **_of("PRelu LeakyRelu", multiply=1, compare=1),
    **_of("ReduceL2 ReduceSumSquare AveragePool GlobalAveragePool", add=1, multiply=1),
    **_of("BatchNormalization", add=1, multiply=1),
    **_of("DequantizeLinear QuantizeLinear Cast QLinearConcat", add=1, multiply=1, convert=1),
    **_of(
        "QLinearMul QLinearAdd QLinearLeakyRelu QLinearAveragePool QLinearGlobalAveragePool",
        add=3,
        multiply=3,
        compare=1,
    ),
    **_of("HardSigmoid", add=1, multiply=1, compare=2),
    **_of("HardSwish", add=1, multiply=2, compare=2),
    **_of("RMSNormalization SimplifiedLayerNormalization", add=1, multiply=3),
    **_of("SkipSimplifiedLayerNormalization", add=2, multiply=3),
    **_of("LayerNormalization GroupNormalization InstanceNormalization", add=4, multiply=3),
    **_of("SkipLayerNormalization", add=5, multiply=3),
}
SOFTMAX_LANE: Counts = {"exponential": 2, "add": 3, "multiply": 1, "compare": 1}
# Through an exponential; GELU in its sigmoid form, because the HLS library's erf would take some 250 DSPs.
ROOT: Counts = {"reciprocal_root": 1, "multiply": 1}
THROUGH_EXPONENTIAL: Counts = {"exponential": 1, "add": 2, "multiply": 2, "divide": 1, "compare": 1}
TABLE: Counts = {"exponential": 1}  # in integers
BIASED_TABLE: Counts = {"exponential": 1, "add": 1}


def lane_of(op_types: Iterable[str], *, is_integer: bool) -> Counts:
    """Return the operators of a lane that computes these ONNX operators one behind the other, in one stream."""
    needed: Counter[str] = Counter()
    for op_type in op_types:
        needed.update(_counts(op_type, is_integer))
    return needed


def widest(lanes: Iterable[Counts]) -> Counts:
    """Return the fewest operators that suffice for each of several lanes."""
    together: Counter[str] = Counter()
    for lane in lanes:
        together |= Counter(lane)
    return together


def is_simple(lane: Counts) -> bool:
    """Return whether a lane does without the operators that are large in fp32."""
    return not (lane.get("exponential") or lane.get("divide") or lane.get("reciprocal_root"))


def _counts(op_type: str, is_integer: bool) -> Counts:
    if op_type in ("Softmax", "QLinearSoftmax"):
        return SOFTMAX_LANE
    if op_type in SIMPLE:
        return SIMPLE[op_type]
    if is_integer:
        return BIASED_TABLE if op_type == "BiasGelu" else TABLE
    return ROOT if op_type == "Sqrt" else THROUGH_EXPONENTIAL

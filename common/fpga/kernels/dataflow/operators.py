"""Resources of the parts of a dataflow kernel (configs/dataflow.yaml), and the operators of its lanes.

A lane is a pipeline that takes one element in every cycle. It has as many adders, multipliers and so on as the most
demanding task that it is built for, and serves all others with them. Floating-point formats are computed in fp32.
Integer formats are computed in 32-bit integers, as I-BERT does with softmax, GELU and LayerNorm (Kim et al., ICML 2021,
arXiv:2101.01321); any function of one value is a table there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil

from common.files.configuration import Section
from common.fpga.device.resources import BLOCK_BITS, BRAM36_BYTES, RESOURCE_NAMES, URAM_BYTES, Resources
from common.graphs.number_formats import PRECISION_BITS
from common.graphs.operators import POOLS
from common.intervals import ThreePoint

OPERATORS = ("add", "multiply", "divide", "exponential", "reciprocal_root", "compare", "convert")
BURST_WORDS = 512  # of a port's burst buffer, as deep as a block at its full width


@dataclass(frozen=True, slots=True)
class RowwiseEfficiency:
    """Share of the lanes' peak that kernels attain: those that reduce rows, and those that take each element once."""

    reduction: ThreePoint
    single_pass: ThreePoint


@dataclass(frozen=True, slots=True)
class DataflowCosts:
    """Resources by part, and the efficiency that published dataflow kernels attain."""

    operators: Mapping[str, Resources]  # one fp32 operator that accepts an operand in every cycle, by name
    # The same on 32-bit integers; ``exponential`` is a table, for any function of one value
    integer_operators: Mapping[str, Resources]
    mac_lanes: Mapping[str, Resources]  # one multiply-accumulate per cycle, by number format
    # The operators and the lanes that differ on a DSP58, which multiplies and adds binary32 by itself.
    dsp58_operators: Mapping[str, Resources]
    dsp58_mac_lanes: Mapping[str, Resources]
    port: Resources  # an AXI master without its burst buffer
    control: Resources  # control logic, once per kernel
    rowwise_efficiency: RowwiseEfficiency  # share of the lanes' peak that row-wise kernels attain
    attention_efficiency: ThreePoint  # the same of attention kernels
    ii_cycles: ThreePoint  # initiation interval that loops attain whose target is one cycle

    def on(self, dsp_type: str) -> DataflowCosts:
        if dsp_type != "DSP58":
            return self
        lanes = {**self.mac_lanes, **self.dsp58_mac_lanes}
        return replace(self, operators={**self.operators, **self.dsp58_operators}, mac_lanes=lanes)

    def mac(self, precision: str, macs_per_dsp: float | None = None) -> Resources:
        """Return one lane; ``macs_per_dsp`` is for boards whose DSPs differ from the DSP48E2, such as the DSP58."""
        lane = self.mac_lanes[precision]
        return lane if macs_per_dsp is None else replace(lane, dsp=1 / macs_per_dsp)

    def of(self, *, is_integer: bool = False, **counts: float) -> Resources:
        """Return the resources of several operators, in fp32 or in 32-bit integers: ``of(add=3, divide=1)``."""
        operators = self.integer_operators if is_integer else self.operators
        return sum((operators[name].times(count) for name, count in counts.items()), Resources())

    def ports(self, count: int, port_bits: int) -> Resources:
        """Return the resources of AXI masters, each with a burst buffer of 512 words."""
        return (self.port + Resources(bram36=ceil(port_bits / BLOCK_BITS))).times(count)


def buffer(byte_count: float, width_bits: int, *, uses_uram: bool = False) -> Resources:
    """Return whole memory blocks that hold ``byte_count`` bytes and read ``width_bits`` bits in every cycle."""
    block = URAM_BYTES if uses_uram else BRAM36_BYTES
    blocks = max(ceil(byte_count / block), ceil(width_bits / BLOCK_BITS))
    return Resources(uram=blocks) if uses_uram else Resources(bram36=blocks)


def read_dataflow(file: Section) -> DataflowCosts:
    """Read configs/dataflow.yaml; errors are those of :class:`Section`."""
    dsp58, rowwise = file.section("dsp58"), file.section("rowwise_efficiency")
    costs = DataflowCosts(
        operators=_by_name(file.section("operators"), OPERATORS),
        integer_operators=_by_name(file.section("integer_operators"), OPERATORS),
        mac_lanes=_by_name(file.section("mac_lanes"), PRECISION_BITS),
        dsp58_operators=_by_name(dsp58.section("operators")),
        dsp58_mac_lanes=_by_name(dsp58.section("mac_lanes")),
        port=_resources(file.section("memory_port")),
        control=_resources(file.section("control")),
        rowwise_efficiency=RowwiseEfficiency(
            rowwise.constant("reduction").as_rate(), rowwise.constant("single_pass").as_rate()
        ),
        attention_efficiency=file.constant("attention_efficiency").as_rate(),
        ii_cycles=file.constant("ii_cycles").as_cost(),
    )
    file.close()
    return costs


def _by_name(section: Section, names: Iterable[str] = ()) -> dict[str, Resources]:
    return {name: _resources(section.section(name)) for name in names or section}


def _resources(section: Section) -> Resources:
    amounts = {name: section.number(name) for name in RESOURCE_NAMES if name in section}
    section.origin()
    if negative := [name for name, amount in amounts.items() if amount < 0]:
        raise section.error(negative[0], "is negative")
    return Resources(**amounts)


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

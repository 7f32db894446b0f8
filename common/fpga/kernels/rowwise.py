"""Row-wise kernels: softmax, normalizations, GELU and element-wise operators, as streams.

Rows are distributed over units, each with a port of its own. A normalizer reduces its row in one pass and writes it in
a second (softmax reduces maximum and sum together, Milakov and Gimelshein 2018; normalizations reduce sum and sum of
squares). A buffer of two rows lets both passes work at once, on successive rows:

    row      ii · ⌈width / lanes⌉ + row drain             where the buffer holds the row
             2 · ii · ⌈width / lanes⌉ + row drain          where it does not: the same port reads the row again
    call     first word + first row + max( ⌈rows / units⌉ · row, traffic )

The drain of a reduction's tail is the one fitted to the GEMV (configs/streaming.yaml). Operators without a reduction
take ⌈elements / (lanes · units)⌉ and no drain; next to a row-wise operator they add no cycles to its stream. GELU uses
the lanes' exponentials (its tanh or sigmoid form), because the HLS library's erf would take some 250 DSPs in each lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from common.fpga.device.resources import Resources
from common.fpga.kernels.estimate import KernelEstimate
from common.fpga.kernels.operators import DataflowCosts, buffer
from common.fpga.kernels.ports import MemoryPorts
from common.intervals import ThreePoint
from common.number_formats import PRECISION_BITS
from common.operators import GELUS
from common.workload.layers import Layer, Pointwise, Rowwise
from common.workload.tasks import Task

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
# Element-wise operators that a lane's adders, multipliers, divider, root and exponentials can compute, by FLOPs.
ELEMENTWISE = {
    op_type: flops
    for flops, op_types in {
        0: "Cast Identity Dropout",
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
PASSES = 2  # one that reduces, one that writes


@dataclass(frozen=True, slots=True)
class RowwiseEngine:
    """Units that stream rows. Arithmetic is fp32; operands cross the ports in ``precision``.

    Attributes:
        precision: number format of the operands and results.
        lanes: elements per unit and cycle.
        row_limit: longest row, in elements, that a unit's buffer holds.
        ii_cycles: initiation interval of a loop with a reduction.
        row_drain_cycles: cycles in which a reduction drains.
        first_word_ns: from the start to the first word from memory.
        ports: one port per unit.
        costs: resources of the parts.
        efficiency: share of the lanes' peak that such kernels attain.
    """

    precision: str
    lanes: int
    row_limit: int
    ii_cycles: float
    row_drain_cycles: float
    first_word_ns: float
    ports: MemoryPorts
    costs: DataflowCosts
    efficiency: ThreePoint

    @property
    def name(self) -> str:
        """Name such as ``rowwise-4x8-fp32``: units and lanes per unit."""
        return f"rowwise-{self.ports.count}x{self.lanes}-{self.precision}"

    @property
    def kind(self) -> str:
        """Kernel model."""
        return "rowwise"

    @property
    def clock_mhz(self) -> float:
        """Clock of ports and lanes."""
        return self.ports.clock_mhz

    @property
    def spans_regions(self) -> bool:
        """True: units share nothing."""
        return True

    @property
    def resources(self) -> Resources:
        """Resources of all units; a lane holds the operators of both passes, a unit a root and a buffer of two rows."""
        lane = self.costs.of(exponential=2, add=4, multiply=4, compare=1, divide=1, convert=2)
        unit = lane.times(self.lanes) + self.costs.of(reciprocal_root=1, divide=1, add=self.lanes)
        rows = buffer(2 * self.row_limit * 4, 2 * self.lanes * 32)
        ports = self.costs.ports(self.ports.count, self.ports.port_bits)
        channels = Resources(memory_channels=self.ports.channel_count)
        return (self.costs.control + (unit + rows).times(self.ports.count) + ports + channels).whole()

    def refusal(self, task: Task) -> str:
        """Return why the engine cannot compute a task, or an empty string."""
        if task.precision != self.precision:
            return f"it is built for {self.precision}"
        if task.on_chip_bytes:
            return "it keeps nothing on the chip but rows"
        for layer in task.layers:
            if not isinstance(layer, Rowwise | Pointwise):
                return "it computes no products"
            if layer.op_type not in FLOPS:
                return f"it has no {layer.op_type}"
        return "" if task.layers else "there is nothing to compute"

    def estimate(self, task: Task) -> KernelEstimate | None:
        """Estimate one call: row-wise operators run one after the other, element-wise ones within their streams."""
        if self.refusal(task):
            return None
        reductions = [layer for layer in task.layers if isinstance(layer, Rowwise) and layer.op_type not in GELUS]
        compute = sum(map(self.row_cycles_of, reductions)) or self._element_cycles(task)
        reread = self._reread_bytes(reductions)
        traffic = self.ports.duplex_cycles(task.weight_bytes + task.read_bytes + reread, task.written_bytes)
        first_word = self.first_word_ns * self.clock_mhz / 1e3
        start, longest = first_word + sum(map(self._fill_cycles, reductions)), max(compute, traffic)
        return self.ports.estimate(
            start + longest,
            ideal_compute_cycles=max(map(_elements, task.layers)) / (self.lanes * self.ports.count),
            port_bytes=task.border_bytes + reread,
            fixed_cycles=first_word,
            efficiency=self.efficiency,
            bound="fixed" if start > longest else "memory" if traffic >= compute else "compute",
            flops=sum(map(_flops, task.layers)),
            moved_bytes=task.border_bytes + reread,
            one_way_bytes=max(task.weight_bytes + task.read_bytes + reread, task.written_bytes),
        )

    def row_cycles_of(self, layer: Rowwise) -> float:
        """Return the cycles of all rows of one reduction, distributed over the units."""
        passes = PASSES if self._is_read_twice(layer) else 1
        row = passes * self._pass_cycles(layer) + self.row_drain_cycles
        return ceil(layer.rows / self.ports.count) * row

    def _pass_cycles(self, layer: Rowwise) -> float:
        return self.ii_cycles * ceil(layer.width / self.lanes)

    def _fill_cycles(self, layer: Rowwise) -> float:
        """Return the cycles before the first row is written; a row that is read twice has them in its own time."""
        return 0 if self._is_read_twice(layer) or layer.op_type in FOLDS else self._pass_cycles(layer)

    def _is_read_twice(self, layer: Rowwise) -> bool:
        return layer.op_type in NORMALIZERS and layer.width > self.row_limit

    def _element_cycles(self, task: Task) -> float:
        """Return the cycles without a reduction: no step depends on the one before, so each takes one cycle."""
        return ceil(max(map(_elements, task.layers)) / (self.lanes * self.ports.count))

    def _reread_bytes(self, reductions: list[Rowwise]) -> int:
        """Return the bytes of the rows that are read a second time because no buffer holds them."""
        elements = sum(layer.rows * layer.width for layer in reductions if self._is_read_twice(layer))
        return ceil(elements * PRECISION_BITS[self.precision] / 8)


def _elements(layer: Layer) -> int:
    if isinstance(layer, Rowwise):
        return layer.rows * layer.width
    return layer.elements if isinstance(layer, Pointwise) else 0


def _flops(layer: Layer) -> int:
    """Return the FLOPs of a layer; a sum, minimum or maximum of n operands takes n - 1 per element."""
    if isinstance(layer, Pointwise) and layer.op_type in {"Sum", "Min", "Max"}:
        return layer.elements * max(1, layer.operand_count - 1)
    return _elements(layer) * FLOPS[layer.op_type] if isinstance(layer, Rowwise | Pointwise) else 0

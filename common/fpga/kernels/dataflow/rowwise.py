"""Row-wise kernels: softmax, normalizations, GELU, pools, element-wise operators and joined tensors, as streams.

Rows are distributed over units, each with a port of its own. A normalizer reduces its row in one pass and writes it in
a second (softmax reduces maximum and sum together, Milakov and Gimelshein 2018; normalizations reduce sum and sum of
squares). A buffer of two rows lets both passes work at once, on successive rows:

    row      ii · ⌈width / lanes⌉ + row drain             where the buffer holds the row
             2 · ii · ⌈width / lanes⌉ + row drain          where it does not: the same port reads the row again
    pool     ⌈positions / units⌉ · window · ⌈channels / lanes⌉
    call     first word + first row + max( ⌈rows / units⌉ · row + pools, traffic )

The drain of a reduction's tail is the one fitted to the GEMV (configs/streaming.yaml). A pool takes one value of its
window in every cycle, as the unit of a DPU does (PG338, DepthwiseConv (ALU)). The rows that its windows share stay in
the same buffer; where they do not fit, they are read again for every row of results. Operators without a reduction take
⌈elements / (lanes · units)⌉ and no drain; next to a row-wise operator they add no cycles to its stream. Concat, Split,
Slice and Pad move contiguous elements as these operators do.

A lane has the arithmetic operators of the tasks that the engine is built for (`operators.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from common.fpga.device.resources import Resources
from common.fpga.kernels.dataflow.operators import (
    FLOPS,
    FOLDS,
    INTEGERS,
    NORMALIZERS,
    STREAMED,
    Counts,
    DataflowCosts,
    RowwiseEfficiency,
    buffer,
    is_simple,
    lane_of,
    widest,
)
from common.fpga.kernels.estimate import KernelEstimate
from common.fpga.kernels.ports import MemoryPorts, OnPorts
from common.graphs.number_formats import PRECISION_BITS
from common.graphs.operators import GELUS
from common.workload.layers import Layer, Pointwise, Pooling, Rowwise
from common.workload.tasks import Task


@dataclass(frozen=True, slots=True)
class RowwiseEngine(OnPorts):
    """Units that stream rows. Operands cross the ports in ``precision``.

    Floating-point formats are computed in fp32, integer formats in 32-bit integers.
    """

    kind: ClassVar[str] = "rowwise"
    spans_regions: ClassVar[bool] = True  # units share nothing
    precision: str  # number format of the operands and results
    lane: Counts  # arithmetic operators of one lane, by name
    lanes: int  # elements per unit and cycle
    row_limit: int  # longest row, in elements, of which a unit's buffer holds two
    ii_cycles: float  # initiation interval of a loop with a reduction
    row_drain_cycles: float
    first_word_ns: float  # from the start to the first word from memory
    ports: MemoryPorts  # one port per unit
    costs: DataflowCosts
    efficiency: RowwiseEfficiency  # share of the lanes' peak that such kernels attain
    reached_ports: int = 0  # ports of an array beside it, whose tensors it reads where they lie

    @property
    def name(self) -> str:
        """Name such as ``rowwise-4x8-fp32``: units and lanes per unit; ``-exp`` if lanes have exponentials."""
        return f"rowwise-{self.ports.count}x{self.lanes}-{self.precision}" + ("" if is_simple(self.lane) else "-exp")

    @property
    def is_integer(self) -> bool:
        return self.precision in INTEGERS

    @property
    def resources(self) -> Resources:
        """Resources of all units; each has a root, a division, a tree of sums and a buffer of two rows."""
        converts = self.precision != "fp32"  # what leaves
        lane = self.costs.of(is_integer=self.is_integer, **widest([self.lane, {"convert": int(converts)}]))
        once = self.costs.of(is_integer=self.is_integer, reciprocal_root=1, divide=1, add=self.lanes)
        bits = PRECISION_BITS[self.precision] if self.is_integer else 32
        rows = buffer(2 * self.row_limit * bits / 8, 2 * self.lanes * bits)
        ports = self.costs.ports(max(self.ports.count, self.reached_ports), self.ports.port_bits)
        channels = Resources(memory_channels=self.ports.channel_count)
        units = (lane.times(self.lanes) + once + rows).times(self.ports.count)
        return (self.costs.control + units + ports + channels).whole()

    def estimate(self, task: Task) -> KernelEstimate | None:
        """Estimate one call: row-wise operators and pools run one after the other, others within their streams.

        None where the task has a product, or needs an operator that the lanes do not have.
        """
        if task.precision != self.precision or not is_streamed(task):
            return None
        if any(count > self.lane.get(name, 0) for name, count in task_lane(task).items()):
            return None
        reductions = [layer for layer in task.layers if isinstance(layer, Rowwise) and layer.op_type not in GELUS]
        pools = [layer for layer in task.layers if isinstance(layer, Pooling)]
        compute = sum(map(self.row_cycles_of, reductions)) + sum(map(self.pool_cycles_of, pools))
        units = self.lanes * self.ports.count
        elements = max(map(_elements, task.layers))
        compute = compute or ceil(elements / units)  # no step depends on the one before, so each takes one cycle
        reread = 0 if task.kept.operand else self._reread_bytes(reductions, pools)
        read = task.weight_bytes + task.read_bytes - task.kept.read + reread
        written = task.written_bytes - task.kept.written
        on_chip = max(task.kept.read, task.kept.written) / self.ports.bytes_per_cycle
        traffic = max(on_chip, self.ports.duplex_cycles(read, written))
        first_word = self.first_word_ns * self.clock_mhz / 1e3
        start, longest = first_word + sum(map(self._fill_cycles, reductions)), max(compute, traffic)
        return self.ports.estimate(
            start + longest,
            ideal_compute_cycles=elements / units,
            port_bytes=read + written,
            fixed_cycles=first_word,
            efficiency=self.efficiency.reduction if reductions else self.efficiency.single_pass,
            bound="fixed" if start > longest else "memory" if traffic >= compute else "compute",
            flops=sum(map(_flops, task.layers)),
            moved_bytes=read + written,
            kept_bytes=task.kept.read + task.kept.written,
            one_way_bytes=max(read, written),
        )

    def row_cycles_of(self, layer: Rowwise) -> float:
        """Return the cycles of all rows of one reduction, distributed over the units."""
        passes = 2 if self._is_read_twice(layer) else 1  # one that reduces, one that writes
        row = passes * self._pass_cycles(layer) + self.row_drain_cycles
        return ceil(layer.rows / self.ports.count) * row

    def pool_cycles_of(self, layer: Pooling) -> float:
        """Return the cycles of all windows, whose positions are distributed over the units and channels over lanes."""
        positions = layer.batch * layer.out_height * layer.out_width
        window = layer.kernel_height * layer.kernel_width
        return ceil(positions / self.ports.count) * window * ceil(layer.channels / self.lanes)

    def _pass_cycles(self, layer: Rowwise) -> float:
        return self.ii_cycles * ceil(layer.width / self.lanes)

    def _fill_cycles(self, layer: Rowwise) -> float:
        """Return the cycles before the first row is written; a row that is read twice has them in its own time."""
        return 0 if self._is_read_twice(layer) or layer.op_type in FOLDS else self._pass_cycles(layer)

    def _is_read_twice(self, layer: Rowwise) -> bool:
        return layer.op_type in NORMALIZERS and layer.width > self.row_limit

    def _reread_bytes(self, reductions: list[Rowwise], pools: list[Pooling]) -> int:
        """Return the bytes of the rows that are read again because no buffer holds them."""
        elements = sum(layer.rows * layer.width for layer in reductions if self._is_read_twice(layer))
        for pool in pools:
            if held_elements(pool) > 2 * self.row_limit * self.ports.count:
                again = ceil(pool.kernel_height / pool.stride_height) - 1
                elements += again * pool.batch * pool.channels * pool.in_height * pool.in_width
        return ceil(elements * PRECISION_BITS[self.precision] / 8)


def task_lane(task: Task) -> Counts:
    op_types = (layer.op_type for layer in task.layers if isinstance(layer, Rowwise | Pointwise | Pooling))
    return lane_of(op_types, is_integer=task.precision in INTEGERS)


def is_streamed(task: Task) -> bool:
    """Return whether a row-wise kernel could compute a task, if its lanes had what the task needs."""
    layers = [layer for layer in task.layers if isinstance(layer, Rowwise | Pointwise | Pooling)]
    is_complete = 0 < len(layers) == len(task.layers) and not task.on_chip_bytes
    return is_complete and all(layer.op_type in STREAMED for layer in layers)


def held_elements(pool: Pooling) -> int:
    """Return the elements that windows share: rows of the map, or none where windows do not overlap."""
    reach = (pool.kernel_height - 1) * pool.dilation_height + 1
    return reach * pool.in_width * pool.channels if reach > pool.stride_height else 0


def _elements(layer: Layer) -> int:
    if isinstance(layer, Rowwise):
        return layer.rows * layer.width
    if isinstance(layer, Pooling):
        window = layer.kernel_height * layer.kernel_width
        return layer.batch * layer.channels * layer.out_height * layer.out_width * window
    return layer.elements if isinstance(layer, Pointwise) else 0


def _flops(layer: Layer) -> int:
    """Return the FLOPs of a layer; a sum, minimum or maximum of n operands takes n - 1 per element."""
    if isinstance(layer, Pointwise) and layer.op_type in {"Sum", "Min", "Max"}:
        return layer.elements * max(1, layer.operand_count - 1)
    if isinstance(layer, Pooling):
        results = layer.batch * layer.channels * layer.out_height * layer.out_width
        return _elements(layer) - (results if layer.op_type == "MaxPool" else 0)
    return _elements(layer) * FLOPS[layer.op_type] if isinstance(layer, Rowwise | Pointwise) else 0

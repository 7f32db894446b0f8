"""Several equal engines that compute one call together: each takes an equal share of its heads or its batch.

The call lasts as long as the largest share, and each further member must be started. Members are placed apart, so an
engine that fits one region can use several.

    time = time of a share of ⌈batch / members⌉ + (members - 1) · start of a member
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from common.fpga.device.resources import Resources
from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.estimate import KernelEstimate
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.array import SystolicArray
from common.intervals import ThreePoint, combine
from common.workload.layers import Convolution, Layer, Matmul, Pooling, Rowwise
from common.workload.tasks import Task


@dataclass(frozen=True, slots=True)
class Team:
    """Equal engines that share each call."""

    spans_regions: ClassVar[bool] = True  # members share nothing but the call
    member: AttentionEngine | SystolicArray
    count: int
    start_cycles: float  # between the starts of two members

    @property
    def name(self) -> str:
        """Name such as ``3x-attention-16x16-int8``."""
        return f"{self.count}x-{self.member.name}"

    @property
    def kind(self) -> str:
        return self.member.kind

    @property
    def precision(self) -> str:
        return self.member.precision

    @property
    def clock_mhz(self) -> float:
        return self.member.clock_mhz

    @property
    def clock_cases_mhz(self) -> ThreePoint:
        return self.member.clock_cases_mhz

    @property
    def ports(self) -> MemoryPorts:
        ports = self.member.ports
        return replace(ports, count=self.count * ports.count, channel_count=round(self.resources.memory_channels))

    @property
    def resources(self) -> Resources:
        return self.member.resources.times(self.count)

    def estimate(self, task: Task) -> KernelEstimate | None:
        """Estimate one call by that of the largest share; None where a member cannot compute it, or it has no batch."""
        share = shared(task, self.count)
        whole, part = self.member.estimate(task), self.member.estimate(share) if share is not None else None
        if whole is None or part is None:
            return None
        start_us = (self.count - 1) * self.start_cycles / self.clock_mhz
        time_us = combine(lambda us: us + start_us, part.time_us)
        cycles = combine(lambda us: us * self.clock_mhz, time_us)
        return KernelEstimate(cycles, time_us, part.bound, whole.flops, whole.moved_bytes)


def shared(task: Task, parts: int) -> Task | None:
    """Return the largest share of a task whose batch is divided into ``parts``; None if it is smaller, or a chain."""
    batched = [layer for layer in task.layers if isinstance(layer, Matmul | Convolution | Pooling)]
    batches = {layer.batch for layer in batched}
    if len(batches) != 1 or task.on_chip_bytes or min(batches) < parts:
        return None
    (batch,) = batches
    most = ceil(batch / parts)

    def part_of(extent: int) -> int:
        return ceil(extent * most / batch)

    def layer_part(layer: Layer) -> Layer:
        if isinstance(layer, Matmul | Convolution | Pooling):
            return replace(layer, batch=most)
        if isinstance(layer, Rowwise):
            return replace(layer, rows=part_of(layer.rows))
        return replace(layer, elements=part_of(layer.elements))

    layers = tuple(map(layer_part, task.layers))
    return replace(task, layers=layers, read_bytes=part_of(task.read_bytes), written_bytes=part_of(task.written_bytes))

"""An overlay engine such as the vendor's DPU, which runs a network layer by layer on an array and a window unit.

A step is a contraction or a pooling with the operators fused to it. It takes

    max((array cycles / array share + window cycles) / clock, memory time) + layer cost

because the next tile loads while this one is computed. Memory time is the longest of three: reads over their ports,
writes over their ports, and both over the board's memory, each at the share of the rate that is attained. The shares
and the layer cost are fitted (benchmarks/kernels/overlay_fit.py). The interval is the range of measured over likely
time that holds 90 % of published networks (benchmarks/kernels/overlay_held_out.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from common.fpga.device.resources import Resources
from common.fpga.kernels.estimate import Bound, KernelEstimate, TimeScatter, scattered
from common.fpga.kernels.overlay.cycles import (
    OverlayShape,
    array_cycles,
    images,
    pass_cycles,
    unsupported,
    window_cycles,
)
from common.intervals import ThreePoint, combine
from common.workload.layers import Layer
from common.workload.tasks import Task


@dataclass(frozen=True, slots=True)
class OverlayPorts:
    """Memory ports of the engines that share a core's weights."""

    data_ports: int  # ports of one engine, full duplex
    weight_ports: int  # ports of one core; 0 where weights come over the data ports
    port_bits: int
    memory_bytes_per_s: float  # theoretical rate of the board's memory, which all engines share
    share: float  # share of these rates that is attained


@dataclass(frozen=True, slots=True)
class OverlayHost:
    """Time that the host processor spends, with the library that the vendor measures with."""

    call_us: float  # submitting one batch and taking back its sorted scores
    input_ns: float  # scaling one input element and writing it into the engine's buffer
    operation_ns: float  # one operation of a layer that the engine cannot run
    link_bytes_per_s: float  # bandwidth of the link to a card; infinite for an embedded board
    threads: int  # threads that submit batches in turn


@dataclass(frozen=True, slots=True)
class OverlayStep:
    """Time of a contraction or a pooling with the operators fused to it, while all engines do the same."""

    array_cycles: int  # with all operands present
    window_cycles: int
    compute_us: float  # both together, with the share of cycles in which the array has operands
    memory_us: float  # memory time at the attained share of the rates
    fixed_us: float  # the layer cost

    @property
    def time_us(self) -> float:
        """Time of the step: loads overlap with computation, the layer cost with nothing."""
        return max(self.compute_us, self.memory_us) + self.fixed_us

    @property
    def bound(self) -> Bound:
        parts: dict[Bound, float] = {"compute": self.compute_us, "memory": self.memory_us, "fixed": self.fixed_us}
        return max(parts, key=lambda name: parts[name])


@dataclass(frozen=True, slots=True)
class OverlayEngine:
    """One configuration of the overlay on one board, which serves every group that it has units for."""

    kind: ClassVar[str] = "overlay"
    precision: ClassVar[str] = "int8"  # of every overlay that has a model
    name: str
    title: str
    board: str
    clock_mhz: float  # of the array; its DSPs run at twice that clock
    engine_count: int  # engines; each computes an image of its own
    core_count: int  # groups of engines that load their weights together
    shape: OverlayShape
    ports: OverlayPorts
    host: OverlayHost
    array_share: float  # share of the cycles in which the array has operands, beyond the losses by rounding up
    layer_cycles: float  # cycles to fetch and synchronize the instructions of one step
    resources: Resources
    scatter: TimeScatter  # how measured times of networks scatter around the likely ones
    assumptions: tuple[str, ...] = ()

    @property
    def clock_cases_mhz(self) -> ThreePoint:
        return ThreePoint.exactly(self.clock_mhz)

    @property
    def spans_regions(self) -> bool:
        """Whether there are several cores, which may be placed in several regions."""
        return self.core_count > 1

    @property
    def peak_macs_per_us(self) -> float:
        return self.shape.macs_per_cycle * self.clock_mhz

    def step(
        self, layers: tuple[Layer, ...], weight_bytes: float, read_bytes: float, written_bytes: float
    ) -> OverlayStep:
        """Return the time of fused layers for one image on each engine; bytes are those of one image."""
        on_array = sum(array_cycles(layer, self.shape) for layer in layers)
        on_windows = sum(window_cycles(layer, self.shape) for layer in layers)
        if not on_array + on_windows:
            on_windows = sum(pass_cycles(layer, self.shape) for layer in layers)
        return OverlayStep(
            array_cycles=on_array,
            window_cycles=on_windows,
            compute_us=(on_array / self.array_share + on_windows) / self.clock_mhz,
            memory_us=self._memory_us(weight_bytes, read_bytes, written_bytes) / self.ports.share,
            fixed_us=self.layer_cycles / self.clock_mhz,
        )

    def _memory_us(self, weight_bytes: float, read_bytes: float, written_bytes: float) -> float:
        """Return the memory time at the theoretical rates: the longest over ports and memory."""
        ports = self.ports
        port_rate = ports.port_bits / 8 * self.clock_mhz  # bytes per µs
        moved = self.core_count * weight_bytes + self.engine_count * (read_bytes + written_bytes)
        over_weight_ports = weight_bytes / (ports.weight_ports * port_rate) if ports.weight_ports else 0.0
        reads = read_bytes if ports.weight_ports else read_bytes + weight_bytes
        over_data_ports = max(reads, written_bytes) / (ports.data_ports * port_rate)
        return max(over_weight_ports, over_data_ports, moved / (ports.memory_bytes_per_s * 1e-6))

    def estimate(self, task: Task) -> KernelEstimate | None:
        """Estimate one call on int8 operands; None where a layer has no unit or tensors do not fit the chip."""
        if task.precision != self.precision or task.on_chip_bytes > self.shape.bank_bytes or not task.layers:
            return None
        if any(unsupported(layer, self.shape) for layer in task.layers):
            return None
        batch = images(task.layers)
        rounds = ceil(batch / self.engine_count)
        step = self.step(task.layers, task.weight_bytes, task.read_bytes / batch, task.written_bytes / batch)
        ideal_us = task.macs / self.peak_macs_per_us / self.engine_count
        time_us = scattered(step.time_us * rounds, self.scatter.band, ideal_us)
        cycles = combine(lambda us: us * self.clock_mhz, time_us)
        return KernelEstimate(cycles, time_us, step.bound, 2 * task.macs, task.border_bytes)

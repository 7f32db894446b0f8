"""Meters for a block: the processor's power, traffic over PCIe, and what this process takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, Protocol

from common.messages.errors import PipelineError
from common.power.measured import PowerSample, average_power, counted_domains
from common.profiling.trace.utilization import peak_resident_bytes
from common.sensors.cpu import process_state
from common.sensors.discover import available_sensors
from common.sensors.quantities import POWER
from common.sensors.sampler import Sampler, SampleSink
from common.sensors.sensor import Sample

WATCH_HZ, CLOCK = 1.0, "cpu_frequency_mhz"


def mean_power_w(samples: Iterable[Sample], begin_s: float, end_s: float) -> float | None:
    """Return the processor's mean power between two times, from samples of power; None where they give none."""
    readings = [PowerSample(sample.time_s, sample.sensor_domain, sample.value) for sample in samples]
    domains = counted_domains({reading.sensor_domain for reading in readings}, with_gpu=False)
    mean = average_power(readings, domains, begin_s, end_s) if readings else None
    return mean.likely if mean else None


@contextlib.contextmanager
def power_meter(given_w: float | None) -> Iterator[Callable[[float, float], float | None]]:
    """Yield a function for the mean power of the processor between two times: the given power, or that of sensors.

    It returns None if neither is known.
    """
    samples: list[Sample] = []
    sensors = [] if given_w else [sensor for sensor in available_sensors()[0] if POWER in sensor.quantities]

    def measured_w(begin_s: float, end_s: float) -> float | None:
        return mean_power_w([sample for sample in [*samples] if sample.quantity == POWER], begin_s, end_s)

    with Sampler(sensors, samples):
        yield (lambda begin_s, end_s: given_w) if given_w else measured_w


class PowerSink(SampleSink, Protocol):
    """Receives samples, and keeps the newest samples of power."""

    def power(self) -> list[Sample]: ...


@contextlib.contextmanager
def sampled_power(sink: PowerSink, given_w: float | None, window_s: float) -> Iterator[Callable[[], float | None]]:
    """Sample every sensor during the block; yield a function for the given power, or for that of the newest window."""

    def power_w() -> float | None:
        now_s = perf_counter()
        return given_w or mean_power_w(sink.power(), now_s - window_s, now_s)

    with Sampler(available_sensors()[0], sink):
        yield power_w


@contextlib.contextmanager
def process_watch(samples: SampleSink) -> Iterator[Sampler]:
    """Sample memory, handles and threads of this process, and the processor's clock, while the block runs."""
    clocks = (sensor for sensor in available_sensors()[0] if CLOCK in sensor.quantities)
    with Sampler([process_state(perf_counter), *clocks], samples, WATCH_HZ) as sampler:
        yield sampler


def process_figures() -> dict[str, int | None]:
    """Return memory now and at its peak, handles and threads of this process by column; None for what is unknown."""
    columns = {"resident_bytes": "memory_resident_bytes", "handle_count": "handle_count"}
    columns["process_thread_count"] = "thread_count"
    try:
        read = {sample.quantity: int(sample.value) for sample in process_state(perf_counter).sample()}
    except PipelineError:
        read = {}
    now = {column: read.get(quantity) for column, quantity in columns.items()}
    return {**now, "peak_resident_bytes": peak_resident_bytes()}


@contextlib.contextmanager
def link_meter(device: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield a function that returns the mean PCIe traffic of GPUs since the block began, or why it is unknown.

    Args:
        device: the runtime's name of the device that computes; empty for the host, which reads no sensor.
    """
    samples: list[Sample] = []
    names = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
    sensors = [sensor for sensor in available_sensors()[0] if {*names} & {*sensor.quantities}] if device else []

    def figures() -> dict[str, Any]:
        read_until_now = [*samples]
        values = {name: [sample.value for sample in read_until_now if sample.quantity == name] for name in names}
        reason = "no sensor of this host reads PCIe counters" if device else "no device is behind PCIe"
        return {
            **{name: sum(read) / len(read) if read else None for name, read in values.items()},
            "pcie_unavailable": None if any(values.values()) else reason,
        }

    with Sampler(sensors, samples):
        yield figures

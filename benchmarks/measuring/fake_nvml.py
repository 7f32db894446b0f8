"""A fake of NVIDIA's library below pynvml: the real pynvml runs, with its own structs, checks and error classes.

Only the driver's answers and their timing are made up.
"""

# ruff: noqa: N802 - the names are those of the library
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pynvml

METRIC_VALUES = {  # by pynvml's number of the metric, in NVML's units: percent and MiB/s
    pynvml.NVML_GPM_METRIC_SM_UTIL: 61.0,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: 37.0,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 23.0,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 53.0,
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: 3.0,
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: 5.0,
}


@dataclass
class FakeGpu:
    """One device. ``unsupported`` names functions of the library that it refuses; ``error`` is what all then return."""

    energy_mj: int = 10_007
    power_mw: int = 61_001
    temperature_c: int = 47
    clocks_mhz: dict[int, int] = field(
        default_factory=lambda: {pynvml.NVML_CLOCK_SM: 1709, pynvml.NVML_CLOCK_MEM: 2617}
    )
    utilization: tuple[int, int] = (71, 29)
    memory_used_bytes: int = 1_000_003
    reasons: int = 0
    fields: dict[int, tuple[int, int]] = field(default_factory=dict)
    pcie_kilobytes_per_s: dict[int, int] = field(default_factory=lambda: {0: 7, 1: 11})
    metrics: dict[int, float] = field(default_factory=lambda: dict(METRIC_VALUES))
    has_gpm: bool = True
    unsupported: set[str] = field(default_factory=set)
    error: int = pynvml.NVML_SUCCESS


class FakeLibrary:
    """``libnvidia-ml.so``: functions that fill what ``byref`` points at and return an error code."""

    def __init__(self, *gpus: FakeGpu) -> None:
        """Hold the devices; GPM samples in use are counted."""
        self.gpus = gpus
        self.calls: list[str] = []
        self.samples_in_use = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Raise AttributeError for a function that the library lacks, as ctypes does."""
        if not hasattr(type(self), f"_{name}"):
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            self.calls.append(name)
            given = [getattr(argument, "_obj", argument) for argument in arguments]
            gpu = self._gpu(given[0]) if given and isinstance(given[0], pynvml.c_nvmlDevice_t) else None
            if gpu and gpu.error:
                return gpu.error
            if gpu and name in gpu.unsupported:
                return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
            code = getattr(self, f"_{name}")(*([gpu, *given[1:]] if gpu else given))
            return int(code or pynvml.NVML_SUCCESS)

        return function

    def _gpu(self, handle: Any) -> FakeGpu:
        return self.gpus[number_of(handle) - 1]

    def _nvmlInitWithFlags(self, flags: int) -> None:
        self.flags = flags

    def _nvmlDeviceGetCount_v2(self, count: Any) -> None:
        count.value = len(self.gpus)

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        if index.value >= len(self.gpus):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        _point(device, index.value + 1)
        return int(self.gpus[index.value].error)

    def _nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu, energy: Any) -> None:
        energy.value = gpu.energy_mj

    def _nvmlDeviceGetPowerUsage(self, gpu: FakeGpu, power: Any) -> None:
        power.value = gpu.power_mw

    def _nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: Any, temperature: Any) -> None:
        temperature.value = gpu.temperature_c

    def _nvmlDeviceGetClockInfo(self, gpu: FakeGpu, kind: Any, clock: Any) -> None:
        clock.value = gpu.clocks_mhz[kind.value]

    def _nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu, rates: Any) -> None:
        rates.gpu, rates.memory = gpu.utilization

    def _nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, memory: Any) -> None:
        memory.used = gpu.memory_used_bytes

    def _nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu, reasons: Any) -> None:
        reasons.value = gpu.reasons

    def _nvmlDeviceGetPcieThroughput(self, gpu: FakeGpu, counter: Any, rate: Any) -> None:
        rate.value = gpu.pcie_kilobytes_per_s[counter.value]

    def _nvmlDeviceGetFieldValues(self, gpu: FakeGpu, count: Any, values: Any) -> None:
        for value in values:
            if value.fieldId in gpu.fields:
                value.valueType, value.value.ullVal = gpu.fields[value.fieldId]
            else:
                value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED

    def _nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu, support: Any) -> None:
        support.isSupportedDevice = int(gpu.has_gpm)

    def _nvmlGpmSampleAlloc(self, sample: Any) -> None:
        self.samples_in_use += 1
        _point(sample, self.samples_in_use)

    def _nvmlGpmSampleFree(self, sample: Any) -> None:
        self.samples_in_use -= 1

    def _nvmlGpmSampleGet(self, gpu: FakeGpu, sample: Any) -> None:
        self.sampled = gpu

    def _nvmlGpmMetricsGet(self, request: Any) -> int | None:
        if self.sampled.error:
            return self.sampled.error
        for metric in request.metrics[: request.numMetrics]:
            value = self.sampled.metrics.get(metric.metricId)
            metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if value is None else pynvml.NVML_SUCCESS
            metric.value = value or 0.0
        return None


def _point(pointer: Any, number: int) -> None:
    """Give an opaque pointer an address of its own, which nobody follows."""
    ctypes.cast(ctypes.byref(pointer), ctypes.POINTER(ctypes.c_void_p))[0] = 16 * number


def number_of(pointer: Any) -> int:
    """Return the number of an opaque pointer; 0 if it points nowhere."""
    return (ctypes.cast(pointer, ctypes.c_void_p).value or 0) // 16


@contextmanager
def fake_driver(*gpus: FakeGpu) -> Iterator[FakeLibrary]:
    """Let pynvml use this library while the block runs."""
    library = FakeLibrary(*gpus)
    kept = pynvml.nvmlLib, pynvml._nvmlGetFunctionPointer_cache
    pynvml.nvmlLib, pynvml._nvmlGetFunctionPointer_cache = library, {}
    try:
        yield library
    finally:
        pynvml.nvmlLib, pynvml._nvmlGetFunctionPointer_cache = kept

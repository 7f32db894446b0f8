"""NVIDIA GPUs through NVML (package ``nvidia-ml-py``): power and state.

Power is that of the energy counter, else sampled. The counter exists from Volta on, counts mJ and is updated every 20
to 100 ms. Sampled power is an average over up to a second, which the driver chooses, so it blurs short runs. The driver
updates the other quantities a few times a second, and they are read no more often. What a device does not support is
left out; it is never zero.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from common.messages.errors import PipelineError
from common.sensors.gpu.device import Device
from common.sensors.gpu.gpm import PCIE, gpm_sensor
from common.sensors.quantities import POWER
from common.sensors.sensor import SLOW_PERIOD_S, Clock, CounterSensor, Found, Sensor, together

_REMEDY = "where there is an NVIDIA GPU, install its driver"
# nvmlDeviceGetPcieThroughput measures for 20 ms per direction, during which the sampler reads nothing else.
_PCIE_PERIOD_S = 1.0
_PCIE_LIMIT_BYTES_PER_S = 1e12  # beyond any link: PCIe 7.0 x16 carries 256 GB/s per direction
# Names in pynvml of the bits of nvmlDeviceGetCurrentClocksEventReasons that make up each quantity (nvml.h).
_REASONS = {
    "is_throttled_by_power_cap": ("SwPowerCap",),
    "is_throttled_by_temperature": ("SwThermalSlowdown", "HwThermalSlowdown"),
    "is_throttled_by_power_brake": ("HwPowerBrakeSlowdown",),
    "is_throttled_by_hardware": ("HwSlowdown",),
    "is_throttled_by_clock_setting": ("ApplicationsClocksSetting", "DisplayClockSetting"),
    "is_throttled_by_sync_boost": ("SyncBoost",),
    "is_gpu_idle": ("GpuIdle",),
}


def nvml_sensors(clock: Clock) -> Found:
    """Return the sensors of every GPU, power first, and notes on missing quantities."""
    try:
        import pynvml
    except ImportError:
        return [], ["nvml: not installed; pip install nvidia-ml-py to measure GPUs"]
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return [], [f"nvml: no GPU power ({error}); {_REMEDY}"]
    return together(_device_sensors(pynvml, index, clock) for index in range(count))


def _device_sensors(pynvml: ModuleType, index: int, clock: Clock) -> Found:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return [], [f"nvml gpu-{index}: cannot be read ({error})"]
    device = Device(pynvml, handle, index, clock)
    power, state = _power_sensor(device), _state_sensors(device)
    gpm, gpm_notes = gpm_sensor(device)
    pcie = ([], []) if gpm is not None and set(gpm.quantities) >= PCIE else _pcie_sensors(device)
    return together((power, state, ([gpm] if gpm else [], gpm_notes), pcie))


def _power_sensor(device: Device) -> Found:
    """Return the energy counter if the device has it, else sampled power."""

    def energy_mj() -> int:
        return int(device.call("nvmlDeviceGetTotalEnergyConsumption"))

    def power_w() -> tuple[float]:
        return (device.call("nvmlDeviceGetPowerUsage") / 1000,)

    try:
        energy_mj()
    except PipelineError:
        return device.supported([device.gauge((POWER,), power_w, 0.0, "nvml_power")])
    return [CounterSensor("nvml_energy", device.domain, energy_mj, unit=1e-3, clock=device.clock)], []


def _state_sensors(device: Device) -> Found:
    """Return a sensor for each group of quantities that the device supports, and a note for the others."""
    nvml = device.pynvml

    def clock_mhz(kind: int) -> Callable[[], tuple[float]]:
        return lambda: (float(device.call("nvmlDeviceGetClockInfo", kind)),)

    gauges: list[tuple[tuple[str, ...], Callable[[], tuple[float, ...]]]] = [
        (("temperature_c",), lambda: (float(device.call("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)),)),
        (("sm_clock_mhz",), clock_mhz(nvml.NVML_CLOCK_SM)),
        (("memory_clock_mhz",), clock_mhz(nvml.NVML_CLOCK_MEM)),
        (("gpu_utilization_share", "memory_utilization_share"), lambda: _utilization(device)),
        (("gpu_memory_used_bytes",), lambda: (float(device.call("nvmlDeviceGetMemoryInfo").used),)),
        (tuple(_REASONS), _reasons(device)),
    ]
    return device.supported([device.gauge(names, read, SLOW_PERIOD_S) for names, read in gauges])


def _utilization(device: Device) -> tuple[float, float]:
    rates = device.call("nvmlDeviceGetUtilizationRates")
    return rates.gpu / 100, rates.memory / 100


def _reasons(device: Device) -> Callable[[], tuple[float, ...]]:
    prefix, function = "nvmlClocksEventReason", "nvmlDeviceGetCurrentClocksEventReasons"
    if not hasattr(device.pynvml, function):  # before nvidia-ml-py 12.535
        prefix, function = "nvmlClocksThrottleReason", "nvmlDeviceGetCurrentClocksThrottleReasons"
    masks = [sum(getattr(device.pynvml, prefix + bit) for bit in bits) for bits in _REASONS.values()]

    def read() -> tuple[float, ...]:
        reasons = device.call(function)
        return tuple(float(bool(reasons & mask)) for mask in masks)

    return read


def _pcie_sensors(device: Device) -> Found:
    """Return the sensors of PCIe traffic without GPM: byte counters if the device has them, else driver samples."""
    nvml = device.pynvml
    counters: list[Sensor] = [
        CounterSensor(
            "nvml_pcie_counter",
            device.domain,
            _byte_counter(device, getattr(nvml, f"NVML_FI_DEV_PCIE_COUNT_{way}_BYTES", 0)),
            clock=device.clock,
            quantity=f"pcie_{way.lower()}_bytes_per_s",
            unit=1.0,
            limit=_PCIE_LIMIT_BYTES_PER_S,
            period_s=SLOW_PERIOD_S,
        )
        for way in ("TX", "RX")
    ]
    kept, _ = device.supported(counters)
    if len(kept) == len(counters):
        return kept, []
    names = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
    ways = (nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES)

    def sampled() -> tuple[float, ...]:
        return tuple(1e3 * device.call("nvmlDeviceGetPcieThroughput", way) for way in ways)  # from kB/s

    return device.supported([device.gauge(names, sampled, _PCIE_PERIOD_S, "nvml_pcie_sampled")])


def _byte_counter(device: Device, field: int) -> Callable[[], int]:
    """Return a reader of a 64-bit byte counter; one of 32 bits wraps between two readings of a fast link."""

    def read() -> int:
        (value,) = device.call("nvmlDeviceGetFieldValues", [field])
        if value.nvmlReturn != device.pynvml.NVML_SUCCESS:
            raise device.error(str(device.pynvml.NVMLError(value.nvmlReturn)))
        if value.valueType != device.pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
            raise device.error(f"field {field} is not a 64-bit counter")
        return int(value.value.ullVal)

    return read

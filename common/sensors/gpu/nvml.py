"""NVIDIA GPUs through NVML (package ``nvidia-ml-py``): the energy counter first, sampled power second.

The energy counter exists from Volta on, counts mJ and is updated every 20 to 100 ms. Sampled power is an average over
up to a second, which the driver chooses, so it blurs short runs. Without a driver there is no sensor; a reading of 0 W
never means a missing one.
"""

from __future__ import annotations

from types import ModuleType

from common.messages.errors import PipelineError
from common.sensors.gpu.device import Device
from common.sensors.gpu.gpm import PCIE, gpm_sensor
from common.sensors.gpu.state import pcie_sensors, state_sensors
from common.sensors.quantities import POWER
from common.sensors.sensor import Clock, CounterSensor, Sensor

_REMEDY = "where there is an NVIDIA GPU, install its driver"


def nvml_sensors(clock: Clock) -> tuple[list[Sensor], list[str]]:
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
    sensors: list[Sensor] = []
    notes: list[str] = []
    for index in range(count):
        device_sensors, missing = _device_sensors(pynvml, index, clock)
        sensors += device_sensors
        notes += missing
    return sensors, notes


def _device_sensors(pynvml: ModuleType, index: int, clock: Clock) -> tuple[list[Sensor], list[str]]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return [], [f"nvml gpu-{index}: cannot be read ({error})"]
    device = Device(pynvml, handle, index, clock)
    power, power_notes = _power_sensor(device)
    state, state_notes = state_sensors(device)
    gpm, gpm_notes = gpm_sensor(device)
    has_pcie = gpm is not None and set(gpm.quantities) >= PCIE
    pcie, pcie_notes = ([], []) if has_pcie else pcie_sensors(device)
    profile: list[Sensor] = [gpm] if gpm else []
    return [*power, *state, *profile, *pcie], [*power_notes, *state_notes, *gpm_notes, *pcie_notes]


def _power_sensor(device: Device) -> tuple[list[Sensor], list[str]]:
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

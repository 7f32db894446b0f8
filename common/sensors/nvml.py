"""NVIDIA GPUs through NVML (package ``nvidia-ml-py``): the energy counter first, sampled power second.

The counter exists from Volta on, counts mJ and is brought up to date every 20 to 100 ms; sampled power is an average
over up to a second that the driver chooses, so short runs are blurred.
Without a driver there is no sensor, and never a reading of 0 W.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from common.errors import PipelineError
from common.sensors.sensor import Clock, CounterSensor, GaugeSensor, Sensor

_REMEDY = "where there is an NVIDIA GPU, install its driver"


def nvml_sensors(clock: Clock) -> tuple[list[Sensor], list[str]]:
    """A sensor for each GPU that tells its energy or its power, and a note for what is missing."""
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
    notes = []
    for index in range(count):
        try:
            sensors.append(_device_sensor(pynvml, index, clock))
        except PipelineError as error:
            notes.append(str(error))
    return sensors, notes


def _device_sensor(pynvml: ModuleType, index: int, clock: Clock) -> Sensor:
    """The better of the two readings that the device has."""
    domain = f"gpu-{index}"
    energy_mj = _reading(pynvml, domain, pynvml.nvmlDeviceGetTotalEnergyConsumption, index)
    power_mw = _reading(pynvml, domain, pynvml.nvmlDeviceGetPowerUsage, index)
    try:
        energy_mj()
    except PipelineError:
        power_mw()
        return GaugeSensor("nvml_power", domain, lambda: power_mw() / 1000, clock=clock)
    return CounterSensor("nvml_energy", domain, lambda: energy_mj() * 1000, clock=clock)


def _reading(pynvml: ModuleType, domain: str, query: Callable[[Any], int], index: int) -> Callable[[], int]:
    def read() -> int:
        try:
            return int(query(pynvml.nvmlDeviceGetHandleByIndex(index)))
        except pynvml.NVMLError as error:
            raise PipelineError(f"nvml {domain}", f"cannot be read ({error})") from error

    return read

"""Which power sensors this host has: each domain is read once, by the sensor that reads it best."""

from __future__ import annotations

import time
from pathlib import Path

from common.errors import PipelineError
from common.sensors.nvml import nvml_sensors
from common.sensors.powercap import DEFAULT_ROOT, Zone, find_zones, powercap_sensors
from common.sensors.rapl import pyrapl_sensors
from common.sensors.sensor import Clock, Sensor

WITHOUT_SENSORS = "05_energy_estimate.py then takes --avg-power-w, or its named model"


def available_sensors(
    powercap_root: Path = DEFAULT_ROOT, *, clock: Clock = time.perf_counter
) -> tuple[list[Sensor], list[str]]:
    """Every sensor that can be read now, and a note with its remedy for each that cannot.

    Args:
        powercap_root: the tree of RAPL counters; pyRAPL knows the default one only.
        clock: gives the time of the samples in seconds.
    """
    cpu_sensors, cpu_notes = _cpu_sensors(powercap_root, clock)
    gpu_sensors, gpu_notes = nvml_sensors(clock)
    sensors, notes = [*cpu_sensors, *gpu_sensors], [*cpu_notes, *gpu_notes]
    if not sensors:
        notes.append(f"power: no sensor on this host; {WITHOUT_SENSORS}")
    return sensors, notes


def _cpu_sensors(root: Path, clock: Clock) -> tuple[list[Sensor], list[str]]:
    try:
        zones = find_zones(root)
    except PipelineError as error:
        return [], [f"powercap: {error}"]
    if not zones:
        return [], [f"powercap: no RAPL counters under {root}; a virtual machine hides them, bare metal has them"]
    sensors, notes = pyrapl_sensors(zones, clock) if root == DEFAULT_ROOT else ([], [])
    others, other_notes = powercap_sensors(_unread(zones, sensors), clock)
    return [*sensors, *others], [*notes, *other_notes]


def _unread(zones: tuple[Zone, ...], sensors: list[Sensor]) -> list[Zone]:
    read = {sensor.domain for sensor in sensors}
    return [zone for zone in zones if zone.domain not in read]

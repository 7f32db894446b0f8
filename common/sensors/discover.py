"""Discovery of the sensors of this host: each domain is read once, by the best sensor for it."""

from __future__ import annotations

import time
from pathlib import Path

from common.messages.errors import PipelineError
from common.sensors.cpu import cpu_sensors
from common.sensors.gpu.nvml import nvml_sensors
from common.sensors.powercap import DEFAULT_ROOT, find_zones, powercap_sensors
from common.sensors.quantities import POWER
from common.sensors.rapl import pyrapl_sensors
from common.sensors.sensor import Clock, Found, Sensor, together

WITHOUT_SENSORS = "give <avg_power_w>, or an energy model predicts the energy"


def available_sensors(powercap_root: Path = DEFAULT_ROOT, *, clock: Clock = time.perf_counter) -> Found:
    """Return every sensor that can be read, and a note with a remedy for each that cannot.

    ``powercap_root`` is a tree of RAPL counters; pyRAPL reads the default tree only.
    """
    sensors, notes = together((_rapl_sensors(powercap_root, clock), nvml_sensors(clock), cpu_sensors(clock)))
    if not any(POWER in sensor.quantities for sensor in sensors):
        notes.append(f"power: no power sensor on this host; {WITHOUT_SENSORS}")
    return sensors, notes


def _rapl_sensors(root: Path, clock: Clock) -> Found:
    try:
        zones = find_zones(root)
    except PipelineError as error:
        return [], [f"powercap: {error}"]
    if not zones:
        return [], [f"powercap: no RAPL counters under {root}; a virtual machine hides them, bare metal has them"]
    sensors, notes = pyrapl_sensors(zones, clock) if root == DEFAULT_ROOT else ([], [f"pyRAPL: cannot read {root}"])
    read = {sensor.domain for sensor in sensors}
    others, other_notes = powercap_sensors([zone for zone in zones if zone.domain not in read], clock)
    return [*sensors, *others], [*notes, *_readers(sensors, others), *other_notes]


def _readers(sensors: list[Sensor], others: list[Sensor]) -> list[str]:
    """Return a note on which reader reads which domains; pyRAPL comes first, since the user chose it."""
    listed = [", ".join(sensor.domain for sensor in group) for group in (sensors, others)]
    if not sensors:
        return [f"powercap: reads {listed[1]}"] if others else []
    more = f"; powercap reads {listed[1]}, which pyRAPL does not give" if others else ""
    return [f"pyRAPL: reads {listed[0]}{more}"]

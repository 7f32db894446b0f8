"""RAPL through pyRAPL, wherever pyRAPL initialises; :mod:`common.sensors.powercap` reads the other zones.

pyRAPL (0.2.3.1) reads the counters themselves correctly, but has limits elsewhere: it returns None if a counter wraps
between begin and end, knows neither psys nor packages of several dies, and gives up on all memory counters if one
socket has none. So its ``Sensor`` reads the counters one by one, and :class:`common.sensors.sensor.CounterSensor` takes
differences and handles wraps. pyRAPL reads /sys/class/powercap and no other tree.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType

from common.messages.errors import PipelineError
from common.sensors.powercap import Zone
from common.sensors.sensor import Clock, CounterSensor, Found, Sensor

_READABLE = re.compile(r"package-(\d+)(/dram)?")
# pyRAPL opens files and parses names without checks, so it raises these beside its own exceptions.
_FAILURES = (OSError, ValueError, IndexError)


def pyrapl_sensors(zones: Iterable[Zone], clock: Clock) -> Found:
    """Return a sensor for each zone that pyRAPL can read, and a note if pyRAPL does not initialise."""
    try:
        pyrapl = import_quietly()
    except ImportError:
        return [], ["pyRAPL: not installed; the powercap reader is used instead"]
    failures = (pyrapl.PyRAPLException, *_FAILURES)
    try:
        pyrapl.setup()
    except failures as error:
        return [], [f"pyRAPL: does not initialise here ({_reason(error)}); the powercap reader is used instead"]
    sensors: list[Sensor] = []
    for zone in zones:
        match = _READABLE.fullmatch(zone.domain)
        if not match:
            continue
        device = pyrapl.Device.DRAM if match[2] else pyrapl.Device.PKG
        try:
            read_uj = _reader(pyrapl, device, int(match[1]))
            read_uj()
        except (PipelineError, *failures):
            continue  # the powercap reader tries this zone and reports the problem
        sensors.append(CounterSensor("pyRAPL", zone.domain, read_uj, range_count=zone.range_uj, clock=clock))
    return sensors, []


def _reader(pyrapl: ModuleType, device: int, socket: int) -> Callable[[], int]:
    """Return a reader of one counter.

    ``Sensor.energy()`` lists package and memory of socket 0, of socket 1, and so on; -1 means a missing counter.
    """
    sensor = pyrapl.Sensor(devices=[device], socket_ids=[socket])

    def read_uj() -> int:
        try:
            energy_uj = int(sensor.energy()[2 * socket + int(device)])
        except _FAILURES as error:
            raise PipelineError("pyRAPL", f"socket {socket} cannot be read ({_reason(error)})") from error
        if energy_uj < 0:
            raise PipelineError("pyRAPL", f"socket {socket} has no such counter")
        return energy_uj

    return read_uj


def import_quietly() -> ModuleType:
    """Import pyRAPL without its warnings about optional databases, and restore the program's logging."""
    handlers, disabled = logging.root.handlers[:], logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyRAPL

            return pyRAPL  # type: ignore[no-any-return]
    finally:
        logging.disable(disabled)
        logging.root.handlers[:] = handlers  # its warning installs a handler


def _reason(error: Exception) -> str:
    """Return one line; pyRAPL's own exceptions have no text."""
    return str(error) or type(error).__name__

"""Reader of a Linux powercap tree: RAPL counters of packages, of their memory, and of the whole platform (psys).

AMD processors appear in the same tree under the same names. A package's counter includes its cores and graphics, so
these are not read. ``dram`` is separate from the package. ``psys`` includes everything, so it is never added to the
others. Zones are found by directory name, in a flat tree as in /sys/class/powercap or a nested one as in /sys/devices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from common.messages.errors import PipelineError
from common.messages.names import quoted
from common.sensors.sensor import Clock, CounterSensor, Found, Sensor

DEFAULT_ROOT = Path("/sys/class/powercap")
_PACKAGE = re.compile(r"intel-rapl:(\d+)")
_SUBDOMAIN = re.compile(r"(intel-rapl:\d+):\d+")
_ALONE = ("package", "psys")
_COUNTER_BYTES = 32  # a 64-bit number in decimal and its newline


@dataclass(frozen=True, slots=True)
class Zone:
    """One counter of the tree; its range ``range_uj`` differs between a package and its memory."""

    path: Path
    domain: str
    range_uj: int


def find_zones(root: Path) -> tuple[Zone, ...]:
    """Return the zones of packages, dram and psys in the order of the tree; empty if there is no tree.

    A PipelineError says that a zone has no name or no range.
    """
    folders: dict[str, Path] = {}
    for pattern in ("intel-rapl:*", "*/intel-rapl:*", "*/*/intel-rapl:*"):
        for folder in sorted(root.glob(pattern)):
            folders.setdefault(folder.name, folder)
    return tuple(
        Zone(folder, domain, _number(folder / "max_energy_range_uj"))
        for name, folder in sorted(folders.items())
        if (domain := _domain(name, folders))
    )


def _domain(name: str, folders: dict[str, Path]) -> str:
    """Return ``package-0``, ``package-0/dram`` or ``psys``; empty for a zone that another counter includes."""
    label = _text(folders[name] / "name")
    if _PACKAGE.fullmatch(name):
        return label if label.startswith(_ALONE) else ""
    inner = _SUBDOMAIN.fullmatch(name)
    if not (inner and label == "dram" and inner[1] in folders):
        return ""
    return f"{_text(folders[inner[1]] / 'name')}/{label}"


def powercap_sensors(zones: Iterable[Zone], clock: Clock) -> Found:
    """Return a sensor for each readable zone, and one note for the others, which usually fail for one reason."""
    sensors: list[Sensor] = []
    failures = []
    for zone in zones:
        # composing the path for each reading would cost more than the reading
        read_uj = partial(_number, str(zone.path / "energy_uj"))
        try:
            read_uj()
            sensors.append(CounterSensor("powercap", zone.domain, read_uj, range_count=zone.range_uj, clock=clock))
        except PipelineError as error:
            failures.append(str(error))
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return sensors, [f"powercap: {failures[0]}{more}"] if failures else []


def _number(path: Path | str) -> int:
    """Read a number in µJ; opening the file takes about 5 µs and detects a zone that has disappeared."""
    text = _text(path)
    if not text.isdecimal() or len(text) >= _COUNTER_BYTES:  # 64 bits have 20 digits
        raise PipelineError(path, f"holds {quoted(text)}, which is not a count of µJ")
    return int(text)


def _text(path: Path | str) -> str:
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            return os.read(file, _COUNTER_BYTES).decode("ascii", "replace").strip()
        finally:
            os.close(file)
    except PermissionError as error:
        remedy = f"run as root, or: sudo chmod a+r {path}"
        raise PipelineError(path, "is readable by root only", remedy) from error
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})") from error

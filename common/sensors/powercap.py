"""Reader of a Linux powercap tree: RAPL counters of packages, their memory, and the whole platform (psys).

AMD processors appear in the same tree under the same names. A package's cores and graphics are inside its own counter
and are not read; ``dram`` is apart from it, and ``psys`` covers everything, so it is never added to the others.
The tree is looked for by directory names, flat as in /sys/class/powercap or nested as in /sys/devices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from common.errors import PipelineError
from common.sensors.sensor import Clock, CounterSensor, Sensor

DEFAULT_ROOT = Path("/sys/class/powercap")
_PACKAGE = re.compile(r"intel-rapl:(\d+)")
_SUBDOMAIN = re.compile(r"(intel-rapl:\d+):\d+")
_ALONE = ("package", "psys")
_COUNTER_BYTES = 32  # a 64-bit number in decimal and its newline


@dataclass(frozen=True, slots=True)
class Zone:
    """One counter of the tree; ``range_uj`` is its own, which differs between a package and its memory."""

    path: Path
    domain: str
    range_uj: int
    counter: str = ""  # the path of the counter's file as text: composing it would cost more than reading it

    def __post_init__(self) -> None:
        """Compose the counter's path once."""
        object.__setattr__(self, "counter", str(self.path / "energy_uj"))


def find_zones(root: Path) -> tuple[Zone, ...]:
    """The packages, their dram and psys, in the order of the tree; empty where there is no tree.

    Raises:
        PipelineError: a zone without a name or a range.
    """
    folders: dict[str, Path] = {}
    for pattern in ("intel-rapl:*", "*/intel-rapl:*", "*/*/intel-rapl:*"):
        for folder in sorted(root.glob(pattern)):
            folders.setdefault(folder.name, folder)
    zones = []
    for name, folder in sorted(folders.items()):
        domain = _domain(name, folders)
        if domain:
            zones.append(Zone(folder, domain, _number(folder / "max_energy_range_uj")))
    return tuple(zones)


def _domain(name: str, folders: dict[str, Path]) -> str:
    """``package-0``, ``package-0/dram`` or ``psys``; empty for what another counter already holds."""
    label = _text(folders[name] / "name")
    if _PACKAGE.fullmatch(name):
        return label if label.startswith(_ALONE) else ""
    inner = _SUBDOMAIN.fullmatch(name)
    if not (inner and label == "dram" and inner[1] in folders):
        return ""
    return f"{_text(folders[inner[1]] / 'name')}/{label}"


def read_counter(zone: Zone) -> int:
    """The counter of a zone in µJ.

    The file is opened anew each time: that is how a zone that has gone is noticed, and costs some 5 µs.

    Raises:
        PipelineError: the file is gone, closed to this user, or holds no number.
    """
    return _number(zone.counter)


def powercap_sensors(zones: Iterable[Zone], clock: Clock) -> tuple[list[Sensor], list[str]]:
    """A sensor for each zone that can be read, and one note for those that cannot: they fail for the same reason."""
    sensors: list[Sensor] = []
    failures = []
    for zone in zones:
        try:
            read_counter(zone)
        except PipelineError as error:
            failures.append(str(error))
            continue
        read_uj = partial(read_counter, zone)
        sensors.append(CounterSensor("powercap", zone.domain, read_uj, range_count=zone.range_uj, clock=clock))
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return sensors, [f"powercap: {failures[0]}{more}"] if failures else []


def _number(path: Path | str) -> int:
    text = _text(path)
    if not text.isdecimal() or len(text) >= _COUNTER_BYTES:  # 64 bits have 20 digits
        raise PipelineError(path, f"holds {text!r}, which is no count of µJ")
    return int(text)


def _text(path: Path | str) -> str:
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            return os.read(file, _COUNTER_BYTES).decode("ascii", "replace").strip()
        finally:
            os.close(file)
    except PermissionError as error:
        remedy = f"run 01_profile_onnx.py as root, or: sudo chmod a+r {path}"
        raise PipelineError(path, "may be read only by root", remedy) from error
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})") from error

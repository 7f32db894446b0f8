"""Which machine a measurement belongs to."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

MACHINE = "Model"  # of a whole board with Arm
NAMES = ("model name", "Hardware")  # of the processor: x86, and old kernels on Arm
ARM = 0x41  # implementer; the parts are those of Linux, arch/arm64/include/asm/cputype.h
ARM_CORES = {
    **{0xD03: "Cortex-A53", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72", 0xD0B: "Cortex-A76"},
    **{0xD0C: "Neoverse-N1", 0xD40: "Neoverse-V1", 0xD49: "Neoverse-N2", 0xD4F: "Neoverse-V2"},
}


@cache
def host_identity() -> dict[str, Any]:
    """Identity of the machine that a measurement belongs to, and what its power depends on; None is unknown."""
    processors = [*_processors()]
    packages = {entry["physical id"] for entry in processors if "physical id" in entry}
    cores = {(entry["physical id"], entry["core id"]) for entry in processors if {"physical id", "core id"} <= {*entry}}
    first = processors[0] if processors else {}
    signature = [first.get(key, "") for key in ("cpu family", "model")]  # of CPUID
    sizes = (line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal:"))
    return {
        "hostname": socket.gethostname(),
        "cpu_model": cpu_model(),
        "cpu_signature": [int(part) for part in signature] if all(part.isdigit() for part in signature) else None,
        "cpu_count": os.cpu_count(),
        "core_count": len(cores) or None,
        "package_count": len(packages) or None,
        "is_virtual": "hypervisor" in first["flags"].split() if "flags" in first else None,
        "memory_bytes": next((1024 * int(size) for size in sizes if size.isdigit()), None),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


@cache
def cpu_model() -> str:
    """Name of the processor, as the operating system gives it; on Arm that of the board, else that of its core."""
    processors = [*_processors()]
    names = [entry[MACHINE] for entry in processors if MACHINE in entry]
    names += filter(None, map(_arm_core, processors))
    names += [entry[key] for entry in processors for key in NAMES if key in entry]
    return next(iter(names), "") or platform.processor() or platform.machine()


def _arm_core(entry: Mapping[str, str]) -> str:
    """Return the name of an Arm core, or the numbers of an unknown one; empty without them."""
    numbers = [entry.get(key, "") for key in ("CPU implementer", "CPU part")]
    try:
        implementer, part = (int(number, 16) for number in numbers)
    except ValueError:
        return ""
    known = ARM_CORES.get(part) if implementer == ARM else None
    return f"Arm {known}" if known else f"Arm implementer {implementer:#x}, part {part:#x}"


def _processors() -> Iterator[dict[str, str]]:
    """Yield the entries of /proc/cpuinfo, one per hardware thread; a board may have one more for itself."""
    entry: dict[str, str] = {}
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if not key.strip():
            yield entry
            entry = {}
        else:
            entry[key.strip()] = value.strip()
    if entry:
        yield entry


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []

"""Which machine a measurement belongs to."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("model name", "Model", "Hardware")  # of the processor: x86, and boards with Arm


@cache
def host_identity() -> dict[str, Any]:
    """Identity of the machine that a measurement belongs to, and what its power depends on; None is unknown."""
    processors = [*_processors()]
    packages = {entry["physical id"] for entry in processors if "physical id" in entry}
    cores = {(entry["physical id"], entry["core id"]) for entry in processors if {"physical id", "core id"} <= {*entry}}
    first = processors[0] if processors else {}
    return {
        "hostname": socket.gethostname(),
        "cpu_model": cpu_model(),
        "cpu_signature": _signature(first),
        "cpu_count": os.cpu_count(),
        "core_count": len(cores) or None,
        "package_count": len(packages) or None,
        "is_virtual": "hypervisor" in first["flags"].split() if "flags" in first else None,
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


@cache
def cpu_model() -> str:
    """Name of the processor, as the operating system gives it."""
    named = (entry[key] for entry in _processors() for key in NAMES if key in entry)
    return next(named, "") or platform.processor() or platform.machine()


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


def _signature(entry: dict[str, str]) -> list[int] | None:
    """Return family and model of CPUID."""
    parts = [entry.get(key, "") for key in ("cpu family", "model")]
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else None


def _memory_bytes() -> int | None:
    sizes = (line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal:"))
    return next((1024 * int(size) for size in sizes if size.isdigit()), None)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []

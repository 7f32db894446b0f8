"""Which machine a measurement belongs to."""

from __future__ import annotations

import os
import platform
import socket
from functools import cache
from pathlib import Path
from typing import Any


@cache
def host_identity() -> dict[str, Any]:
    """Identity of the machine that a measurement belongs to."""
    return {
        "hostname": socket.gethostname(),
        "cpu_model": cpu_model(),
        "cpu_count": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


@cache
def cpu_model() -> str:
    """Name of the processor, as the operating system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.processor() or platform.machine()

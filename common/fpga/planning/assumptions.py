"""Defaults of planning (configs/fpga.yaml), and the accepted range of a given kernel speedup."""

from __future__ import annotations

import re
from typing import Any

from common.configuration import Section
from common.errors import UnusableValueError
from common.fpga.planning.problem_builder import LAUNCH_PER
from common.names import quoted

THRESHOLDS = ("min_share", "min_intensity_flop_per_byte", "min_fused_share")
KERNEL_NAME = re.compile(r"K[1-9][0-9]{0,3}")
LARGEST_BATCH = 1024  # every doubling is a plan of its own
LEAST_SPEEDUP, LARGEST_SPEEDUP = 1e-3, 1e6  # of a kernel over the host; a value outside is a mistake


def require_kernel(name: str) -> str:
    """Return the name of a kernel if a plan could have it.

    Raises:
        UnusableValueError: kernels have other names.
    """
    if not KERNEL_NAME.fullmatch(name):
        raise UnusableValueError("kernel_speedup", f"{quoted(name)} is no kernel", "known: K1, K2 and so on")
    return name


def require_speedup(value: float) -> float:
    """Return the speedup of a kernel if it is in the range of possible ones.

    Raises:
        UnusableValueError: it is not.
    """
    if not LEAST_SPEEDUP <= value <= LARGEST_SPEEDUP:
        limits = f"give {LEAST_SPEEDUP:g} to {LARGEST_SPEEDUP:g}"
        raise UnusableValueError("kernel_speedup", f"{value:g} is no speedup of a kernel", limits)
    return value


def require_batch(count: int) -> int:
    """Return the largest batch of the front if it is one that is planned for.

    Raises:
        UnusableValueError: it is not.
    """
    if not 1 <= count <= LARGEST_BATCH:
        raise UnusableValueError("batch", f"{count} is no batch that is planned for", f"give 1 to {LARGEST_BATCH}")
    return count


def read_assumptions(file: Section) -> dict[str, Any]:
    """Return the default of each setting that the file gives.

    Raises:
        ConfigurationError: a key is missing or unknown, or a number is unusable or has no source.
    """
    limits = file.section("thresholds")
    defaults: dict[str, Any] = {name: limits.constant(name, positive=False).likely for name in THRESHOLDS}
    defaults["launch_per"] = file.choice("launch_per", LAUNCH_PER)
    for name in ("time_limit", "effort"):
        defaults[name] = file.number(name)
        if defaults[name] <= 0:
            raise file.error(name, f"is {defaults[name]:g}, which is no search time", "give a positive number")
    file.close()
    return defaults

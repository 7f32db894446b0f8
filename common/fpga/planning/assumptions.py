"""What the configuration says of planning (configs/fpga.yaml)."""

from __future__ import annotations

from typing import Any

from common.configuration import Section
from common.errors import CommandLineError
from common.fpga.planning.problem_builder import LAUNCH_PER

THRESHOLDS = ("min_share", "min_intensity_flop_per_byte", "min_fused_share")


LEAST_SPEEDUP, LARGEST_SPEEDUP = 1e-3, 1e6  # of a kernel over the host; beyond, something else was meant


def require_speedup(value: float) -> float:
    """The speedup of a kernel, if it can be one.

    Raises:
        CommandLineError: it cannot.
    """
    if not LEAST_SPEEDUP <= value <= LARGEST_SPEEDUP:
        limits = f"give {LEAST_SPEEDUP:g} to {LARGEST_SPEEDUP:g}"
        raise CommandLineError("--kernel-speedup", f"{value:g} is no speedup of a kernel", limits)
    return value


def read_assumptions(file: Section) -> dict[str, Any]:
    """Return the value of each setting that holds where no flag gives another.

    Raises:
        ConfigurationError: a key is missing or unknown, or a number is unusable or has no source.
    """
    limits = file.section("thresholds")
    found: dict[str, Any] = {name: limits.constant(name, positive=False).likely for name in THRESHOLDS}
    found["launch_per"] = file.choice("launch_per", LAUNCH_PER)
    found["effort"] = file.number("effort")
    if found["effort"] <= 0:
        raise file.error("effort", f"is {found['effort']:g}, which is no search time", "give a positive number")
    file.close()
    return found

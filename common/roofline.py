"""The roofline model: how fast an operator of a given intensity could run on a host with two ceilings.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures",
CACM 52(4), 2009. Intensity here is FLOPs over compulsory bytes from shapes (arithmetic intensity), not over measured
DRAM traffic (operational intensity).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from common.errors import UpstreamError

Bound = Literal["compute", "memory"]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The two roofs of a machine."""

    peak_flop_per_s: float
    memory_bytes_per_s: float

    @property
    def ridge_flop_per_byte(self) -> float:
        """The intensity at which both roofs meet."""
        return self.peak_flop_per_s / self.memory_bytes_per_s


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator lies; None is unknown, or has no meaning for an operator without FLOPs or bytes."""

    arithmetic_intensity_flop_per_byte: float | None
    attained_flop_per_s: float | None
    attained_bytes_per_s: float | None
    attainable_flop_per_s: float | None
    roof_share: float | None
    bound: Bound | None


def attainable_flop_per_s(ceilings: Ceilings, intensity_flop_per_byte: float) -> float:
    """``min(peak, bandwidth · intensity)`` (Williams et al. 2009, p. 67)."""
    return min(ceilings.peak_flop_per_s, ceilings.memory_bytes_per_s * intensity_flop_per_byte)


def place(ceilings: Ceilings, flops: int | None, moved_bytes: int | None, latency_us: float) -> Place:
    """Put an operator under the roof.

    One without FLOPs is bound by memory, and its share of the roof is that of the bandwidth. A share above 1 is kept:
    the operands came from a cache. A latency of zero (below the profiler's own cost) gives no rate.
    """
    seconds = latency_us * 1e-6
    attained_flops = flops / seconds if flops is not None and seconds > 0 else None
    attained_bytes = moved_bytes / seconds if moved_bytes is not None and seconds > 0 else None
    if flops is None or moved_bytes is None or not (flops or moved_bytes):
        return Place(None, attained_flops, attained_bytes, None, None, None)
    intensity = flops / moved_bytes if moved_bytes else math.inf
    attainable = attainable_flop_per_s(ceilings, intensity)
    bound: Bound = "compute" if intensity >= ceilings.ridge_flop_per_byte else "memory"
    share = None
    if attained_flops is not None and attained_bytes is not None:
        share = attained_flops / attainable if flops else attained_bytes / ceilings.memory_bytes_per_s
    known = intensity if math.isfinite(intensity) else None
    return Place(known, attained_flops, attained_bytes, attainable, share, bound)


def require_same_host(path: object, measured: Mapping[str, Any], threads: int, cpu_model: str) -> None:
    """Refuse ceilings that were measured at another thread count or on another processor than the profile.

    Raises:
        UpstreamError: naming both, and the command that measures the right ones.
    """
    profile = {"threads": threads, "cpu_model": cpu_model}
    for key, wanted in profile.items():
        if measured[key] != wanted:
            problem = f"measured with {key} {measured[key]}, the profile with {wanted}"
            remedy = f"run 00_host_ceilings.py --threads {threads} on the profiled host, or give both ceilings"
            raise UpstreamError(path, problem, remedy)

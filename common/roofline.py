"""The roofline model: how fast an operator of a given intensity can run on a host with a peak and a bandwidth.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures",
CACM 52(4), 2009. Intensity here is FLOPs over compulsory bytes from shapes (arithmetic intensity), not over measured
DRAM traffic (operational intensity). A host has a peak for each number format that it computes in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from common.graphs.number_formats import FP32, HALF_FORMATS, INT8, MEASURED_PEAKS
from common.graphs.operators import INT8_OPERATORS
from common.messages.errors import UpstreamError
from common.table_rows import HostCeilingsDocument, OpRooflineRow

Bound = Literal["compute", "memory"]
GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The two roofs of a machine: peak and memory bandwidth; each was measured too low by at most a share of itself."""

    peak_flop_per_s: float
    memory_bytes_per_s: float
    shortfall_share: float = 0.0

    @property
    def ridge_flop_per_byte(self) -> float:
        """The intensity at which both roofs meet."""
        return self.peak_flop_per_s / self.memory_bytes_per_s

    def bound(self, intensity_flop_per_byte: float) -> Bound | None:
        """Return the roof that bounds an intensity; None where it is nearer to the ridge than the ridge is known."""
        least = 1 - self.shortfall_share
        if intensity_flop_per_byte * least >= self.ridge_flop_per_byte:
            return "compute"
        return "memory" if intensity_flop_per_byte < self.ridge_flop_per_byte * least else None


def number_format(op_type: str, dtype: str) -> str:
    """Return the number format in which an operator multiplies, from its type and the element type of its output."""
    return INT8 if op_type in INT8_OPERATORS else HALF_FORMATS.get(dtype, FP32)


@dataclass(frozen=True, slots=True)
class Roofs:
    """Bandwidth of a machine, and its peak in each number format, or one given peak for all formats."""

    memory_bytes_per_s: float
    peaks_flop_per_s: Mapping[str, float]
    is_stable: bool = True  # whether the parts of their measurement agree; if not, no shares of the roofs are stated
    # Whether they are roofs of the device that the profile is about; other roofs judge no node
    is_of_profile: bool = True
    last_level_cache_bytes: float = math.inf  # infinite if it is unknown
    # By which each may be too low where they are not stable: the largest difference of the parts
    shortfall_share: float = 0.0

    def roof(self, op_type: str, dtype: str) -> str:
        """Return the name of the peak for an operator: that of its format, or fp32 if its format has no peak."""
        if GIVEN in self.peaks_flop_per_s:
            return GIVEN
        name = number_format(op_type, dtype)
        return name if name in self.peaks_flop_per_s else FP32

    def under(self, roof: str) -> Ceilings:
        return Ceilings(self.peaks_flop_per_s[roof], self.memory_bytes_per_s, self.shortfall_share)


def given_roofs(peak_flop_per_s: float, memory_bytes_per_s: float) -> Roofs:
    return Roofs(memory_bytes_per_s, {GIVEN: peak_flop_per_s})


def roofs_of(measured: HostCeilingsDocument, peak_flop_per_s: float | None, memory_bytes_per_s: float | None) -> Roofs:
    """Return the roofs of a host: given figures, and measured figures in place of those that are not given."""
    figures: Mapping[str, object] = measured  # the names of the peaks are data
    peaks = {name: figures[key] for name, key in MEASURED_PEAKS.items()}
    known = {name: float(peak) for name, peak in peaks.items() if isinstance(peak, int | float)}
    differences = [0.0]
    if not measured["stable"]:
        of_int8 = measured["int8_halves_difference_share"] or 0.0
        differences += [measured["peak_halves_difference_share"], of_int8]
        differences += [measured["memory_halves_difference_share"], measured["lost_to_threads_share"]]
    return Roofs(
        memory_bytes_per_s or measured["memory_bytes_per_s"],
        {GIVEN: peak_flop_per_s} if peak_flop_per_s else known,
        is_stable=measured["stable"],
        last_level_cache_bytes=measured["last_level_cache_bytes"] or math.inf,
        shortfall_share=max(differences),
    )


def missing_peak_notes(roofs: Roofs, nodes: Iterable[OpRooflineRow]) -> list[str]:
    """Return a note for each format that nodes multiply in and that has no peak."""
    judged = [row for row in nodes if row["macs"] and row["roof"] == FP32]
    formats = [number_format(row["op_type"], row["dtype"]) for row in judged]
    return [
        f"no {name} ceiling was measured: {formats.count(name)} nodes are judged by the fp32 roof; "
        "rerun <host_ceilings>, or give <peak_flops>"
        for name in dict.fromkeys(formats)
        if name not in roofs.peaks_flop_per_s
    ]


@dataclass(frozen=True, slots=True)
class Place:
    """Position of an operator under the roof. None is unknown, or has no meaning without FLOPs or bytes."""

    arithmetic_intensity_flop_per_byte: float | None
    attained_flop_per_s: float | None
    attained_bytes_per_s: float | None
    attainable_flop_per_s: float | None
    roof_share: float | None
    bound: Bound | None


def attainable_flop_per_s(ceilings: Ceilings, intensity_flop_per_byte: float) -> float:
    """Return ``min(peak, bandwidth · intensity)`` (Williams et al. 2009, p. 67)."""
    return min(ceilings.peak_flop_per_s, ceilings.memory_bytes_per_s * intensity_flop_per_byte)


def place(ceilings: Ceilings, flops: int | None, moved_bytes: int | None, latency_us: float) -> Place:
    """Place an operator under the roof.

    An operator without FLOPs is bound by memory, and its share of the roof is its share of the bandwidth. A share above
    1 is kept (:mod:`common.attribution.share_reasons` finds its reason). A latency of zero (below the profiler's own
    cost) gives no rate.
    """
    seconds = latency_us * 1e-6
    attained_flops = flops / seconds if flops is not None and seconds > 0 else None
    attained_bytes = moved_bytes / seconds if moved_bytes is not None and seconds > 0 else None
    if flops is None or moved_bytes is None or not (flops or moved_bytes):
        return Place(None, attained_flops, attained_bytes, None, None, None)
    intensity = flops / moved_bytes if moved_bytes else math.inf
    attainable = attainable_flop_per_s(ceilings, intensity)
    share = None
    if attained_flops is not None and attained_bytes is not None:
        share = attained_flops / attainable if flops else attained_bytes / ceilings.memory_bytes_per_s
    known = intensity if math.isfinite(intensity) else None
    return Place(known, attained_flops, attained_bytes, attainable, share, ceilings.bound(intensity))


def require_same_host(path: object, measured: HostCeilingsDocument, threads: int, cpu_model: str) -> None:
    """Refuse ceilings that were measured at another thread count or on another processor than the profile."""
    compared = (("threads", measured["threads"], threads), ("cpu_model", measured["cpu_model"], cpu_model))
    for name, of_ceilings, of_profile in compared:
        if of_ceilings != of_profile:
            problem = f"measured with {name} {of_ceilings}, the profile with {of_profile}"
            remedy = (
                f"rerun <host_ceilings> with {threads} threads on the profiled host, or give <peak_flops> and <mem_bw>"
            )
            raise UpstreamError(path, problem, remedy)

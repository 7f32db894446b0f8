"""Inputs of the speedup: one run on the host, one inference under the plan, and its work on the card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.fpga.offload.schedule import Schedule
from common.intervals import ThreePoint, combine

HOST, TO_CARD, TO_HOST = "host", "h2d", "d2h"
NOT_ENGINES = (HOST, TO_CARD, TO_HOST)  # resources that are not engines on the card
BUFFER_ACCESSES = 2  # a byte from the card's memory is written to a buffer once and read from it once


@dataclass(frozen=True, slots=True)
class HostRun:
    """One inference on the host alone, and the part of it that the plan moves; a short inference is pessimistic.

    The part that stays on the host is the same before and after, so it has the same case on both sides. A plan that
    moves nothing changes nothing in any case.
    """

    latency_us: ThreePoint  # of the whole inference, the gap between nodes included
    energy_uj: ThreePoint | None  # of the whole inference; None is unknown
    static_power_w: float | None  # power of the host while it waits, in the likely case; None is unknown
    offloaded_us: ThreePoint  # host time of the part that moves
    offloaded_uj: float | None  # host energy of the part that moves, in the likely case; None is unknown

    @property
    def rest_us(self) -> ThreePoint:
        return combine(lambda whole, moved: whole - moved, self.latency_us, self.offloaded_us)

    @property
    def waiting_w(self) -> ThreePoint | None:
        """Return the power of the host while it waits: as uncertain as its power at work."""
        if self.energy_uj is None or self.static_power_w is None:
            return None
        watts = combine(lambda uj, us: uj / us, self.energy_uj, self.latency_us)
        static_w = self.static_power_w
        return combine(lambda w: static_w * w / watts.likely, watts)

    @property
    def moved_uj(self) -> ThreePoint | None:
        """Return the energy of the part that moves: its power is as uncertain as the run's, and its time its own."""
        if self.energy_uj is None or self.offloaded_uj is None:
            return None
        if not self.offloaded_us.likely:
            return ThreePoint.exactly(0.0)
        watts = combine(lambda uj, us: uj / us, self.energy_uj, self.latency_us)
        uj_per_us = self.offloaded_uj / self.offloaded_us.likely / watts.likely
        return combine(lambda w, us, whole: min(uj_per_us * w * us, whole), watts, self.offloaded_us, self.energy_uj)


@dataclass(frozen=True, slots=True)
class CaseTotals:
    """One inference under the plan in one case: sums over its calls and transfers, and its finish."""

    kernel_us: float  # of all kernels, without launches
    transfer_us: float  # over the link, both directions
    conversion_us: float  # between the number formats of model and kernels
    launch_us: float
    finish_us: float  # end of the schedule, in which host, link and engines overlap where data allow
    busy_us: Mapping[str, float]  # by resource: ``host``, ``h2d``, ``d2h``, and each engine by name with its launches
    launch_count: int
    # Finish of the same assignment with free launches; None if not computed
    finish_without_launch_us: float | None = None

    def overlap_us(self, rest_us: float) -> float:
        """Return the time hidden by overlap: the sum of all parts, with what stays on the host, less the finish."""
        parts = self.kernel_us + self.transfer_us + self.conversion_us + self.launch_us
        return rest_us + parts - self.finish_us

    def without_launch_us(self, rest_us: float) -> float:
        """Return the finish with free launches.

        If it was not computed, overlap is assumed to hide launches before anything else: the part that is not hidden is
        the least that free launches can save.
        """
        if self.finish_without_launch_us is not None:
            return self.finish_without_launch_us
        return self.finish_us - max(self.launch_us - max(self.overlap_us(rest_us), 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class CardWork:
    """Work on the card: of one kernel, or of one inference."""

    flops: Mapping[str, int]  # floating-point or integer operations by number format, two per MAC
    memory_bytes: int  # between the chip and the card's memory
    link_bytes: int = 0  # between host and card
    weight_bytes: int = 0  # loaded into the card's memory once, before the first inference
    # Through buffers on the chip; None means one write and one read of every byte from memory
    on_chip_bytes: int | None = None

    @property
    def buffered_bytes(self) -> int:
        return BUFFER_ACCESSES * self.memory_bytes if self.on_chip_bytes is None else self.on_chip_bytes


def added(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the sum of counts by name."""
    sums: dict[str, int] = {}
    for name, number in counts:
        sums[name] = sums.get(name, 0) + number
    return sums


def case_totals(schedule: Schedule, finish_without_launch_us: float | None = None) -> CaseTotals:
    """Return the sums of a schedule; the other finish is that of the same assignment with free launches, if known."""
    sums, finish_us = schedule.totals, schedule.finish_us
    busy_us = {HOST: sums.host_us, TO_CARD: sums.h2d_us, TO_HOST: sums.d2h_us, **sums.engine_us}
    parts_us = sums.kernel_us, sums.h2d_us + sums.d2h_us, sums.convert_us, sums.launch_us
    return CaseTotals(*parts_us, finish_us, busy_us, sums.launch_count, finish_without_launch_us)

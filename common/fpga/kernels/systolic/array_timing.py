"""Time and clock of a systolic array beyond the cycles of its folds, with figures from published designs.

*Time.* An array waits for instructions and for short bursts, which no equation of its folds shows. Three figures carry
that: the share of cycles in which the elements have operands, the share of the ports' rate that tiles attain, and the
cycles of a call. What an array *serves* decides the rest: an array that was tuned for one product attains more of its
peak than one that computes the layers of a network.

*Clock*, of arrays and of other kernels. Each border between regions that a design crosses costs a part of its clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from common.files.configuration import Section
from common.intervals import ThreePoint

Serves = Literal["product", "network"]
SERVES: tuple[Serves, ...] = ("product", "network")


@dataclass(frozen=True, slots=True)
class ArrayTiming:
    """Time of published arrays beyond the cycles of their equations."""

    array_share: float  # share of the cycles in which the elements have operands
    port_share: float  # share of the ports' rate that tiles attain, whose bursts are short
    call_cycles: float  # cycles to fetch a call's instructions and to synchronize its end

    @property
    def stall_share(self) -> float:
        return 1 / self.port_share - 1


@dataclass(frozen=True, slots=True)
class ClockClosure:
    """Shares of the board's clock at which designs close."""

    dense_lut_share: float  # share of the LUTs of its regions from which a design counts as dense
    one_region: Mapping[bool, ThreePoint]  # of designs in one region, by whether they are dense
    crossing_share: float  # share of the clock that each border between regions leaves
    several_regions: ThreePoint  # lowest and highest share of designs over several regions

    def share(self, lut_share: float, regions: int = 1) -> ThreePoint:
        """Return the share of the board's clock for a design that takes a share of the LUTs of its regions."""
        if regions == 1:
            return self.one_region[lut_share >= self.dense_lut_share]
        likely = self.crossing_share ** (regions - 1)
        slowest, fastest = self.several_regions.pessimistic, self.several_regions.optimistic
        return ThreePoint(min(slowest, likely), likely, max(fastest, likely))


def read_timing(section: Section) -> ArrayTiming:
    names = ("array_fraction", "port_fraction", "call_cycles")
    return ArrayTiming(*(section.constant(name).likely for name in names))


def read_closure(section: Section) -> ClockClosure:
    one = section.section("one_region")
    return ClockClosure(
        section.constant("dense_lut_fraction").likely,
        {is_dense: one.constant("dense" if is_dense else "sparse").as_rate() for is_dense in (False, True)},
        section.constant("crossing_fraction").likely,
        section.constant("several_regions").as_rate(),
    )

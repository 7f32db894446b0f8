"""What published arrays take beyond the equations of an array, and the clocks at which published designs close.

*Time.* An array that serves a network waits for instructions and for short bursts, which no equation of its folds
shows. Three figures carry that: the share of cycles in which the elements have operands, the share of the ports' rate
that tiles attain, and the cycles of a call. The band holds the remaining differences between designs.

*Clock*, of arrays and of other kernels. A design that spans regions closes at the board's clock only with a floorplan
(Guo et al., AutoBridge, FPGA 2021). The likely clock is that of floorplanned designs, the pessimistic one that of the
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.configuration import Section
from common.intervals import ThreePoint

ONE_REGION, SEVERAL_REGIONS = "one_region", "several_regions"


@dataclass(frozen=True, slots=True)
class ArrayTiming:
    """What published arrays take beyond the cycles of their equations.

    Attributes:
        array_share: share of the cycles in which the elements have operands.
        port_share: share of the ports' rate that tiles attain, whose bursts are short.
        call_cycles: cycles to fetch a call's instructions and to synchronize its end.
        band: factors of the likely time between which designs are measured.
    """

    array_share: float
    port_share: float
    call_cycles: float
    band: ThreePoint

    @property
    def stall_share(self) -> float:
        return 1 / self.port_share - 1


@dataclass(frozen=True, slots=True)
class ClockClosure:
    """Shares of the board's clock at which designs close.

    Attributes:
        dense_lut_share: share of the LUTs of its regions from which a design counts as dense.
        shares: by the number of regions, for sparse and for dense designs.
    """

    dense_lut_share: float
    shares: Mapping[tuple[str, bool], ThreePoint]

    def share(self, lut_share: float, *, spans_regions: bool) -> ThreePoint:
        """Return the share of the board's clock for a design that takes a share of the LUTs of its regions."""
        return self.shares[SEVERAL_REGIONS if spans_regions else ONE_REGION, lut_share >= self.dense_lut_share]


def read_timing(section: Section) -> ArrayTiming:
    return ArrayTiming(
        section.constant("array_fraction").likely,
        section.constant("port_fraction").likely,
        section.constant("call_cycles").likely,
        section.constant("time_factor").as_cost(),
    )


def read_closure(section: Section) -> ClockClosure:
    dense = section.constant("dense_lut_fraction").likely
    regions = {name: section.section(name) for name in (ONE_REGION, SEVERAL_REGIONS)}
    return ClockClosure(
        dense,
        {
            (name, is_dense): below.constant("dense" if is_dense else "sparse").as_rate()
            for name, below in regions.items()
            for is_dense in (False, True)
        },
    )

"""How measured times of a kernel scatter around the model's likely time, for whoever draws from it.

With x = ln(measured / likely time):

    x = family + design - clock

*family* is common to all kernels of one kind in a plan: they come from the same hands. It is Student's t with one
degree of freedom less than there are published families, times ``family_sd``. *design* differs from kernel to kernel
and is normal. *clock* is the logarithm of the clock reached over the likely clock; it is common to all engines at one
clock. Its halves are half-normal, because a design rarely closes above the clock asked for. The three are independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.kernels.team import Team
from common.intervals import ThreePoint

NORMAL_95 = 1.6449  # 95th percentile of the standard normal distribution: the intervals hold 90 %
MANY_FAMILIES = 100  # from which Student's t is as good as normal


@dataclass(frozen=True, slots=True)
class TimeResidual:
    """Distribution of ln(measured / likely time) of one engine's calls.

    Attributes:
        kind: kernel model; engines of one kind share the draw of their family.
        family_sd: standard deviation between families of designs; scale of Student's t.
        design_sd: standard deviation between the designs of one family, and between what they compute.
        family_count: published families; Student's t has one degree of freedom less.
        clock_slow_sd: of ln(clock / likely clock) below the likely clock; a half-normal.
        clock_fast_sd: the same above it; 0 where the likely clock is the highest.
    """

    kind: str
    family_sd: float
    design_sd: float
    family_count: int
    clock_slow_sd: float
    clock_fast_sd: float


def time_residual(engine: Engine) -> TimeResidual:
    """Return how measured times of an engine scatter; the engine knows its number format, board and clock."""
    clock = engine.clock_cases_mhz
    family_sd = _spread(_band(engine))
    slow, fast = log(clock.likely / clock.pessimistic), log(clock.optimistic / clock.likely)
    return TimeResidual(engine.kind, family_sd, 0.0, MANY_FAMILIES, slow / NORMAL_95, fast / NORMAL_95)


def _band(engine: Engine) -> ThreePoint:
    """Return the factors of a time, or of a share of the peak, between which 90 % of designs are measured."""
    if isinstance(engine, Team):
        return _band(engine.member)
    if isinstance(engine, SystolicArray):
        return engine.timing.band
    if isinstance(engine, OverlayEngine):
        return engine.config.band
    if isinstance(engine, AttentionEngine | StreamingGemv):
        return engine.efficiency
    if isinstance(engine, RowwiseEngine):
        return engine.efficiency.reduction
    raise TypeError(f"{engine.name} has no interval")


def _spread(band: ThreePoint) -> float:
    return abs(log(band.pessimistic / band.optimistic)) / (2 * NORMAL_95)

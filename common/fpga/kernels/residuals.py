"""How measured times of a kernel scatter around the model's likely time, besides the clock.

With x = ln(measured / likely time) at the same clock, x = family + design. *family* is common to all kernels of one
kind in a plan: they come from the same hands. *design* differs from engine to engine. Both are independent, and
:mod:`common.fpga.speedup.draws` divides the variance of an interval between them in proportion to their squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import Engine, TimeScatter
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.kernels.team import Team
from common.intervals import END_Z, ThreePoint

MANY_FAMILIES = 100  # from which Student's t is as good as normal


@dataclass(frozen=True, slots=True)
class TimeResidual:
    """Distribution of ln(measured / likely time) of one engine's calls."""

    kind: str  # kernel model; engines of one kind share the draw of their family
    family_sd: float  # standard deviation between families of designs
    design_sd: float  # standard deviation between the designs of one family, and between what they compute


def time_residual(engine: Engine) -> TimeResidual:
    """Return how measured times of an engine scatter; the engine knows its number format and board."""
    scatter = _scatter(engine)
    return TimeResidual(engine.kind, scatter.family_sd, scatter.design_sd)


def _scatter(engine: Engine) -> TimeScatter:
    if isinstance(engine, Team):
        return engine.member.scatter if isinstance(engine.member, SystolicArray) else _of_shares(engine.member)
    if isinstance(engine, SystolicArray):
        return engine.scatter
    if isinstance(engine, OverlayEngine):
        return engine.config.scatter
    return _of_shares(engine)


def _of_shares(engine: Engine) -> TimeScatter:
    """Return the scatter that the lowest and the highest published share of a peak imply, one kernel a family."""
    if isinstance(engine, AttentionEngine | StreamingGemv):
        share = engine.efficiency
    elif isinstance(engine, RowwiseEngine):
        share = engine.efficiency.reduction
    else:
        raise TypeError(f"{engine.name} has no published shares")
    band = ThreePoint(share.optimistic / share.pessimistic, 1.0, 1.0)
    return TimeScatter(band, log(band.pessimistic) / (2 * END_Z), 0.0, MANY_FAMILIES)

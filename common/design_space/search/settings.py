"""How the best schedule of a model is searched."""

from __future__ import annotations

from dataclasses import dataclass

EXACT = "exact"  # proposes nothing: it goes through the whole space
FA_DOSA = "fa-dosa"  # likewise: it descends a model of its own, for accelerators with one buffer
TILED, ONCE = "tiled", "once"
ACCOUNTINGS = (TILED, ONCE)
ANALYTIC, RTL = "analytic", "rtl"
CYCLE_MODELS = (ANALYTIC, RTL)


@dataclass(frozen=True, slots=True)
class Search:
    """How the best schedule is searched."""

    engine: str = EXACT  # by its name in :mod:`common.design_space.search.engines.registry`
    evaluations: int = 10_000  # schedules whose cost an engine may compute; ``exact`` takes as many as there are
    seed: int = 0  # of all that the engine draws
    most_layers: int = 6
    # ``tiled`` (capacity, repeated reads, halos), or ``once`` (each tensor once for each kernel)
    accounting: str = TILED
    weights_stay: bool = False  # whether weights may stay on the chip from one inference to the next

"""Mixtures of layers in the format and in float: the most work in the format under a bound on the noise.

The errors of layers are small and taken as independent, so their noise powers add up at the output (Lin, Talathi and
Annapureddy, ICML 2016, arXiv:1511.06393, equation 5; Zhou et al., AAAI 2018, arXiv:1712.01048). The choice of layers
under a bound is then a knapsack problem, which HiGHS solves exactly. The sum is only a model, so each mixture also runs
on the samples. Those that calibrate choose the mixture: on the samples that judge, the best of several would be better
by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.precision.conversion.schemes import Scheme
from common.precision.judgement.evaluation import Bounds, OutputJudgement
from common.precision.judgement.measures import noise_share, ratio_db
from common.precision.study import LayerJudgement, Study

MIXTURES = 8
GAIN_SCALE = 1e6  # HiGHS stops within 1e-6 of the optimum (its option mip_abs_gap)


@dataclass(frozen=True, slots=True)
class MovableLayer:
    """A layer that may be in the format: its MACs, and the noise share of the output if it alone is in the format."""

    node: str
    macs: int
    noise: float


@dataclass(frozen=True, slots=True)
class Mixture:
    """Layers in the format, what the sum of their noise predicts, and what a run on the samples found."""

    nodes: tuple[str, ...]
    macs_share: float  # MACs of ``nodes`` over those of all contractions
    predicted_db: float  # signal-to-noise ratio if the noise of the layers adds up, on the samples that choose
    judgement: OutputJudgement
    choosing: OutputJudgement  # the judgement on the samples that choose
    target: Path


def movable(layers: Sequence[LayerJudgement], macs: Mapping[str, int | None]) -> list[MovableLayer]:
    """Return the layers whose noise is known; the other layers stay in float."""
    return [
        MovableLayer(layer.node, macs.get(layer.node) or 0, noise_share(ratio))
        for layer in layers
        if layer.choosing is not None and (ratio := layer.choosing.sqnr_db) is not None
    ]


def most_work(layers: Sequence[MovableLayer], noise: float) -> tuple[str, ...]:
    """Return the set of layers with the most MACs whose noise adds up to at most a bound (the exact optimum)."""
    from scipy.optimize import Bounds as Box
    from scipy.optimize import LinearConstraint, milp

    scale = max(noise, 1e-300)
    weights = np.array([[layer.noise / scale for layer in layers]])
    gains = np.array([float(layer.macs + 1) for layer in layers])  # a layer without MACs moves, too, if it can
    found = milp(
        -gains * (GAIN_SCALE / gains.sum()),
        integrality=1,
        bounds=Box(0, 1),
        constraints=LinearConstraint(weights, ub=1.0),
        options={"mip_rel_gap": 0.0},
    )
    return tuple(layer.node for layer, is_in in zip(layers, np.rint(found.x), strict=True) if is_in)


def mixtures(
    study: Study, scheme: Scheme, layers: Sequence[MovableLayer], work: int, progress: Callable[[float, float], None]
) -> list[Mixture]:
    """Return the best mixtures under bounds from the least noise of a layer to that of all layers; a run judges each.

    ``work`` is the MACs of all contractions.
    """
    noises = [layer.noise for layer in layers]
    total = sum(noises)
    limits = np.geomspace(max(min(noises), total * 1e-6), total * (1 + 1e-9), MIXTURES) if total else np.zeros(1)
    sets = dict.fromkeys(most_work(layers, float(limit)) for limit in limits)
    found = []
    for place, nodes in enumerate(nodes for nodes in sets if nodes):
        target = study.folder / f"mixture-{place}.onnx"
        judgement = study.convert_and_judge(scheme, nodes, target)[study.known.main]
        choosing = study.judge_on(study.choosing, scheme, target)[study.known.main]
        moved = [layer for layer in layers if layer.node in nodes]
        predicted = ratio_db(1.0, sum(layer.noise for layer in moved))
        share = sum(layer.macs for layer in moved) / work if work else 0.0
        found.append(Mixture(nodes, share, predicted or 0.0, judgement, choosing, target))
        progress(place + 1, len(sets))
    return found


def chosen(found: Sequence[Mixture], bounds: Bounds) -> Mixture | None:
    """Return the mixture with the most work in the format of those within the bounds on the samples that choose."""
    kept = (mixture for mixture in found if bounds.are_met(mixture.choosing))
    return max(kept, key=lambda mixture: mixture.macs_share, default=None)

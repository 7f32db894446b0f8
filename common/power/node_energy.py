"""What one run of a node costs by the model: its arithmetic, and its bytes at the memory level they come from.

Compulsory bytes say how much crosses a node's border, not how far it travels. The level is chosen as a cache with
least-recently-used replacement would (Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems
Journal, 1970: a reuse hits where the bytes touched since the last use fit):

* activations were written by a node shortly before: they come from the last-level cache where all bytes of the node fit
  into it, else from DRAM;
* a weight is read once per run, so a whole run lies between two uses: it comes from the cache only where all bytes of
  the model fit;
* a memory-bound node above the roof moved its bytes faster than DRAM can: all of them came from the cache.

The lower bound has every byte in the cache, the upper bound every byte in DRAM.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.power.energy_model import Bound, EnergyModel
from common.sums import total

UJ_PER_PJ = 1e-6
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodeWork:
    """One executed node, or the gap between nodes, in one run; what is unknown is None.

    ``activation_bytes`` are those of inputs and outputs. ``is_cache_resident``: memory-bound and above the roof.
    ``roof`` names the peak that judges it.
    """

    latency_us: float
    dtype: str = ""
    flops: float | None = None
    weight_bytes: float | None = None
    activation_bytes: float | None = None
    is_cache_resident: bool = False
    is_gap: bool = False
    roof: str = ""

    @property
    def bytes(self) -> float | None:
        """All compulsory bytes."""
        if self.weight_bytes is None or self.activation_bytes is None:
            return None
        return self.weight_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True)
class DynamicEnergy:
    """Modelled energy of each node's work in µJ, NaN where its work is unknown."""

    compute_uj: Vector
    movement_uj: Vector

    @property
    def total_uj(self) -> float:
        """Of all nodes."""
        return float(self.compute_uj.sum() + self.movement_uj.sum())


def dynamic_energy(
    works: Sequence[NodeWork],
    model: EnergyModel,
    cache_bytes: float | None,
    compute: Bound = "value",
    movement: Bound = "value",
) -> DynamicEnergy:
    """Energy of arithmetic and of movement of every node, at the given ends of the coefficients' intervals.

    Args:
        works: every executed node, and the gap.
        model: the coefficients.
        cache_bytes: size of the last-level cache; None, and every byte is taken from DRAM.
        compute: which end of pJ per FLOP.
        movement: which end of pJ per byte, and of the memory level.
    """
    run_bytes = total_work(works, "bytes")
    in_cache = run_bytes is not None and run_bytes <= (cache_bytes or 0)
    return DynamicEnergy(
        np.array([_compute_uj(work, model, compute) for work in works], dtype=float),
        np.array([_movement_uj(work, model, cache_bytes or 0, in_cache, movement) for work in works], dtype=float),
    )


def total_work(works: Sequence[NodeWork], of: Literal["flops", "bytes"]) -> float | None:
    """FLOPs or compulsory bytes of one run; unknown as soon as those of one node are."""
    amount: float | None = total(getattr(work, of) for work in works if not work.is_gap)
    return None if amount is None else float(amount)


def compute_roof_us(works: Sequence[NodeWork], peaks_flop_per_s: Mapping[str, float]) -> float | None:
    """How long all FLOPs of one run take at the peaks that judge them; unknown as soon as one of these is."""
    done = [work for work in works if not work.is_gap and work.flops != 0]
    if any(work.flops is None or work.roof not in peaks_flop_per_s for work in done):
        return None
    return 1e6 * math.fsum((work.flops or 0.0) / peaks_flop_per_s[work.roof] for work in done)


def _compute_uj(work: NodeWork, model: EnergyModel, bound: Bound) -> float:
    if work.is_gap or work.flops == 0:
        return 0.0
    if work.flops is None or work.dtype not in model.compute_pj_per_flop:
        return np.nan
    return UJ_PER_PJ * work.flops * model.compute_pj_per_flop[work.dtype].at(bound)


def _movement_uj(work: NodeWork, model: EnergyModel, cache_bytes: float, model_fits: bool, bound: Bound) -> float:
    if work.is_gap:
        return 0.0
    if work.weight_bytes is None or work.activation_bytes is None:
        return np.nan
    node_fits = work.is_cache_resident or work.weight_bytes + work.activation_bytes <= cache_bytes
    weights_at = _level(work.is_cache_resident or model_fits, bound)
    activations_at = _level(node_fits, bound)
    figures = model.movement_pj_per_byte
    return UJ_PER_PJ * (
        work.weight_bytes * figures[weights_at].at(bound) + work.activation_bytes * figures[activations_at].at(bound)
    )


def _level(fits: bool, bound: Bound) -> str:
    at_cache = fits if bound == "value" else bound == "low"
    return "last_level_cache" if at_cache else "dram"


def fill_unknown(dynamic: DynamicEnergy, works: Sequence[NodeWork]) -> DynamicEnergy:
    """Give nodes of unknown work the mean power of the others over their own time, so that the sum is of the whole run.

    Where the others are not known to do any such work, the unknown stays NaN.
    """
    latency_us = np.array([0.0 if work.is_gap else max(work.latency_us, 0.0) for work in works])
    return DynamicEnergy(_filled(dynamic.compute_uj, latency_us), _filled(dynamic.movement_uj, latency_us))


def _filled(energy_uj: Vector, latency_us: Vector) -> Vector:
    unknown = np.isnan(energy_uj)
    known_uj, known_us = energy_uj[~unknown].sum(), latency_us[~unknown].sum()
    if not unknown.any() or not known_uj * known_us > 0:
        return energy_uj
    return np.where(unknown, known_uj / known_us * latency_us, energy_uj)

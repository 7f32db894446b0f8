"""Modelled energy of a node in one run: its arithmetic, and its bytes at the memory level that serves them.

Compulsory bytes say how much data crosses a node's border, not how far the data travels. The memory level follows
from the reuse distance under least-recently-used replacement (Mattson et al., "Evaluation techniques for storage
hierarchies", IBM Systems Journal, 1970): a reuse hits the cache if the bytes touched since the last use fit into it.

* Activations were written by a node shortly before. They come from the last-level cache if all bytes of the node fit
  into it, else from DRAM.
* A weight is read once per run, so two uses are a whole run apart. It comes from the cache only if all bytes of the
  model fit.
* A memory-bound node above the roof moved its bytes faster than DRAM can. All of them came from the cache.

At the low end every byte comes from the cache, at the high end every byte comes from DRAM. A byte from DRAM passes the
cache, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.files.configuration import IntervalPoint
from common.graphs.sums import total
from common.power.energy_model import MEMORY_LEVELS, EnergyModel

UJ_PER_PJ = 1e-6
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Work of one executed node, or of the gap between nodes, in one run; unknown amounts are None."""

    latency_us: float
    dtype: str = ""
    flops: float | None = None
    weight_bytes: float | None = None
    activation_bytes: float | None = None  # of inputs and outputs
    is_cache_resident: bool = False  # whether it is memory-bound and above the roof
    is_gap: bool = False
    roof: str = ""  # the peak that bounds its arithmetic

    @property
    def bytes(self) -> float | None:
        """Compulsory bytes: weights, inputs and outputs."""
        if self.weight_bytes is None or self.activation_bytes is None:
            return None
        return self.weight_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True)
class DynamicEnergy:
    """Modelled energy of each node's work in µJ; NaN where the work is unknown."""

    compute_uj: Vector
    movement_uj: Vector

    @property
    def total_uj(self) -> float:
        return float(self.compute_uj.sum() + self.movement_uj.sum())


def dynamic_energy(
    works: Sequence[NodeWork],
    model: EnergyModel,
    cache_bytes: float | None,
    compute: IntervalPoint = "likely",
    movement: IntervalPoint = "likely",
) -> DynamicEnergy:
    """Return the energy of every node's arithmetic and data movement, at points of the intervals of both coefficients.

    The ends of that of movement also decide the memory level. Without a cache, every byte comes from DRAM.
    """
    moved = np.array([0.0 if work.is_gap else work.bytes for work in works], dtype=float)  # None becomes NaN
    cache, dram = (model.movement_pj_per_byte[level].at(movement) for level in MEMORY_LEVELS)
    return DynamicEnergy(
        np.array([_compute_uj(work, model, compute) for work in works], dtype=float),
        UJ_PER_PJ * (cache * moved + dram * dram_bytes(works, cache_bytes, movement)),
    )


def dram_bytes(works: Sequence[NodeWork], cache_bytes: float | None, point: IntervalPoint = "likely") -> Vector:
    """Return the bytes of each node that DRAM serves; NaN where they are unknown, all if the cache is."""
    run_bytes, cache = total_bytes(works), cache_bytes or 0
    fits = run_bytes is not None and run_bytes <= cache
    return np.array([_dram_bytes(work, cache, point, model_fits=fits) for work in works], dtype=float)


def total_flops(works: Sequence[NodeWork]) -> float | None:
    """Return the FLOPs of one run; None if those of a node are unknown."""
    return total(work.flops for work in works if not work.is_gap)


def total_bytes(works: Sequence[NodeWork]) -> float | None:
    """Return the compulsory bytes of one run; None if those of a node are unknown."""
    return total(work.bytes for work in works if not work.is_gap)


def compute_roof_us(works: Sequence[NodeWork], peaks_flop_per_s: Mapping[str, float]) -> float | None:
    """Return the time that the FLOPs of one run take, each node's at its own peak; None if a term is unknown."""
    computing = [work for work in works if not work.is_gap and work.flops != 0]
    if any(work.flops is None or work.roof not in peaks_flop_per_s for work in computing):
        return None
    return 1e6 * math.fsum((work.flops or 0.0) / peaks_flop_per_s[work.roof] for work in computing)


def _compute_uj(work: NodeWork, model: EnergyModel, point: IntervalPoint) -> float:
    if work.is_gap or work.flops == 0:
        return 0.0
    if work.flops is None or work.dtype not in model.compute_pj_per_flop:
        return np.nan
    return UJ_PER_PJ * work.flops * model.compute_pj_per_flop[work.dtype].at(point)


def _dram_bytes(work: NodeWork, cache_bytes: float, point: IntervalPoint, *, model_fits: bool) -> float:
    if work.is_gap:
        return 0.0
    if work.weight_bytes is None or work.activation_bytes is None:
        return np.nan
    whole = work.weight_bytes + work.activation_bytes
    if point != "likely":
        return 0.0 if point == "low" else whole
    weights = 0.0 if work.is_cache_resident or model_fits else work.weight_bytes
    return weights + (0.0 if work.is_cache_resident or whole <= cache_bytes else work.activation_bytes)


def fill_unknown(dynamic: DynamicEnergy, works: Sequence[NodeWork]) -> DynamicEnergy:
    """Give nodes of unknown work the mean power of the other nodes over their own time.

    The sum then covers the whole run. Where no other node is known to do such work, the unknown energy stays NaN.
    """
    latency_us = np.array([0.0 if work.is_gap else max(work.latency_us, 0.0) for work in works])
    return DynamicEnergy(_filled(dynamic.compute_uj, latency_us), _filled(dynamic.movement_uj, latency_us))


def _filled(energy_uj: Vector, latency_us: Vector) -> Vector:
    unknown = np.isnan(energy_uj)
    known_uj, known_us = energy_uj[~unknown].sum(), latency_us[~unknown].sum()
    if not unknown.any() or not known_uj * known_us > 0:
        return energy_uj
    return np.where(unknown, known_uj / known_us * latency_us, energy_uj)

"""The energy estimate of a run: from the work of its nodes and its power to energy, efficiency, cost and notes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.power.bounded_value import BoundedValue, value_at
from common.power.division import RunEnergy, run_energy
from common.power.efficiency import Host, MillionInferences, WholeRun, efficiency, million_inferences
from common.power.energy_model import CostFactors, EnergyModel
from common.power.energy_notes import energy_notes
from common.power.node_energy import NodeWork, compute_roof_us, total_bytes, total_flops

if TYPE_CHECKING:
    from common.table_rows import EfficiencyDocument, EnergySummaryDocument


@dataclass(frozen=True, slots=True)
class EnergyEstimate:
    """Estimate of one run; nodes are in the order in which they were given."""

    energy: RunEnergy
    summary: EnergySummaryDocument
    efficiency: EfficiencyDocument
    million: MillionInferences
    notes: tuple[str, ...]


def estimate(
    works: Mapping[str, NodeWork],
    run_us: float,
    threads: int,
    *,
    average_power: BoundedValue | None,
    static_power: BoundedValue | None,
    model: EnergyModel,
    factors: CostFactors,
    host: Host,
) -> EnergyEstimate:
    """Estimate energy, efficiency and cost of one run.

    Args:
        works: every executed node and the gap, by name.
        run_us: unprofiled latency.
        threads: hardware threads in use.
        average_power: mean power of the run, measured or given. If it is None, the model predicts the energy.
        static_power: power of the idle host, measured or given; if None, that of the model for the threads in use.
        model: divides the energy, and predicts whatever was neither measured nor given.
        factors: emissions and prices.
        host: ceilings and cache.

    Raises:
        PipelineError: static power is above average power, or no node has work to divide by.
    """
    static = static_power or _modelled_static(model, threads)
    nodes = list(works.values())
    cache_bytes = host.last_level_cache_bytes
    energy = run_energy(nodes, run_us, model, cache_bytes, static_power=static, average_power=average_power)
    roof_us = compute_roof_us(nodes, host.peaks_flop_per_s)
    whole = WholeRun(run_us, threads, total_flops(nodes), total_bytes(nodes), energy.total, roof_us)
    million = million_inferences(whole, factors)
    return EnergyEstimate(
        energy=energy,
        summary=summarise(energy, run_us, static),
        efficiency=efficiency(whole, host, million),
        million=million,
        notes=tuple(energy_notes(energy, list(works), model, static, host)),
    )


def _modelled_static(model: EnergyModel, threads: int) -> BoundedValue:
    per_thread = model.static_power_w_per_thread
    return BoundedValue(per_thread.likely, per_thread.low, per_thread.high, "modelled").times(threads)


def summarise(energy: RunEnergy, run_us: float, static_power: BoundedValue) -> EnergySummaryDocument:
    """Return the total of the run and its three causes; average power is energy over latency."""
    division, total_uj = energy.division, energy.total
    return {
        "energy_source": total_uj.source if total_uj else "unavailable",
        "average_power_w": total_uj.likely / run_us if total_uj else None,
        "static_power_w": static_power.likely,
        "static_power_source": static_power.source,
        "energy_uj": value_at(total_uj, "likely"),
        "energy_low_uj": value_at(total_uj, "low"),
        "energy_high_uj": value_at(total_uj, "high"),
        "compute_energy_uj": _sum(division.compute_uj),
        "movement_energy_uj": _sum(division.movement_uj),
        "static_energy_uj": _sum(division.static_uj),
        "closure_factor": _sum([division.closure_factor]),
    }


def _sum(values: Iterable[float]) -> float | None:
    amount = math.fsum(values)
    return None if math.isnan(amount) else amount

"""From what the nodes did and what power is known to the energy of a run, its cost, and what to know of both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.power.attribution import RunEnergy, run_energy
from common.power.efficiency import (
    Efficiency,
    Host,
    MillionInferences,
    WholeRun,
    efficiency,
    million_inferences,
)
from common.power.energy_model import CostFactors, EnergyModel, Figure, end_of
from common.power.energy_notes import caveats
from common.power.node_energy import NodeWork, compute_roof_us, total_work


@dataclass(frozen=True, slots=True)
class EnergySummary:
    """The figures of energy_summary.json, under the names of its columns."""

    energy_source: str
    average_power_w: float | None
    static_power_w: float
    static_power_source: str
    energy_uj: float | None
    energy_low_uj: float | None
    energy_high_uj: float | None
    compute_energy_uj: float | None
    movement_energy_uj: float | None
    static_energy_uj: float | None
    closure_factor: float | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Everything that is estimated of one run; the nodes are in the order in which they were given."""

    energy: RunEnergy
    summary: EnergySummary
    efficiency: Efficiency
    million: MillionInferences
    notes: tuple[str, ...]


def estimate(
    works: Mapping[str, NodeWork],
    run_us: float,
    threads: int,
    *,
    average_power: Figure | None,
    static_power: Figure | None,
    model: EnergyModel,
    factors: CostFactors,
    host: Host,
) -> Estimate:
    """Energy, efficiency and cost of one run.

    Args:
        works: every executed node and the gap, by name.
        run_us: unprofiled latency.
        threads: hardware threads in use.
        average_power: of the run, measured or given; None, and the model gives it.
        static_power: of the idle host, given; None, and the model gives it for the threads in use.
        model: divides the energy, and gives what is not known.
        factors: emissions and prices.
        host: ceilings and cache.

    Raises:
        PipelineError: static power above the average power, or nothing to divide by.
    """
    static = static_power or _modelled_static(model, threads)
    nodes = list(works.values())
    cache_bytes = host.last_level_cache_bytes
    energy = run_energy(nodes, run_us, model, cache_bytes, static_power=static, average_power=average_power)
    roof_us = compute_roof_us(nodes, host.peaks_flop_per_s)
    whole = WholeRun(run_us, threads, total_work(nodes, "flops"), total_work(nodes, "bytes"), energy.total, roof_us)
    million = million_inferences(whole, factors)
    return Estimate(
        energy=energy,
        summary=summarise(energy, run_us, static),
        efficiency=efficiency(whole, host, million),
        million=million,
        notes=tuple(caveats(energy, list(works), model, static, host)),
    )


def _modelled_static(model: EnergyModel, threads: int) -> Figure:
    per_thread = model.static_power_w_per_thread.times(threads)
    return Figure(per_thread.value, per_thread.low, per_thread.high, "modelled")


def summarise(energy: RunEnergy, run_us: float, static_power: Figure) -> EnergySummary:
    """The total of the run, its three causes, and how they are known; average power is energy over latency."""
    division, total_uj = energy.division, energy.total
    return EnergySummary(
        energy_source=total_uj.source if total_uj else "unavailable",
        average_power_w=total_uj.value / run_us if total_uj else None,
        static_power_w=static_power.value,
        static_power_source=static_power.source,
        energy_uj=end_of(total_uj, "value"),
        energy_low_uj=end_of(total_uj, "low"),
        energy_high_uj=end_of(total_uj, "high"),
        compute_energy_uj=_sum(division.compute_uj),
        movement_energy_uj=_sum(division.movement_uj),
        static_energy_uj=_sum(division.static_uj),
        closure_factor=_sum([division.closure_factor]),
    )


def _sum(values: Iterable[float]) -> float | None:
    """Unknown as soon as one value is."""
    amount = math.fsum(values)
    return None if math.isnan(amount) else amount

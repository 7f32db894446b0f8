"""The energy estimate of a run: from the work of its nodes and its power to energy, efficiency, cost and notes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.names import listed
from common.power.bounded_value import BoundedValue, value_at
from common.power.division import RunEnergy, run_energy
from common.power.efficiency import Host, MillionInferences, WholeRun, efficiency, million_inferences
from common.power.energy_model import CostFactors, EnergyModel
from common.power.node_energy import NodeWork, compute_roof_us, total_bytes, total_flops

if TYPE_CHECKING:
    from common.table_rows import EfficiencyDocument, EnergySummaryDocument

MOST_NAMED = 3  # nodes that a note names


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
        host: as far as it is known.

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


def energy_notes(
    energy: RunEnergy, names: Sequence[str], model: EnergyModel, static_power: BoundedValue, host: Host
) -> list[str]:
    """Return one line, with a remedy, for each limit on the trust in the energy; ``names`` are those of its nodes."""
    lines = [*_unknown_work(energy, names, model)]
    if energy.total is None or energy.total.source == "modelled":
        stand_in = f"the model {model.name} predicts the energy" if energy.total else "the energy is unknown"
        remedy = "rerun <power_samples> where RAPL or NVML can be read, or give <avg_power_w>"
        lines.append(f"energy: no measured power; {stand_in}; {remedy}")
    elif static_power.source == "modelled":
        lines.append(
            f"energy: static power is modelled, {static_power.likely:.3g} W; its error counts as dynamic energy; "
            "measure the idle host and give <static_power_w>"
        )
    if not host.last_level_cache_bytes:
        lines.append(
            "energy: the size of the last-level cache is unknown, so all bytes count as DRAM traffic; "
            "run <host_ceilings>"
        )
    low, high = energy.expected_closure
    if energy.is_divided and not low <= energy.division.closure_factor <= high:
        lines.append(
            f"energy: closure factor {energy.division.closure_factor:.3g} is outside {low:.2g} to {high:.2g}, "
            f"the range of {model.name}; power and model describe different parts of the machine; check the power, "
            "<static_power_w> and <energy_model>"
        )
    return lines


def _unknown_work(energy: RunEnergy, names: Sequence[str], model: EnergyModel) -> list[str]:
    if not energy.unknown:
        return []
    shown = listed([names[position] for position in energy.unknown], MOST_NAMED)
    taken = "the mean power of the other nodes is assumed" if energy.is_divided else "the energy cannot be divided"
    remedy = f"register a work formula, or add the dtype to {model.name}"
    return [f"energy: FLOPs, bytes or pJ per FLOP unknown for {shown}; {taken}; {remedy}"]

"""Notes on the energy: where the figures come from, what was assumed, and how to get better figures."""

from __future__ import annotations

from collections.abc import Sequence

from common.names import listed
from common.power.bounded_value import BoundedValue
from common.power.division import RunEnergy
from common.power.efficiency import Host
from common.power.energy_model import EnergyModel

MOST_NAMED = 3  # nodes that a note names


def energy_notes(
    energy: RunEnergy, names: Sequence[str], model: EnergyModel, static_power: BoundedValue, host: Host
) -> list[str]:
    """Return one line, with a remedy, for each limit on the trust in the energy.

    Args:
        energy: energy of the run.
        names: names of the nodes, in the order of the division.
        model: model that divided or predicted the energy.
        static_power: static power that was used.
        host: known ceilings of the host.
    """
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

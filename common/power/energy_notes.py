"""What a reader of the energy must know: where the figures come from, what was assumed, and the way to better ones."""

from __future__ import annotations

from collections.abc import Sequence

from common.power.attribution import RunEnergy
from common.power.efficiency import Host
from common.power.energy_model import EnergyModel, Figure

NAMED = 3  # nodes that a note names


def caveats(energy: RunEnergy, names: Sequence[str], model: EnergyModel, static_power: Figure, host: Host) -> list[str]:
    """One line for each thing that bounds the trust in the figures, with its remedy.

    Args:
        energy: of the run.
        names: of the nodes, in the order of the division.
        model: that divided the energy or gave it.
        static_power: as it was used.
        host: what was known of it.
    """
    lines = [*_unknown_work(energy, names, model)]
    if energy.total is None or energy.total.source == "modelled":
        stand_in = f"the model {model.name} gives the energy" if energy.total else "nothing is known of the energy"
        remedy = "run 01_profile_onnx.py where it can read RAPL or NVML, or give --avg-power-w"
        lines.append(f"energy: no measured power; {stand_in}; {remedy}")
    elif static_power.source == "modelled":
        lines.append(
            f"energy: static power is the model's {static_power.value:.3g} W; measure the idle host and give "
            "--static-power-w, or what flows when idle counts as dynamic"
        )
    if not host.last_level_cache_bytes:
        lines.append(
            "energy: size of the last-level cache unknown, so all bytes are taken from DRAM; run 00_host_ceilings.py"
        )
    low, high = energy.expected_closure
    if energy.is_divided and not low <= energy.division.closure_factor <= high:
        lines.append(
            f"energy: closure factor {energy.division.closure_factor:.3g} is outside {low:.2g} to {high:.2g}, what the "
            f"bounds of {model.name} allow; the power is of more or less than what the model describes: check it, "
            "--static-power-w and --energy-model"
        )
    return lines


def _unknown_work(energy: RunEnergy, names: Sequence[str], model: EnergyModel) -> list[str]:
    if not energy.unknown:
        return []
    shown = ", ".join(names[position] for position in energy.unknown[:NAMED])
    more = f" and {len(energy.unknown) - NAMED} more" if len(energy.unknown) > NAMED else ""
    taken = "taken to work like the others" if energy.is_divided else "so the energy cannot be divided"
    remedy = f"register a work formula for it, or its dtype in {model.name}"
    return [f"energy: FLOPs, bytes or pJ per FLOP unknown for {shown}{more}; {taken}; {remedy}"]

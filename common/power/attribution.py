"""Energy of a run, divided over its nodes: static by time, the dynamic rest by modelled work, closing on the total.

With ``E = P x t`` alone every node's share of the energy would be its share of the latency. So, for a run of ``t`` µs
at ``P`` watts of which ``S`` are static (W x µs = µJ):

    static_i  = S t x t_i / Σ t_j              time of each node and of the gap, a negative gap counted as none
    compute_i = k x flops_i x pJ/FLOP          movement_i = k x bytes_i x pJ/byte
    k         = (P t - S t) / Σ (modelled compute + movement)      the closure factor; 1 where P is modelled itself
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from common.errors import PipelineError
from common.power.energy_model import Bound, EnergyModel, Figure
from common.power.node_energy import DynamicEnergy, NodeWork, Vector, dynamic_energy, fill_unknown

Bounds = tuple[Bound, Bound]  # of compute, of movement
Modelled = Mapping[Bounds, DynamicEnergy]

# The ends between which a node's share of a known total lies: dear arithmetic and cheap movement, and the reverse.
_DIVISIONS: tuple[Bounds, ...] = (("value", "value"), ("high", "low"), ("low", "high"))
_ENDS: tuple[Bound, ...] = ("low", "high")
_BOUNDS: tuple[Bound, ...] = ("value", *_ENDS)


@dataclass(frozen=True, slots=True)
class Division:
    """Energy of each node in µJ by cause, and the closure factor that the division needed; NaN is unknown."""

    compute_uj: Vector
    movement_uj: Vector
    static_uj: Vector
    closure_factor: float

    @property
    def energy_uj(self) -> Vector:
        """Of each node: the three causes together."""
        return self.compute_uj + self.movement_uj + self.static_uj


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """Energy of one run: the total with how it is known, and its division with an interval for each node.

    ``total`` is None where nothing is known. ``unknown`` are the positions of the nodes whose work was not known in
    full and was taken to be like that of the others; where no node's was, the division is NaN throughout.
    ``expected_closure`` are the closure factors that the bounds of the coefficients allow.
    """

    total: Figure | None
    division: Division
    low_uj: Vector
    high_uj: Vector
    unknown: tuple[int, ...] = ()
    expected_closure: tuple[float, float] = (1.0, 1.0)

    @property
    def is_divided(self) -> bool:
        """Whether the nodes have their energy."""
        return not np.isnan(self.division.closure_factor)


def static_energy(works: Sequence[NodeWork], run_us: float, static_power_w: float) -> Vector:
    """Static power times time, for each node and the gap, in µJ; the sum is that of the run.

    Where the corrected times of the nodes exceed the run (a negative gap), they are uncertain and the run is not: all
    give way in proportion.

    Raises:
        PipelineError: nothing takes any time.
    """
    latency_us = np.array([max(work.latency_us, 0.0) for work in works])
    if not latency_us.sum() > 0:
        raise PipelineError("energy", "no node takes any time", "run 01_profile_onnx.py with more runs")
    shares: Vector = latency_us / latency_us.sum()
    return static_power_w * run_us * shares


def divide(dynamic: DynamicEnergy, static_uj: Vector, total_uj: float) -> Division:
    """Divide a known total: what is not static goes to the nodes in proportion to their modelled work.

    Raises:
        PipelineError: no modelled work to divide by.
    """
    if not dynamic.total_uj > 0:
        raise PipelineError("energy", "no node does any counted work", "run 02_shapes_flops_bytes.py and 03 again")
    rest_uj = total_uj - float(static_uj.sum())
    factor = max(rest_uj, 0.0) / dynamic.total_uj  # below 0 by rounding only: see require_static_within
    return Division(factor * dynamic.compute_uj, factor * dynamic.movement_uj, static_uj, factor)


def require_static_within(static_power: Figure, average_power: Figure) -> None:
    """Static power is a part of the average power.

    Raises:
        PipelineError: it is above it.
    """
    if static_power.value > average_power.value:
        raise PipelineError(
            "static power",
            f"{static_power.value:.4g} W ({static_power.source}) is above the average power of a run, "
            f"{average_power.value:.4g} W ({average_power.source})",
            "give --static-power-w, and --avg-power-w of the same part of the machine",
        )


def run_energy(
    works: Sequence[NodeWork],
    run_us: float,
    model: EnergyModel,
    cache_bytes: float | None,
    *,
    static_power: Figure,
    average_power: Figure | None,
) -> RunEnergy:
    """Energy of one run and of each node in it.

    Args:
        works: every executed node and the gap.
        run_us: unprofiled latency of the run.
        model: coefficients that divide the energy, and give it where no power is known.
        cache_bytes: size of the last-level cache, if known.
        static_power: watts that flow whatever is computed.
        average_power: watts over the run, measured or given; None, and the model gives them.

    Raises:
        PipelineError: static power above the average power.
    """
    unfilled = dynamic_energy(works, model, cache_bytes)
    unknown = tuple(np.flatnonzero(np.isnan(unfilled.compute_uj + unfilled.movement_uj)).tolist())
    modelled = {
        bounds: fill_unknown(dynamic_energy(works, model, cache_bytes, *bounds), works)
        for bounds in {*_DIVISIONS, *((bound, bound) for bound in _BOUNDS)}
    }
    if np.isnan(modelled["value", "value"].total_uj):
        empty = np.full(len(works), np.nan)
        nothing = Division(empty, empty, empty, np.nan)
        return RunEnergy(average_power and average_power.times(run_us), nothing, empty, empty, unknown)
    if average_power is None:
        return replace(_modelled(works, run_us, modelled, static_power), unknown=unknown)
    return replace(_known(works, run_us, modelled, static_power, average_power), unknown=unknown)


def _modelled(works: Sequence[NodeWork], run_us: float, modelled: Modelled, static_power: Figure) -> RunEnergy:
    """All from the model: each end of the interval has every coefficient at that end."""
    ends = {}
    for bound in _BOUNDS:
        dynamic, static_uj = modelled[bound, bound], static_energy(works, run_us, static_power.at(bound))
        ends[bound] = Division(dynamic.compute_uj, dynamic.movement_uj, static_uj, 1.0)
    value, low, high = (ends[bound].energy_uj for bound in _BOUNDS)
    total = Figure(float(value.sum()), float(low.sum()), float(high.sum()), "modelled")
    return RunEnergy(total, ends["value"], low, high)


def _known(
    works: Sequence[NodeWork], run_us: float, modelled: Modelled, static_power: Figure, average_power: Figure
) -> RunEnergy:
    """A total that is measured or given: the model divides it, so each node's interval is that of the division."""
    require_static_within(static_power, average_power)
    total = average_power.times(run_us)
    central = divide(modelled["value", "value"], static_energy(works, run_us, static_power.value), total.value)
    ends = [central.energy_uj]
    for bounds, end, static_end in product(_DIVISIONS, _ENDS, _ENDS):
        static_w = min(static_power.at(static_end), average_power.at(end))  # it cannot be more than all
        static_uj = static_energy(works, run_us, static_w)
        ends.append(divide(modelled[bounds], static_uj, total.at(end)).energy_uj)
    low, value, high = (modelled[bound, bound].total_uj for bound in ("low", "value", "high"))
    return RunEnergy(
        total,
        central,
        np.min(ends, axis=0),
        np.max(ends, axis=0),
        expected_closure=(low / value, high / value),
    )

"""Division of a run's energy over its nodes: static energy by time, dynamic energy by modelled work.

The parts add up to the total. With ``E = P x t`` alone, every node's share of the energy would be its share of the
latency. For a run of ``t`` µs at ``P`` watts, of which ``S`` watts are static (W x µs = µJ):

    static_i  = S t x t_i / Σ t_j              t_i: node or gap; a negative gap counts as 0
    compute_i = k x flops_i x pJ/FLOP          movement_i = k x bytes_i x pJ/byte
    k         = (P t - S t) / Σ (modelled compute + movement)      closure factor
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from common.files.configuration import IntervalPoint
from common.messages.errors import PipelineError, UnusableValueError
from common.power.bounded_value import GIVEN, MODELLED, BoundedValue
from common.power.energy_model import EnergyModel
from common.power.node_energy import DynamicEnergy, NodeWork, Vector, dynamic_energy, fill_unknown

# Points for compute and for movement: a node's share of a known total is extreme where arithmetic is costly and
# movement cheap, or the reverse.
_DIVISIONS: tuple[tuple[IntervalPoint, IntervalPoint], ...] = (("likely", "likely"), ("high", "low"), ("low", "high"))
_ENDS: tuple[IntervalPoint, ...] = ("low", "high")
_POINTS: tuple[IntervalPoint, ...] = ("likely", *_ENDS)


@dataclass(frozen=True, slots=True)
class Division:
    """Energy of each node in µJ by cause, and the closure factor of the division; NaN where unknown."""

    compute_uj: Vector
    movement_uj: Vector
    static_uj: Vector
    closure_factor: float

    @property
    def energy_uj(self) -> Vector:
        return self.compute_uj + self.movement_uj + self.static_uj


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """Energy of one run in µJ: the total, its division, and an interval of each node's."""

    total: BoundedValue | None  # None where it is unknown
    division: Division  # of each node by cause; NaN throughout where no node's work is known
    low_uj: Vector
    high_uj: Vector
    # Positions of the nodes whose work is not fully known. They get the mean power of the other nodes.
    unknown: tuple[int, ...] = ()
    # Range of closure factors that the intervals of the coefficients allow
    expected_closure: tuple[float, float] = (1.0, 1.0)

    @property
    def is_divided(self) -> bool:
        return not np.isnan(self.division.closure_factor)


def static_energy(works: Sequence[NodeWork], run_us: float, static_power_w: float) -> Vector:
    """Return the static energy of each node and of the gap in µJ; the sum is static power times run time.

    If the corrected times of the nodes exceed the run (a negative gap), every node's share shrinks in proportion: the
    latency of the run is certain, the corrected times are not. PipelineError: no node takes any time.
    """
    latency_us = np.array([max(work.latency_us, 0.0) for work in works])
    if not latency_us.sum() > 0:
        raise PipelineError("energy", "no node takes any time", "rerun <op_latency> with more runs")
    shares: Vector = latency_us / latency_us.sum()
    return static_power_w * run_us * shares


def divide(dynamic: DynamicEnergy, static_uj: Vector, total_uj: float) -> Division:
    """Divide a known total, the dynamic part in proportion to modelled work; PipelineError: no node has any."""
    if not dynamic.total_uj > 0:
        raise PipelineError("energy", "no node does any counted work", "rerun <op_metrics> and <op_roofline>")
    rest_uj = total_uj - float(static_uj.sum())
    factor = max(rest_uj, 0.0) / dynamic.total_uj  # negative by rounding only: see require_static_within
    return Division(factor * dynamic.compute_uj, factor * dynamic.movement_uj, static_uj, factor)


def require_static_within(static_power: BoundedValue, average_power: BoundedValue) -> None:
    """Refuse a static power above the average power, of which it is a part.

    Raises:
        PipelineError: it is above.
        UnusableValueError: it is, and one of the two was given; the error names its setting.
    """
    if static_power.likely <= average_power.likely:
        return
    problem = (
        f"{static_power.likely:.4g} W ({static_power.source}) is above the average power of a run, "
        f"{average_power.likely:.4g} W ({average_power.source})"
    )
    remedy = "give <static_power_w>, and <avg_power_w> of the same part of the machine"
    for power, quantity in ((static_power, "static_power_w"), (average_power, "avg_power_w")):
        if power.source == GIVEN:
            raise UnusableValueError(quantity, f"static power of {problem}", remedy)
    raise PipelineError("static power", problem, remedy)


def run_energy(
    works: Sequence[NodeWork],
    run_us: float,
    model: EnergyModel,
    cache_bytes: float | None,
    *,
    static_power: BoundedValue | None,
    average_power: BoundedValue | None,
) -> RunEnergy:
    """Return the energy of one run and of each node in it; without both powers, nodes have no energy.

    ``works`` are those of every executed node and of the gap. Both powers are in W: the one that does not depend on the
    work, and the mean over the run; a PipelineError says that the first is above the second. The interval of a node
    covers its uncertainty and that of the division.
    """
    unfilled = dynamic_energy(works, model, cache_bytes)
    unknown = tuple(np.flatnonzero(np.isnan(unfilled.compute_uj + unfilled.movement_uj)).tolist())
    modelled = {
        points: fill_unknown(dynamic_energy(works, model, cache_bytes, *points), works)
        for points in {*_DIVISIONS, *((point, point) for point in _POINTS)}
    }
    work_uj = modelled["likely", "likely"].total_uj
    is_idle = average_power is not None and average_power.source == MODELLED and work_uj == 0
    if average_power is None or static_power is None or np.isnan(work_uj) or is_idle:
        empty = np.full(len(works), np.nan)
        undivided = Division(empty, empty, empty, np.nan)
        return RunEnergy(average_power and average_power.times(run_us), undivided, empty, empty, unknown)
    require_static_within(static_power, average_power)
    total = average_power.times(run_us)
    central = divide(modelled["likely", "likely"], static_energy(works, run_us, static_power.likely), total.likely)
    ends = [central.energy_uj]
    for points, end, static_end in product(_DIVISIONS, _ENDS, _ENDS):
        static_w = min(static_power.at(static_end), average_power.at(end))  # a part of the average
        static_uj = static_energy(works, run_us, static_w)
        ends.append(divide(modelled[points], static_uj, total.at(end)).energy_uj)
    likely, low, high = (modelled[point, point].total_uj for point in _POINTS)
    least, most = np.min(ends, axis=0), np.max(ends, axis=0)
    return RunEnergy(total, central, least, most, unknown, expected_closure=(low / likely, high / likely))

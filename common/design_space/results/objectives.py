"""Which of several designs is best: the least energy-delay product, alone or within an area, and the Pareto front."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from common.errors import UnusableValueError

Row = Mapping[str, Any]
Costs = tuple[float, ...]
OBJECTIVES = ("edp", "log-sum")
DEGENERATE = (
    "the log sum of latency, energy and area is degenerate: where traffic does not depend on capacity, it falls "
    "without end as the buffer shrinks; the energy-delay product within an area has an optimum"
)


def log_sum(point: Row) -> float:
    """Return ln(cycles) + ln(pJ) + ln(mm²), which FA-DOSA minimises."""
    return math.log(point["edp_pj_cycles"]) + math.log(point["chip_mm2"])


def edp(point: Row) -> float:
    """Return the energy-delay product."""
    return float(point["edp_pj_cycles"])


def objective(name: str, areas: Iterable[float | None]) -> Callable[[Row], float]:
    """Return what the best design has the least of.

    Args:
        name: one of ``OBJECTIVES``.
        areas: areas of all designs.

    Raises:
        UnusableValueError: it needs areas, and an accelerator has none.
    """
    if name == "edp":
        return edp
    if not all(areas):
        raise UnusableValueError("objective", "the log sum needs areas, which this accelerator's file does not give")
    return log_sum


def pareto(costs: Sequence[Costs]) -> list[bool]:
    """Return for each of several tuples of costs whether no other is as low in all of them and lower in one."""
    front: list[Costs] = []
    for cost in sorted(set(costs)):  # whatever dominates a tuple stands before it
        if not any(all(map(float.__le__, other, cost)) for other in front):
            front.append(cost)
    members = set(front)
    return [cost in members for cost in costs]


def with_front(points: Sequence[Row]) -> list[dict[str, Any]]:
    """Return designs with ``is_pareto``: whether no other is better in latency, energy or area and as good in the rest.

    Without areas, the front is that of latency and energy. A design in which nothing fits is not on it.
    """
    fits = [point for point in points if point["problem"] is None]
    flags = iter(pareto([_costs(point) for point in fits]))
    return [{**point, "is_pareto": point["problem"] is None and next(flags)} for point in points]


def _costs(point: Row) -> Costs:
    return tuple(float(point[name] or 0.0) for name in ("modelled_cycles", "modelled_energy_pj", "chip_mm2"))


def require_budgets(budgets: Sequence[float], areas: Iterable[float | None]) -> None:
    """Refuse areas that no design has, before any of them is searched.

    Raises:
        UnusableValueError: an area is below that of every design, or an accelerator's file gives none.
    """
    known = [area for area in areas if area is not None]
    if budgets and not known:
        raise UnusableValueError("area_budget_mm2", "this accelerator's file gives no areas", "")
    if budgets and min(budgets) < min(known):
        problem = f"no design is as small as {min(budgets):g} mm²"
        raise UnusableValueError("area_budget_mm2", problem, f"the smallest has {min(known):.4g} mm²")


def best_within(points: Sequence[Row], budgets: Sequence[float]) -> list[dict[str, Any]]:
    """Return the design of the least energy-delay product within each of some areas.

    Args:
        points: designs in which a schedule fits.
        budgets: areas in mm²; without any, those at which a larger design is better than all smaller ones.
    """
    steps: list[Row] = []
    sized = (point for point in points if point["chip_mm2"] is not None)
    for point in sorted(sized, key=lambda point: (point["chip_mm2"], edp(point))):
        if not steps or edp(point) < edp(steps[-1]):
            steps.append(point)
    areas = [point["chip_mm2"] for point in steps]
    places = [(budget, bisect_right(areas, budget) - 1) for budget in sorted(set(budgets or areas))]
    return [
        {"area_budget_mm2": budget} | {name: steps[place][name] for name in _BUDGET_COLUMNS}
        for budget, place in places
        if place >= 0
    ]


_BUDGET_COLUMNS = (
    "design", "search_engine", "chip_mm2", "modelled_cycles", "modelled_energy_pj", "edp_pj_cycles",
    "bound_edp_pj_cycles", "gap_share",
)  # fmt: skip

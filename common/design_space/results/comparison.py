"""Which of several designs is best, and how the searches of one design compare."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.messages.errors import UnusableValueError
from common.table_rows import (
    DesignBudgetsRow,
    DesignComparisonRow,
    DesignConvergenceRow,
    DesignGroupsRow,
    DesignMappingsRow,
    DesignPointsRow,
    DesignSummaryDocument,
)

if TYPE_CHECKING:
    from common.design_space.results.design_result import DesignResult

Costs = tuple[float, ...]
OBJECTIVES = ("edp", "log-sum")
DEGENERATE = (
    "the log sum of latency, energy and area is degenerate: where traffic does not depend on capacity, it falls "
    "without end as the buffer shrinks; the energy-delay product within an area has an optimum"
)


def log_sum(point: DesignPointsRow) -> float:
    """Return ln(cycles) + ln(pJ) + ln(mm²), which FA-DOSA minimises; NaN without an area."""
    return math.log(edp(point)) + math.log(point["chip_mm2"] or math.nan)


def edp(point: DesignPointsRow) -> float:
    """Return the energy-delay product; infinite where nothing fits."""
    return math.inf if point["edp_pj_cycles"] is None else float(point["edp_pj_cycles"])


def objective(name: str, areas: Iterable[float | None]) -> Callable[[DesignPointsRow], float]:
    """Return what the best design has the least of; UnusableValueError if it needs areas that are not known."""
    if name == "edp":
        return edp
    if not all(areas):
        raise UnusableValueError("objective", "the log sum needs areas, which this accelerator's file does not give")
    return log_sum


def pareto(costs: Sequence[Costs]) -> list[bool]:
    """Return for each of several tuples of costs whether no other is as low in all of them and lower in one."""
    front: list[Costs] = []
    for cost in sorted(set(costs)):  # whatever dominates a tuple comes before it
        if not any(all(map(float.__le__, other, cost)) for other in front):
            front.append(cost)
    members = set(front)
    return [cost in members for cost in costs]


def with_front(points: Sequence[DesignPointsRow]) -> list[DesignPointsRow]:
    """Return designs with ``is_pareto``: whether no other is better in one cost and as good in the others.

    The costs are latency, energy and area. Without areas, the front is that of latency and energy. A design on which
    nothing fits is not on it.
    """
    fitting = [point for point in points if not point["problem"]]
    costs = ((point["modelled_cycles"], point["modelled_energy_pj"], point["chip_mm2"]) for point in fitting)
    flags = iter(pareto([tuple(float(cost or 0.0) for cost in of_point) for of_point in costs]))
    return [{**point, "is_pareto": not point["problem"] and next(flags)} for point in points]


def require_budgets(budgets: Sequence[float], areas: Iterable[float | None]) -> None:
    """Raise UnusableValueError for an area below that of every design, or if no area is known; before any search."""
    known = [area for area in areas if area is not None]
    if budgets and not known:
        raise UnusableValueError("area_budget_mm2", "this accelerator's file gives no areas", "")
    if budgets and min(budgets) < min(known):
        problem = f"no design is as small as {min(budgets):g} mm²"
        raise UnusableValueError("area_budget_mm2", problem, f"the smallest has {min(known):.4g} mm²")


def best_within(points: Sequence[DesignPointsRow], budgets: Sequence[float]) -> list[DesignBudgetsRow]:
    """Return the design of the least energy-delay product within each of some areas.

    Args:
        points: designs in which a schedule fits.
        budgets: areas in mm²; without any, those at which a larger design is better than all smaller ones.
    """
    steps: list[tuple[float, DesignPointsRow]] = []
    sized = [(area, edp(point), point) for point in points if (area := point["chip_mm2"]) is not None]
    for area, product, point in sorted(sized, key=lambda design: design[:2]):
        if not steps or product < edp(steps[-1][1]):
            steps.append((area, point))
    areas = [area for area, _ in steps]
    places = [(budget, bisect_right(areas, budget) - 1) for budget in sorted(set(budgets or areas))]
    return [
        {
            "area_budget_mm2": budget,
            "design": point["design"],
            "search_engine": point["search_engine"],
            "chip_mm2": point["chip_mm2"],
            "modelled_cycles": point["modelled_cycles"],
            "modelled_energy_pj": point["modelled_energy_pj"],
            "edp_pj_cycles": point["edp_pj_cycles"],
            "bound_edp_pj_cycles": point["bound_edp_pj_cycles"],
            "gap_share": point["gap_share"],
        }
        for budget, place in places
        if place >= 0
        for point in [steps[place][1]]
    ]


def comparison_rows(designs: Sequence[DesignResult]) -> list[DesignComparisonRow]:
    return [
        {
            "design": result.point["design"],
            "algorithm": result.point["search_engine"],
            "search_s": result.search_s,
            "seed": result.point["seed"],
            "edp_pj_cycles": result.point["edp_pj_cycles"],
            "modelled_cycles": result.point["modelled_cycles"],
            "modelled_energy_pj": result.point["modelled_energy_pj"],
            "chip_mm2": result.point["chip_mm2"],
            "evaluation_count": result.point["evaluation_count"],
            "gap_share": result.point["gap_share"],
            "space_gap_share": result.point["space_gap_share"],
            "is_complete": result.point["is_complete"],
        }
        for result in designs
        if not result.point["problem"]
    ]


def best_of_each_design(designs: Sequence[DesignResult]) -> list[DesignResult]:
    """Return, of each accelerator on which a schedule fits, the search with the least energy-delay product."""
    best: dict[str, DesignResult] = {}
    for result in designs:
        name, least = result.point["design"], edp(result.point)
        if not result.point["problem"] and (name not in best or least < edp(best[name].point)):
            best[name] = result
    return [*best.values()]


@dataclass(frozen=True, slots=True)
class DesignTables:
    """The tables of a search; mappings and groups are those of the best search of each accelerator."""

    best: DesignPointsRow
    points: list[DesignPointsRow]
    compared: list[DesignComparisonRow]
    convergence: list[DesignConvergenceRow]
    budgets: list[DesignBudgetsRow]
    mappings: list[DesignMappingsRow]
    groups: list[DesignGroupsRow]

    def summary(self, objective: str) -> DesignSummaryDocument:
        """Return the best accelerator, of all that were searched for an objective."""
        count = len({point["design"] for point in self.points})
        return {**self.best, "problem": None, "design_objective": objective, "design_count": count}


def design_tables(
    designs: Sequence[DesignResult], least: Callable[[DesignPointsRow], float], budgets: Sequence[float]
) -> DesignTables:
    """Return the tables of all searches; the best design has the ``least`` of something, see :func:`objective`."""
    points = with_front([result.point for result in designs])
    fitting = [point for point in points if not point["problem"]]
    schedules = best_of_each_design(designs)
    return DesignTables(
        min(fitting, key=least),
        points,
        comparison_rows(designs),
        [row for result in designs for row in result.convergence],
        best_within(fitting, budgets),
        [row for result in schedules for row in result.mappings],
        [row for result in schedules for row in result.groups],
    )

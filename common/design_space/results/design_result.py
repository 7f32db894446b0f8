"""The result of a search on one accelerator, as rows of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from common.design_space.accelerator.hardware import Hardware
from common.design_space.search.fronts import SupportedPoint
from common.design_space.search.settings import EXACT, Search
from common.table_rows import DesignConvergenceRow, DesignGroupsRow, DesignMappingsRow, DesignPointsRow

MOST_NAMED = 6  # names in a note


@dataclass(frozen=True, slots=True)
class DesignTask:
    """An accelerator to evaluate: its name, its sizes, and how its schedule is searched."""

    name: str
    hardware: Hardware
    search: Search


@dataclass(frozen=True, slots=True)
class DesignResult:
    """The result for one design."""

    point: DesignPointsRow  # the row of the design; it has a ``problem`` and no costs where nothing fits
    # A row for each contraction, where layers were mapped one by one
    mappings: list[DesignMappingsRow] = field(default_factory=list)
    groups: list[DesignGroupsRow] = field(default_factory=list)  # a row for each group, where layers were fused
    # A row for each time that the best product fell
    convergence: list[DesignConvergenceRow] = field(default_factory=list)
    search_s: float = 0.0  # how long the search took, without the bound
    limit: str = ""  # what the space leaves out because the model has too many states; empty where nothing is


def misfit(design: DesignTask, problem: str) -> DesignResult:
    """Return a design on which no schedule fits, and why."""
    return DesignResult(point_row(design, None, None, problem=problem))


def point_row(
    design: DesignTask,
    schedule: SupportedPoint[Any] | None,
    floor_edp: float | None,
    *,
    best_of_space: float | None = None,
    unfused_edp: float | None = None,
    contraction_edp: float | None = None,
    evaluation_count: int | None = None,
    is_complete: bool = True,
    rtl: tuple[float, float, float] | None = None,
    staying_weight_bytes: float | None = None,
    problem: str = "",
) -> DesignPointsRow:
    """Return the row of a design.

    Args:
        schedule: the best one that was found, of the whole model; None where nothing fits.
        floor_edp: an energy-delay product in pJ·cycles that no schedule is below, of whatever space; None where
            nobody knows one.
        best_of_space: a product that no schedule of the space is below; None where the search was interrupted. It is
            the schedule's own where the search went through the whole space.
        unfused_edp: the least product without fusion.
        contraction_edp: the least product of the contractions alone; None for one buffer.
        evaluation_count: schedules whose cost was computed; None where nobody counts them.
        is_complete: whether the search came to its end.
        rtl: least, likely and most cycles of the RTL; None where the file has no costs of one.
        staying_weight_bytes: weights that stay on the chip between inferences; None where none may.
        problem: why nothing fits.
    """
    hardware, search = design.hardware, design.search
    sizes = {level.name: level.capacity_kib * hardware.copies(level) for level in hardware.levels if level.capacity_kib}
    low, likely, high = rtl or (None, None, None)
    edp = schedule.edp if schedule else None
    return {
        "design": design.name,
        "hardware": hardware.name,
        "search_engine": search.engine,
        "accounting": search.accounting,
        "seed": search.seed,
        "array_row_count": hardware.array.rows,
        "array_column_count": hardware.array.columns,
        "memory_sizes_kib": sizes,
        "chip_mm2": hardware.area_mm2,
        "cycle_model": "rtl" if hardware.counts_rtl else "analytic",
        "modelled_cycles": schedule.cycles if schedule else None,
        "rtl_low_cycles": low,
        "rtl_cycles": likely,
        "rtl_high_cycles": high,
        "modelled_energy_pj": schedule.energy_pj if schedule else None,
        "edp_pj_cycles": edp,
        "bound_edp_pj_cycles": floor_edp,
        "gap_share": _above(edp, floor_edp),
        "space_best_edp_pj_cycles": best_of_space,
        "space_gap_share": None if search.engine == EXACT and edp == best_of_space else _above(edp, best_of_space),
        "contraction_edp_pj_cycles": contraction_edp,
        "unfused_edp_pj_cycles": unfused_edp,
        "staying_weight_bytes": staying_weight_bytes,
        "evaluation_count": evaluation_count,
        "problem": problem,
        "is_pareto": False,
        "is_complete": is_complete,
    }


def _above(edp: float | None, least: float | None) -> float | None:
    """Return how far a product is above a least one; None where one of them is unknown."""
    return max(0.0, edp / least - 1) if edp is not None and least else None


def convergence_rows(design: DesignTask, curve: Iterable[tuple[int, float]]) -> list[DesignConvergenceRow]:
    """Return the rows of a curve: after how many evaluations the best product fell, and to what in pJ·cycles."""
    return [
        {
            "design": design.name,
            "search_engine": design.search.engine,
            "seed": design.search.seed,
            "improvement_index": index,
            "evaluation_count": count,
            "best_edp_pj_cycles": edp,
        }
        for index, (count, edp) in enumerate(curve)
    ]

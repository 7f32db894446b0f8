"""What a search found on one accelerator, as rows of plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from common.design_space.accelerator.hardware import Hardware
from common.design_space.search.settings import Search

MOST_NAMED = 6  # names in a note
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FoundDesign:
    """What was found on one accelerator.

    Attributes:
        point: the row of the accelerator; it has a ``problem`` and no costs where nothing fits.
        mappings: a row for each contraction, where layers were mapped one by one.
        groups: a row for each group, where layers were fused.
        convergence: a row for each time that the best product fell.
        search_s: how long the search took, without the bound.
        limit: what the space leaves out because the model has too many states; empty where nothing is.
    """

    point: Row
    mappings: list[Row] = field(default_factory=list)
    groups: list[Row] = field(default_factory=list)
    convergence: list[Row] = field(default_factory=list)
    search_s: float = 0.0
    limit: str = ""


def misfit(design: str, hardware: Hardware, search: Search, problem: str) -> FoundDesign:
    """Return an accelerator on which no schedule fits, and why."""
    return FoundDesign(
        _sizes(design, hardware, search) | dict.fromkeys(_COSTS) | {"is_complete": True, "problem": problem}
    )


class Costed(Protocol):
    """What a schedule of the whole model costs."""

    @property
    def cycles(self) -> float:
        """Cycles of one inference."""

    @property
    def energy_pj(self) -> float:
        """Energy of one inference."""

    @property
    def edp(self) -> float:
        """Energy-delay product in pJ·cycles."""


def point(design: str, hardware: Hardware, search: Search, found: Costed, bound: float) -> Row:
    """Return the row of an accelerator; what only one kind of accelerator has is empty.

    Args:
        design: its name.
        hardware: the accelerator.
        search: how it was searched.
        found: the schedule.
        bound: an energy-delay product in pJ·cycles that no schedule of the space is below.
    """
    return _sizes(design, hardware, search) | {
        "modelled_cycles": found.cycles,
        "modelled_energy_pj": found.energy_pj,
        "edp_pj_cycles": found.edp,
        "bound_edp_pj_cycles": bound,
        "gap_share": max(0.0, found.edp / bound - 1) if bound else 0.0,
        "contraction_edp_pj_cycles": None,
        "unfused_edp_pj_cycles": None,
        "evaluation_count": None,
        "is_complete": True,
        "problem": None,
    }


_COSTS = (
    *("modelled_cycles", "modelled_energy_pj", "edp_pj_cycles", "bound_edp_pj_cycles", "gap_share"),
    *("contraction_edp_pj_cycles", "unfused_edp_pj_cycles", "evaluation_count"),
)


def _sizes(design: str, hardware: Hardware, search: Search) -> Row:
    sizes = {level.name: level.capacity_kib * hardware.copies(level) for level in hardware.levels if level.capacity_kib}
    return {
        "design": design,
        "hardware": hardware.name,
        "search_engine": search.engine,
        "accounting": search.accounting,
        "seed": search.seed,
        "array_row_count": hardware.array.rows,
        "array_column_count": hardware.array.columns,
        "memory_sizes_kib": sizes,
        "chip_mm2": hardware.area_mm2,
    }


def convergence(row: Row, curve: Iterable[tuple[int, float]]) -> list[Row]:
    """Return the rows of a curve: after how many evaluations the best product fell, and to what.

    Args:
        row: of the accelerator.
        curve: evaluations, and the product in pJ·cycles.
    """
    key = {name: row[name] for name in ("design", "search_engine", "seed")}
    return [
        key | {"improvement_index": index, "evaluation_count": count, "best_edp_pj_cycles": edp}
        for index, (count, edp) in enumerate(curve)
    ]

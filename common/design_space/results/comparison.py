"""Searches of one accelerator side by side, as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence

from common.design_space.results.found_design import FoundDesign, Row

_COMPARED = (
    *("seed", "edp_pj_cycles", "modelled_cycles", "modelled_energy_pj", "chip_mm2", "evaluation_count"),
    *("gap_share", "is_complete"),
)


def comparison_rows(designs: Sequence[FoundDesign]) -> list[Row]:
    """Return the row of each search that found a schedule."""
    return [
        {
            "design": found.point["design"],
            "algorithm": found.point["search_engine"],
            "search_s": found.search_s,
            **{name: found.point[name] for name in _COMPARED},
        }
        for found in designs
        if found.point["problem"] is None
    ]


def best_of_each_design(designs: Sequence[FoundDesign]) -> list[FoundDesign]:
    """Return, of each accelerator on which a schedule fits, the search with the least energy-delay product."""
    best: dict[str, FoundDesign] = {}
    for found in designs:
        name, edp = found.point["design"], found.point["edp_pj_cycles"]
        if found.point["problem"] is None and (name not in best or edp < best[name].point["edp_pj_cycles"]):
            best[name] = found
    return [*best.values()]

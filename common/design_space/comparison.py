"""Searches of one accelerator side by side, as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from common.design_space.engines.registry import ENGINES, FA_DOSA, is_installed
from common.design_space.found_design import FoundDesign, Row, Search

_COMPARED = (
    *("seed", "edp_pj_cycles", "modelled_cycles", "modelled_energy_pj", "chip_mm2", "evaluation_count"),
    *("gap_share", "is_complete"),
)


class Contest(NamedTuple):
    """Searches to compare: one by each engine that can search, and a note that names the others."""

    searches: list[Search]
    notes: list[str]


def contest(evaluations: int, seed: int, most_layers: int, *, has_one_buffer: bool) -> Contest:
    """Return a search by each engine under the same budget and seed; FA-DOSA's own is for one buffer alone."""
    engines = [name for name in ENGINES if has_one_buffer or name != FA_DOSA]
    missing = [name for name in engines if not is_installed(name)]
    reasons = [] if has_one_buffer else [f"because it fuses in one buffer: {FA_DOSA}"]
    if missing:
        reasons.append(f"because not installed: {', '.join(missing)} (pip install -r requirements-search.txt)")
    searches = [Search(name, evaluations, seed, most_layers) for name in engines if name not in missing]
    return Contest(searches, [f"not compared, {'; '.join(reasons)}"] * bool(reasons))


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

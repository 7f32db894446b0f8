"""Whether a set of engines fits the board: each in one region, or, where it may span, in what all regions leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from common.fpga.device.resources import Resources, total
from common.fpga.offload.problem import Problem

Instance = tuple[int, int]  # index of the engine type, number of the instance
Placement = tuple[tuple[int, int, int | None], ...]  # the instance and its region, None where it spans


def place(problem: Problem, instances: Sequence[Instance]) -> Placement | None:
    """Regions for these engines, the largest engine first, or None where they do not fit. Exact, by trying all."""
    if shortfall(problem, instances):
        return None
    fixed = [found for found in instances if not problem.engines[found[0]].spans_regions]
    fixed.sort(key=lambda found: (-_size(problem, found[0]), found))
    regions = _pack(problem, fixed, [_fabric(region.budget) for region in problem.regions])
    if regions is None:
        return None
    where = dict(zip(fixed, regions, strict=True))
    return tuple((*found, where.get(found)) for found in sorted(instances))


def shortfall(problem: Problem, instances: Sequence[Instance]) -> str:
    """The resource of which the whole board has too little for these engines together, or an empty word."""
    needed = total(problem.engines[engine].resources for engine, _ in instances)
    return needed.shortfall(_board(problem))


def misfit(problem: Problem, engine: int) -> str:
    """The resource of which an empty board has too little for one such engine, or an empty word."""
    found = problem.engines[engine]
    if (lacking := shortfall(problem, [(engine, 0)])) or found.spans_regions:
        return lacking
    words = [_fabric(found.resources).shortfall(region.budget) for region in problem.regions]
    return "" if "" in words else (words or ["region"])[0]


def _board(problem: Problem) -> Resources:
    fabric = total(region.budget for region in problem.regions)
    return replace(fabric, memory_channels=problem.memory_channels)


def _fabric(resources: Resources) -> Resources:
    """Without memory channels, which no region owns."""
    return replace(resources, memory_channels=0.0)


def _size(problem: Problem, engine: int) -> float:
    resources = problem.engines[engine].resources
    return resources.lut + resources.dsp * 100 + resources.bram36 * 100


def _pack(problem: Problem, fixed: Sequence[Instance], free: list[Resources]) -> tuple[int, ...] | None:
    if not fixed:
        return ()
    needed = _fabric(problem.engines[fixed[0][0]].resources)
    for region, there in enumerate(free):
        if needed.fits(there):
            left = [*free[:region], there + needed.times(-1), *free[region + 1 :]]
            if (rest := _pack(problem, fixed[1:], left)) is not None:
                return (region, *rest)
    return None

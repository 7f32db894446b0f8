"""Assign each engine to a region of the board; an engine that may span regions gets the resources that are left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from common.fpga.device.resources import Resources, total
from common.fpga.offload.problem import Problem

Instance = tuple[int, int]  # index of the engine type, number of the instance
Floorplan = tuple[tuple[int, int, int | None], ...]  # engine type, instance, region; None spans regions


def place(problem: Problem, instances: Sequence[Instance]) -> Floorplan | None:
    """Return a region for each engine, or None if they do not fit. The search is exact: it backtracks."""
    if shortfall(problem, instances):
        return None
    fixed = [instance for instance in instances if not problem.engines[instance[0]].spans_regions]
    fixed.sort(key=lambda instance: (-_size(problem, instance[0]), instance))
    regions = _pack(problem, fixed, [_fabric(region.budget) for region in problem.regions])
    if regions is None:
        return None
    region_of = dict(zip(fixed, regions, strict=True))
    return tuple((*instance, region_of.get(instance)) for instance in sorted(instances))


def shortfall(problem: Problem, instances: Sequence[Instance]) -> str:
    """Name a resource of which the whole board has too little for these engines; empty if it has enough of each."""
    needed = total(problem.engines[engine].resources for engine, _ in instances)
    return needed.shortfall(_board(problem))


def misfit(problem: Problem, engine: int) -> str:
    """Name a resource of which an empty board has too little for one engine of the type; empty if it fits."""
    engine_type = problem.engines[engine]
    if (lacking := shortfall(problem, [(engine, 0)])) or engine_type.spans_regions:
        return lacking
    shortfalls = [_fabric(engine_type.resources).shortfall(region.budget) for region in problem.regions]
    return "" if "" in shortfalls else (shortfalls or ["region"])[0]


def _board(problem: Problem) -> Resources:
    fabric = total(region.budget for region in problem.regions)
    return replace(fabric, memory_channels=problem.memory_channels)


def _fabric(resources: Resources) -> Resources:
    """Leave out memory channels, which belong to no region."""
    return replace(resources, memory_channels=0.0)


def _size(problem: Problem, engine: int) -> float:
    resources = problem.engines[engine].resources
    return resources.lut + resources.dsp * 100 + resources.bram36 * 100


def _pack(problem: Problem, fixed: Sequence[Instance], free: list[Resources]) -> tuple[int, ...] | None:
    if not fixed:
        return ()
    needed = _fabric(problem.engines[fixed[0][0]].resources)
    for region, available in enumerate(free):
        if needed.fits(available):
            left = [*free[:region], available + needed.times(-1), *free[region + 1 :]]
            if (rest := _pack(problem, fixed[1:], left)) is not None:
                return (region, *rest)
    return None

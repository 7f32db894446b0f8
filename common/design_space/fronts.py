"""Choices that add up, of which the product of two sums is to be least: energy times delay.

The product of two positive sums is quasi-concave, so its minimum over a polygon lies at a corner. Whoever chooses one
of several (energy, delay) pairs for each part of a whole needs, of each part, only the corners of the lower left
convex hull: a corner of a sum of sets is a sum of corners. So the best total is found exactly although the objective
is not a sum (Boyd, Vandenberghe, "Convex Optimization", sections 3.4 and 2.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Choice = TypeVar("Choice")


@dataclass(frozen=True, slots=True)
class Corner(Generic[Choice]):
    """A corner of a front: what it costs, and what was chosen."""

    energy_pj: float
    cycles: float
    choice: Choice

    @property
    def edp(self) -> float:
        """Energy-delay product."""
        return self.energy_pj * self.cycles


Front = tuple[Corner[Choice], ...]


def lower_left_hull(points: Iterable[Corner[Choice]]) -> Front[Choice]:
    """Return the corners of the lower left convex hull, by falling energy."""
    hull: list[Corner[Choice]] = []
    for point in sorted(points, key=lambda corner: (corner.cycles, corner.energy_pj)):
        if hull and point.energy_pj >= hull[-1].energy_pj:
            continue
        while len(hull) > 1 and not _turns_left(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return tuple(hull)


def _turns_left(first: Corner[Choice], second: Corner[Choice], third: Corner[Choice]) -> bool:
    """Return whether the second point lies below the line from the first to the third."""
    rise = (second.energy_pj - first.energy_pj) * (third.cycles - first.cycles)
    return rise < (third.energy_pj - first.energy_pj) * (second.cycles - first.cycles)


def best(front: Sequence[Corner[Choice]]) -> Corner[Choice]:
    """Return the corner of the least energy-delay product."""
    return min(front, key=lambda corner: corner.edp)

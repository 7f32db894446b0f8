"""Choices that add up, of which the product of two sums is to be least: energy times delay.

The product of two positive sums is quasi-concave, so its minimum over a polygon is at a vertex. Of several pairs
(energy, delay) for each part of a whole, only the supported Pareto points count: those on the lower left convex hull. A
supported point of a sum of sets is a sum of supported points. So the best total is found exactly, although the
objective is no sum (Boyd, Vandenberghe, "Convex Optimization", sections 3.4 and 2.1; supported points: Ehrgott,
"Multicriteria Optimization", 2005, section 8.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Choice = TypeVar("Choice")
Part = TypeVar("Part", bound=Hashable)
ROUNDING = 1e-12  # relative errors of sums


@dataclass(frozen=True, slots=True)
class SupportedPoint(Generic[Choice]):
    """A supported Pareto point: its costs, and the choice that has them."""

    energy_pj: float
    cycles: float
    choice: Choice

    @property
    def edp(self) -> float:
        return self.energy_pj * self.cycles


Front = tuple[SupportedPoint[Choice], ...]
NOTHING = SupportedPoint(0.0, 0.0, None)


def lower_corners(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the places of the pairs that no other pair is below in one number and not above in the other."""
    order = np.lexsort((second, first))
    falls = np.minimum.accumulate(second[order])
    return np.asarray(order[np.append([True], falls[1:] < falls[:-1])[: len(order)]])


def lower_left_hull(points: Iterable[SupportedPoint[Choice]]) -> Front[Choice]:
    """Return the points on the lower left convex hull, by falling energy."""
    hull: list[SupportedPoint[Choice]] = []
    for point in sorted(points, key=lambda point: (point.cycles, point.energy_pj)):
        if hull and point.energy_pj >= hull[-1].energy_pj:
            continue
        while len(hull) > 1 and not _turns_left(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return tuple(hull)


def _turns_left(first: SupportedPoint[Choice], second: SupportedPoint[Choice], third: SupportedPoint[Choice]) -> bool:
    rise = (second.energy_pj - first.energy_pj) * (third.cycles - first.cycles)
    return rise < (third.energy_pj - first.energy_pj) * (second.cycles - first.cycles)


def best(front: Sequence[SupportedPoint[Choice]]) -> SupportedPoint[Choice]:
    return min(front, key=lambda point: point.edp)


def least_product(weighed: Callable[[float, float], SupportedPoint[Choice]]) -> SupportedPoint[Choice]:
    """Return the point of the least product, of a set that is known only by its least weighted sums.

    The least product is at a supported point. Between two known points, the weights of the line through them find a
    point below that line, or prove that there is none. No point is below the lines that found the two known ones. Where
    even the crossing of those lines is no better than the best known point, nothing is sought in between. ``weighed``
    returns a point of the least sum of energy and cycles, times these two weights.
    """
    first, last = weighed(1.0, 0.0), weighed(0.0, 1.0)
    least = best((first, last))
    waiting = [(first, (1.0, 0.0), last, (0.0, 1.0))]
    while waiting:
        left, left_weights, right, right_weights = waiting.pop()
        weights = (left.cycles - right.cycles, right.energy_pj - left.energy_pj)
        if min(weights) <= 0 or _crossing(left, left_weights, right, right_weights) >= least.edp * (1 - ROUNDING):
            continue
        middle = weighed(*weights)
        if _sum(weights, middle) < _sum(weights, left) * (1 - ROUNDING):
            least = best((least, middle))
            waiting += [(left, left_weights, middle, weights), (middle, weights, right, right_weights)]
    return least


def _sum(weights: tuple[float, float], point: SupportedPoint[Choice]) -> float:
    return weights[0] * point.energy_pj + weights[1] * point.cycles


def _crossing(
    left: SupportedPoint[Choice],
    left_weights: tuple[float, float],
    right: SupportedPoint[Choice],
    right_weights: tuple[float, float],
) -> float:
    """Return the product at the crossing of two lines, each through a point and given by its weights."""
    determinant = left_weights[0] * right_weights[1] - left_weights[1] * right_weights[0]
    if not determinant:
        return 0.0
    left_sum, right_sum = _sum(left_weights, left), _sum(right_weights, right)
    energy_pj = (left_sum * right_weights[1] - right_sum * left_weights[1]) / determinant
    cycles = (right_sum * left_weights[0] - left_sum * right_weights[0]) / determinant
    return energy_pj * cycles


def sum_of_fronts(
    fronts: Mapping[Part, tuple[Front[Choice], int]], fixed: SupportedPoint[None] = NOTHING
) -> dict[Part, SupportedPoint[Choice]]:
    """Return the supported point of each part's front that gives the least product of all energy and all cycles.

    The walk over the points of the sum goes from the fewest cycles to the least energy. In each step, the part whose
    next point saves the most energy per cycle moves on to it. Equal parts move together.

    Args:
        fronts: the front of each part, as :func:`lower_left_hull` returns it, and how often the part occurs.
        fixed: what the whole costs beside its parts.
    """
    chosen = {part: front[0] for part, (front, _) in fronts.items()}
    cycles = sum(times * front[0].cycles for front, times in fronts.values()) + fixed.cycles
    energy = sum(times * front[0].energy_pj for front, times in fronts.values()) + fixed.energy_pj
    moves = [(part, times, *pair) for part, (front, times) in fronts.items() for pair in pairwise(front)]
    moves.sort(key=lambda move: (move[3].energy_pj - move[2].energy_pj) / (move[3].cycles - move[2].cycles))
    best_points, least = dict(chosen), cycles * energy
    for part, times, before, after in moves:
        cycles += times * (after.cycles - before.cycles)
        energy += times * (after.energy_pj - before.energy_pj)
        chosen[part] = after
        if cycles * energy < least:
            best_points, least = dict(chosen), cycles * energy
    return best_points

"""Placement of labels so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, hypot, pi, sin

Point = tuple[float, float]
DIRECTIONS = 24
RINGS = 14


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Move values apart along a line until neighbours are ``gap`` apart; each cluster stays centred on its mean.

    Adjacent values that would overlap are pooled (as in isotonic regression), so that nothing moves without need.
    """
    order = sorted(range(len(values)), key=lambda index: values[index])
    clusters: list[list[float]] = []  # members' wanted positions
    for index in order:
        clusters.append([values[index]])
        while len(clusters) > 1 and _start(clusters[-1], gap) < _start(clusters[-2], -gap) + gap:
            clusters[-2:] = [clusters[-2] + clusters[-1]]
    placed = [_start(cluster, gap) + gap * rank for cluster in clusters for rank in range(len(cluster))]
    moved = dict(zip(order, placed, strict=True))
    return [moved[index] for index in range(len(values))]


def _start(cluster: Sequence[float], gap: float) -> float:
    """Return where a cluster begins; with a negative gap, where it ends."""
    return sum(cluster) / len(cluster) - gap * (len(cluster) - 1) / 2


def place_around(
    points: Sequence[Point], radii: Sequence[float], others: Sequence[Point], clearance: float, low: Point, high: Point
) -> list[Point]:
    """Return a place for the label of each point: the nearest that is clear of earlier labels and of every mark.

    A point around which no place is clear keeps its label on itself.

    Args:
        points: centres of the marks that get a label; ``others`` are those of all other, smaller marks.
        clearance: least distance between the centres of two labels; half of it between a label and a mark's rim.
        low: lower left corner of the room that labels may use; ``high`` is its upper right corner.
    """
    placed: list[Point] = []
    marks = [*zip(points, radii, strict=True), *((other, min(radii, default=0.0)) for other in others)]
    for point, radius in zip(points, radii, strict=True):
        clear = (
            (x, y)
            for x, y in _around(point, radius + clearance * 0.75, clearance * 0.6)
            if low[0] <= x <= high[0]
            and low[1] <= y <= high[1]
            and all(hypot(x - a, y - b) >= clearance for a, b in placed)
            and all(hypot(x - a, y - b) >= size + clearance * 0.5 for (a, b), size in marks)
        )
        placed.append(next(clear, point))
    return placed


def _around(centre: Point, first: float, step: float) -> list[Point]:
    return [
        (centre[0] + distance * cos(angle), centre[1] + distance * sin(angle))
        for distance in (first + ring * step for ring in range(RINGS))
        for angle in (pi / 2 + 2 * pi * turn / DIRECTIONS for turn in range(DIRECTIONS))
    ]

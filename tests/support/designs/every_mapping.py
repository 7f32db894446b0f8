"""Every mapping of a small nest with one tile: all sizes of the tile, all copies in space, all orders at DRAM.

Nothing is left out because another mapping dominates it, and nothing of the search is used.
"""

from __future__ import annotations

import itertools

import numpy as np

from common.design_space.mapping.mappings import Mappings
from common.workload.loop_nests import LOOPS

INSIDE = tuple(LOOPS.index(loop) for loop in "NPQGKCRS")


def divisions(loop, extent, hardware):
    """Steps at DRAM, steps inside a tile, and copies below each level, for every size of the tile and all copies."""
    rooms = [
        range(1, min(extent, getattr(hardware.array, level.fanouts[0].axis)) + 1)
        if level.fanouts and loop in level.fanouts[0].loops
        else range(1, 2)
        for level in hardware.levels
    ]
    return np.array(
        [
            (-(-extent // (inner * int(np.prod(copies)))), inner, *copies)
            for copies in itertools.product(*rooms)
            for inner in range(1, -(-extent // int(np.prod(copies))) + 1)
        ]
    )


def every_mapping(nest, hardware, inside_orders=(INSIDE,)):
    """All mappings whose copies the array has, with the loops of a tile at the innermost memory that is shared."""
    choices = [divisions(loop, extent, hardware) for loop, extent in nest.bounds.items()]
    numbers = np.indices([len(of_loop) for of_loop in choices]).reshape(len(LOOPS), -1)
    chosen = np.stack([of_loop[number] for of_loop, number in zip(choices, numbers, strict=True)], axis=-1)
    outer, inner, spatial = chosen[:, 0], chosen[:, 1], chosen[:, 2:]
    rooms = [getattr(hardware.array, level.fanouts[0].axis) if level.fanouts else 1 for level in hardware.levels]
    kept = (spatial.prod(axis=2) <= rooms).all(axis=1)
    outer, inner, spatial = outer[kept], inner[kept], spatial[kept]
    temporal = np.ones(spatial.shape)
    temporal[:, 0] = outer
    shared = [index for index, level in enumerate(hardware.levels) if level.copies != "element"]
    temporal[:, shared[-1]] *= inner
    parts = []
    for steps in np.unique(outer > 1, axis=0):
        rows = np.flatnonzero(((outer > 1) == steps).all(axis=1))
        running, rest = np.flatnonzero(steps), np.flatnonzero(~steps)
        for loops, inside in itertools.product(itertools.permutations(running), inside_orders):
            order = np.empty((len(rows), *spatial.shape[1:]), dtype=int)
            order[:] = inside
            order[:, 0] = [*loops, *rest]
            parts.append((temporal[rows], spatial[rows] * 1.0, order))
    return Mappings(*(np.concatenate(part) for part in zip(*parts, strict=True)))

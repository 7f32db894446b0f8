"""Every mapping of a small nest with a tile at each level: all sizes, all copies, all orders, all bypasses.

Nothing is left out because another mapping dominates it, and nothing of the search is used.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from common.design_space.mapping.cost import cost
from common.design_space.mapping.dataflow import respects
from common.design_space.mapping.mappings import Mappings
from common.design_space.mapping.traffic import Nests
from common.workload.loop_nests import LOOPS

CHUNK = 200_000


def divisions(extent, rooms):
    """Steps at each level, and copies at each fan-out below each level, from the innermost level outwards.

    ``rooms`` has a list of the most copies at each fan-out of each level.
    """

    def inside(levels, covered):
        if len(levels) == 1:
            for copies in itertools.product(*(range(1, min(room, extent) + 1) for room in levels[0])):
                total = covered * int(np.prod(copies, dtype=int))
                yield [(-(-extent // total), copies)]
            return
        *outer, own = levels
        for copies in itertools.product(*(range(1, min(room, extent) + 1) for room in own)):
            below = covered * int(np.prod(copies, dtype=int))
            for steps in range(1, -(-extent // below) + 1):
                for rest in inside(outer, below * steps):
                    yield [*rest, (steps, copies)]

    return [*inside(rooms, 1)]


def divisions_of(nest, hardware):
    """The ways to divide each loop of a nest."""
    fanouts = [list(level.fanouts) for level in hardware.levels]
    return [
        divisions(extent, [[fanout.room(loop, hardware.array) for fanout in of_level] for of_level in fanouts])
        for loop, extent in nest.bounds.items()
    ]


def every_chain(nest, hardware):
    """All mappings, in batches."""
    fanouts = [list(level.fanouts) for level in hardware.levels]
    choices = divisions_of(nest, hardware)
    sizes = [getattr(hardware.array, fanout.axis) for of_level in fanouts for fanout in of_level]
    steps = [np.array([[level[0] for level in chain] for chain in of_loop]) for of_loop in choices]
    copies = [
        np.array([[count for level in chain for count in level[1]] for chain in of_loop]).reshape(len(of_loop), -1)
        for of_loop in choices
    ]
    of_level = [index for index, level in enumerate(fanouts) for _ in level]
    shape = [len(of_loop) for of_loop in choices]
    for start in range(0, int(np.prod(shape)), CHUNK):
        numbers = np.unravel_index(np.arange(start, min(start + CHUNK, int(np.prod(shape)))), shape)
        temporal = np.stack([table[at] for table, at in zip(steps, numbers, strict=True)], axis=-1)
        laid_out = np.stack([table[at] for table, at in zip(copies, numbers, strict=True)], axis=-1)
        kept = (laid_out.prod(axis=2) <= sizes).all(axis=1)
        temporal, laid_out = temporal[kept], laid_out[kept]
        spatial = np.ones(temporal.shape)
        for at, level in enumerate(of_level):
            spatial[:, level] *= laid_out[:, at]
        yield from in_every_order(temporal, spatial)


def in_every_order(temporal, spatial):
    """Mappings in all orders of the loops that step at each level."""
    for pattern in np.unique(temporal > 1, axis=0):
        rows = np.flatnonzero(((temporal > 1) == pattern).all(axis=(1, 2)))
        orders = [
            [[*loops, *np.flatnonzero(~of_level)] for loops in itertools.permutations(np.flatnonzero(of_level))]
            for of_level in pattern
        ]
        for chosen in itertools.product(*orders):
            order = np.broadcast_to(np.array(chosen, dtype=int), temporal[rows].shape)
            yield Mappings(temporal[rows] * 1.0, spatial[rows], order)


def hierarchies(hardware):
    """The accelerator with each choice of operands that pass by its levels."""
    subsets = [
        [frozenset(chosen) for count in range(4) for chosen in itertools.combinations(sorted(names), count)]
        for names in map(hardware.may_pass, range(len(hardware.levels)))
    ]
    for passed in itertools.product(*subsets):
        levels = [replace(level, passed=names) for level, names in zip(hardware.levels, passed, strict=True)]
        yield replace(hardware, levels=tuple(levels))


def brute_force(nest, hardware):
    """Cycles and energy of every mapping that fits."""
    assert len(LOOPS) == 8
    parts = [np.empty((0, 2))]
    for variant in hierarchies(hardware):
        for mappings in every_chain(nest, variant):
            result = cost(mappings, Nests.of([nest]), variant)
            fits = result.fits & respects(mappings, variant)
            parts.append(np.unique(np.stack([result.cycles, result.energy_pj], axis=-1)[fits], axis=0))
    return np.concatenate(parts).T

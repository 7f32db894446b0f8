"""Every mapping of a small nest, whatever dominates it."""

from __future__ import annotations

import itertools

import numpy as np

from common.design_space.mapping.mappings import Mappings
from common.workload.loop_nests import LOOPS


def factorisations(extent):
    """Triples that multiply to an extent: steps at DRAM, steps inside, copies in space."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return [(extent // (a * b), a, b) for a in divisors for b in divisors if extent % (a * b) == 0]


def every_mapping(nest):
    """All tiles, all copies in space of K and C, and all orders of the loops that step at DRAM."""
    inside = [LOOPS.index(loop) for loop in "NPQGKCRS"]
    choices = [
        [triple for triple in factorisations(nest.bounds[loop]) if loop in "KC" or triple[2] == 1] for loop in LOOPS
    ]
    temporal, spatial, order = [], [], []
    for triples in itertools.product(*choices):
        outer, inner, copies = np.array(triples).T
        running = [loop for loop in range(len(LOOPS)) if outer[loop] > 1]
        for loops in itertools.permutations(running):
            temporal.append([outer, np.ones(8), inner, np.ones(8)])
            spatial.append(np.ones((4, 8)))
            for level, loop in ((1, LOOPS.index("K")), (2, LOOPS.index("C"))):
                spatial[-1][level, loop] = copies[loop]
            rest = [loop for loop in range(len(LOOPS)) if loop not in loops]
            order.append([[*loops, *rest], inside, inside, inside])
    return Mappings(*(np.array(values) for values in (temporal, spatial, order)))

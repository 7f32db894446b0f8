"""Decoupled search: first the mapping, with zeros for all later choices; then those, with the mapping fixed.

Tools that map layers before they fuse them work like this. Each step is a descent, one choice after the other. So the
distance to the best schedule is the price of deciding in two steps, not of a weak search.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import numpy as np

from common.design_space.search.engines.random_engine import draw
from common.design_space.search.problem import Choices, Costs, Proposals, SearchProblem

DRAWS = 32  # starts of which the best descends

Descent = Generator[Choices, Costs, Choices]


def propose(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose what both steps try, again and again from another start."""
    generator = np.random.default_rng(seed)
    first, every = problem.first_choice_count, len(problem.choice_sizes)
    while True:
        starts = draw(problem, DRAWS, generator)
        starts[:, first:] = 0
        products = yield starts
        settled = yield from _descend(problem, starts[np.argmin(products)], range(first))
        yield from _descend(problem, settled, range(first, every))


def _descend(problem: SearchProblem[object], start: Choices, places: Iterable[int]) -> Descent:
    """Return a vector that no change of one choice improves, from a start."""
    here, least = start, np.inf
    while True:
        before = least
        for place in places:
            tried = np.tile(here, (problem.choice_sizes[place], 1))
            tried[:, place] = np.arange(len(tried))
            products = yield tried
            best = int(np.argmin(products))
            if products[best] < least:
                here, least = tried[best], float(products[best])
        if not least < before:
            return here

"""Engines without a model of what they search: schedules at random, the least to beat, and a search in two steps.

The decoupled search chooses the mapping first, with zeros for all later choices; then those, with the mapping fixed.
Tools that map layers before they fuse them work like this. Each step is a descent, one choice after the other. So the
distance to the best schedule is the price of deciding in two steps, not of a weak search.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import numpy as np

from common.design_space.search.problem import Choices, Costs, Proposals, SearchProblem

BATCH = 256  # random schedules
DRAWS = 32  # starts of which the best descends


def draw(problem: SearchProblem[object], count: int, generator: np.random.Generator) -> Choices:
    """Return vectors of choices, each value of each choice equally likely."""
    return generator.integers(0, problem.choice_sizes, (count, len(problem.choice_sizes)))


def propose_at_random(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose schedules at random, whatever they cost."""
    generator = np.random.default_rng(seed)
    while True:
        yield draw(problem, BATCH, generator)


def propose_in_two_steps(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose what both steps try, again and again from another start."""
    generator = np.random.default_rng(seed)
    first, every = problem.first_choice_count, len(problem.choice_sizes)
    while True:
        starts = draw(problem, DRAWS, generator)
        starts[:, first:] = 0
        products = yield starts
        settled = yield from _descend(problem, starts[np.argmin(products)], range(first))
        yield from _descend(problem, settled, range(first, every))


def _descend(
    problem: SearchProblem[object], start: Choices, places: Iterable[int]
) -> Generator[Choices, Costs, Choices]:
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

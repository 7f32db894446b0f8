"""Schedules that are drawn at random: the least that any other engine has to beat."""

from __future__ import annotations

import numpy as np

from common.design_space.search.problem import Choices, Proposals, SearchProblem

BATCH = 256


def draw(problem: SearchProblem[object], count: int, generator: np.random.Generator) -> Choices:
    """Return vectors of choices, each value of each choice equally likely."""
    return generator.integers(0, problem.choice_sizes, (count, len(problem.choice_sizes)))


def propose(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose schedules at random, whatever they cost."""
    generator = np.random.default_rng(seed)
    while True:
        yield draw(problem, BATCH, generator)

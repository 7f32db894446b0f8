"""Nevergrad's differential evolution with two-point crossover (github.com/facebookresearch/nevergrad)."""

from __future__ import annotations

import numpy as np

from common.design_space.search.problem import Proposals, SearchProblem, at_points, losses

OPTIMIZER = "TwoPointsDE"  # the best of four that were tried on ResNet-18; NGOpt picks one by the size of the problem


def propose(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose what the optimizer asks for in the unit cube, one schedule after the other."""
    import nevergrad

    space = nevergrad.p.Array(shape=(len(problem.choice_sizes),), lower=0, upper=1)
    space.random_state.seed(seed)
    optimizer = nevergrad.optimizers.registry[OPTIMIZER](parametrization=space)
    while True:
        point = optimizer.ask()
        products = yield at_points(np.asarray(point.value)[None], problem)
        optimizer.tell(point, losses(products)[0])

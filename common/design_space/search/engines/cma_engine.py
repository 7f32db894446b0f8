"""The covariance matrix adaptation evolution strategy (Hansen and Ostermeier, Evolutionary Computation 9(2), 2001)."""

from __future__ import annotations

import numpy as np

from common.design_space.search.problem import Proposals, SearchProblem, at_points, losses

STEP = 0.3  # first standard deviation, of the unit cube: what the package's manual recommends
LEAST_AXES = 2  # of the package


def propose(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose what the strategy samples in the unit cube; where it converges, it starts again elsewhere."""
    import cma

    generator = np.random.default_rng(seed)
    while True:
        start = generator.uniform(size=max(LEAST_AXES, len(problem.choice_sizes)))
        options = {"bounds": [0, 1], "seed": int(generator.integers(1, 2**31)), "verbose": -9}
        strategy = cma.CMAEvolutionStrategy(start, STEP, options)
        while not strategy.stop():
            points = strategy.ask()
            products = yield at_points(np.array(points), problem)
            strategy.tell(points, losses(products))

"""Engines of other packages: each is asked for schedules, and told the logarithms of what they cost."""

from __future__ import annotations

import numpy as np

from common.design_space.search.problem import Proposals, SearchProblem, at_points, losses

STEP = 0.3  # first standard deviation of CMA-ES, of the unit cube: what the package's manual recommends
LEAST_AXES = 2  # of CMA-ES
OPTIMIZER = "TwoPointsDE"  # the best of four that were tried on ResNet-18; NGOpt picks one by the size of the problem


def propose_by_cma(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose what an evolution strategy samples; where it converges, it starts again elsewhere.

    It adapts a covariance matrix (Hansen and Ostermeier, Evolutionary Computation 9(2), 2001).
    """
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


def propose_by_nevergrad(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose what differential evolution with two-point crossover asks for, one schedule after the other.

    It is Nevergrad's (github.com/facebookresearch/nevergrad).
    """
    import nevergrad

    space = nevergrad.p.Array(shape=(len(problem.choice_sizes),), lower=0, upper=1)
    space.random_state.seed(seed)
    optimizer = nevergrad.optimizers.registry[OPTIMIZER](parametrization=space)
    while True:
        point = optimizer.ask()
        products = yield at_points(np.asarray(point.value)[None], problem)
        optimizer.tell(point, losses(products)[0])


def propose_by_optuna(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose what a tree-structured Parzen estimator suggests, one schedule after the other.

    It is Optuna's (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", 2011).
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    while True:
        trial = study.ask()
        chosen = [trial.suggest_int(f"choice {i}", 0, size - 1) for i, size in enumerate(problem.choice_sizes)]
        products = yield np.array([chosen])
        study.tell(trial, losses(products)[0])

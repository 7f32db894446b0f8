"""Optuna's tree-structured Parzen estimator (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", 2011)."""

from __future__ import annotations

import numpy as np

from common.design_space.search.problem import Proposals, SearchProblem, losses


def propose(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose what the estimator suggests, one schedule after the other."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    while True:
        trial = study.ask()
        chosen = [trial.suggest_int(f"choice {i}", 0, size - 1) for i, size in enumerate(problem.choice_sizes)]
        products = yield np.array([chosen])
        study.tell(trial, losses(products)[0])

"""Gradient descent on relaxed schedules, rounded at each step, and then improved move by move.

A *relaxation* of a problem has real parameters in place of whole choices, and a cost with a gradient (PyTorch). Several
restarts descend side by side while a temperature falls. At each step the parameters are rounded, and what they are
rounded to is proposed, so that each step is an evaluation and its result a schedule. The best of each restart is then
polished: the best of its moves replaces it as long as one is better. Rounds of both follow each other, from parameters
that are drawn anew.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import prod

import numpy as np

from common.design_space.mapping.arrays import torch_module
from common.design_space.search.problem import Choices, Costs, Descent, Proposals, SearchProblem

RESTARTS = 2
STEPS = 4
RATE = 0.3
WARM, COLD = 1.0, 0.5  # the first and the last temperature of a descent
Known = dict[bytes, float]  # products of schedules


def propose(problem: SearchProblem[object], seed: int) -> Proposals:
    """Propose what gradient descent and polishing come to, round after round; PipelineError without PyTorch."""
    generator = torch_module().Generator().manual_seed(seed)
    known = Known()
    while len(known) < prod(problem.choice_sizes):
        starts = yield from _descended(problem.descent(RESTARTS, generator), known)
        yield from _polished(problem, starts, known)


def _descended(descent: Descent, known: Known) -> Generator[Choices, Costs, list[Choices]]:
    """Propose the steps of a descent; return the best schedule of each restart."""
    optimizer = torch_module().optim.Adam(descent.parameters, lr=RATE)
    best: dict[int, tuple[float, Choices]] = {}
    for step in range(STEPS):
        choices, restarts, loss = descent.step(WARM * (COLD / WARM) ** (step / (STEPS - 1)))
        products = yield choices
        for schedule, restart, product in zip(choices, restarts, products, strict=True):
            known[schedule.tobytes()] = product
            if restart not in best or product < best[restart][0]:
                best[restart] = product, schedule
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [schedule for _, schedule in best.values()]


def _polished(
    problem: SearchProblem[object], starts: Sequence[Choices], known: Known
) -> Generator[Choices, Costs, None]:
    """Propose all moves of each schedule, and go on from the best as long as it is better."""
    here = [*starts]
    while here:
        moves = [problem.moves(schedule) for schedule in here]
        new = {
            schedule.tobytes(): schedule
            for neighbours in moves
            for schedule in neighbours
            if schedule.tobytes() not in known
        }
        if new:
            products = yield np.array([*new.values()])
            known.update(zip(new, products.tolist(), strict=True))
        ahead = {}
        for schedule, neighbours in zip(here, moves, strict=True):
            best = min(neighbours, key=lambda move: known[move.tobytes()], default=schedule)
            if known[best.tobytes()] < known[schedule.tobytes()]:
                ahead[best.tobytes()] = best
        here = [*ahead.values()]

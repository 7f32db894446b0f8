"""Gradient descent on relaxed schedules, rounded at each step, and then improved move by move.

A *relaxation* of a problem has real parameters in place of whole choices, and a cost with a gradient (PyTorch). Several
restarts descend side by side while a temperature falls. At each step the parameters are rounded, and what they are
rounded to is proposed, so that each step is an evaluation and its result a schedule. The best of each restart is then
polished: the best of its moves replaces it as long as one is better. Rounds of both follow each other, from parameters
that are drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from common.design_space.arrays import torch_namespace
from common.design_space.engines.fused_problem import FusedProblem
from common.design_space.engines.fused_relaxation import FusedRelaxation
from common.design_space.engines.mapped_problem import MappedProblem
from common.design_space.engines.mapped_relaxation import MappedRelaxation
from common.design_space.engines.problem import Choices, Costs, Proposals, SearchProblem

RESTARTS = 2
STEPS = 4
RATE = 0.3
WARM, COLD = 1.0, 0.5  # the first and the last temperature of a descent
Known = dict[bytes, float]  # products of schedules


class Descent(Protocol):
    """The parameters of some restarts."""

    @property
    def parameters(self) -> Sequence[Any]:
        """What an optimizer moves."""

    def step(self, temperature: float) -> tuple[Choices, Sequence[int], Any]:
        """Return the rounded parameters as schedules, the restart of each schedule, and a loss with a gradient."""


class Relaxation(Protocol):
    """A problem whose choices are real numbers as well."""

    def descent(self, restarts: int, generator: Any) -> Descent:
        """Return parameters that PyTorch's generator draws."""

    def moves(self, choices: Choices) -> Choices:
        """Return the schedules that differ from one by a single move."""


RELAXATIONS: Sequence[tuple[type, Callable[[Any], Relaxation]]] = (
    (MappedProblem, MappedRelaxation),
    (FusedProblem, FusedRelaxation),
)


def relaxation(problem: SearchProblem) -> Relaxation:
    """Return the relaxation of a problem."""
    for kind, relaxed in RELAXATIONS:
        if isinstance(problem, kind):
            return relaxed(problem)
    raise TypeError(type(problem).__name__)


def propose(problem: SearchProblem, seed: int) -> Proposals:
    """Propose what gradient descent and polishing come to, round after round.

    Raises:
        PipelineError: PyTorch is not installed.
    """
    generator = torch_namespace().module.Generator().manual_seed(seed)
    relaxed, known = relaxation(problem), Known()
    while len(known) < prod(problem.choice_sizes):
        starts = yield from _descended(relaxed.descent(RESTARTS, generator), known)
        yield from _polished(relaxed, starts, known)


def _descended(descent: Descent, known: Known) -> Generator[Choices, Costs, list[Choices]]:
    """Propose the steps of a descent; return the best schedule of each restart."""
    optimizer = torch_namespace().module.optim.Adam(descent.parameters, lr=RATE)
    best: dict[int, tuple[float, Choices]] = {}
    for step in range(STEPS):
        choices, restarts, loss = descent.step(WARM * (COLD / WARM) ** (step / (STEPS - 1)))
        products = yield choices
        for one, restart, product in zip(choices, restarts, products, strict=True):
            known[one.tobytes()] = product
            if restart not in best or product < best[restart][0]:
                best[restart] = product, one
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [one for _, one in best.values()]


def _polished(relaxed: Relaxation, starts: Sequence[Choices], known: Known) -> Generator[Choices, Costs, None]:
    """Propose all moves of each schedule, and go on from the best as long as it is better."""
    here = [*starts]
    while here:
        moves = [relaxed.moves(one) for one in here]
        new = {one.tobytes(): one for several in moves for one in several if one.tobytes() not in known}
        if new:
            products = yield np.array([*new.values()])
            known.update(zip(new, products.tolist(), strict=True))
        ahead = {}
        for one, several in zip(here, moves, strict=True):
            best = min(several, key=lambda move: known[move.tobytes()], default=one)
            if known[best.tobytes()] < known[one.tobytes()]:
                ahead[best.tobytes()] = best
        here = [*ahead.values()]

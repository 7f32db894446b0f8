"""The search core: an engine searches all parts of a model side by side until one budget of evaluations is spent.

Each part has an engine of its own. The engines take turns, so a whole schedule is known from the start and improves.
The energy-delay product of the whole is no sum over parts. So the search keeps the supported points (cycles, energy) of
each part, of all evaluated schedules, and combines them (:mod:`common.design_space.search.fronts`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from common.design_space.accelerator.hardware import NothingFitsError
from common.design_space.search.fronts import (
    NOTHING,
    Front,
    SupportedPoint,
    lower_corners,
    lower_left_hull,
    sum_of_fronts,
)
from common.design_space.search.observer import UNOBSERVED, SearchObserver
from common.design_space.search.problem import Choices, Costs, Engine, Proposals, SearchProblem
from common.messages.errors import UnusableValueError

Part = TypeVar("Part", bound=Hashable)
Schedule = TypeVar("Schedule")
Improvement = tuple[int, float]
LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ModelPart(Generic[Schedule]):
    """A part of a model: its problem, and how often it runs in one inference."""

    problem: SearchProblem[Schedule]
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Searched(Generic[Part, Schedule]):
    """The findings of a search."""

    # The supported point of each part, whose choice is the problem's schedule; costs are those of one run
    schedules: Mapping[Part, SupportedPoint[Schedule]]
    edp: float  # of one inference
    evaluation_count: int  # schedules of parts whose cost was computed
    curve: tuple[Improvement, ...]  # after how many evaluations the best product in pJ·cycles fell, and to what
    is_complete: bool


@dataclass
class _Turns(Generic[Schedule]):
    """The turns of one part: evaluations that are left, supported points so far, and what the last proposals cost."""

    part: ModelPart[Schedule]
    proposals: Proposals
    left: int
    front: Front[Choices] = ()
    products: Costs | None = None

    def take(self) -> int:
        """Evaluate what the engine proposes next, as far as the budget goes; return the number of evaluations."""
        try:
            batch = next(self.proposals) if self.products is None else self.proposals.send(self.products)
        except StopIteration:
            self.left = 0
            return 0
        self.products = self.evaluate(batch[: self.left])
        return len(self.products)

    def evaluate(self, batch: Choices) -> Costs:
        """Return the product of each schedule of a batch, and keep those that no other dominates."""
        cycles, energy = self.part.problem.evaluate(batch)
        self.left -= len(batch)
        fits = np.flatnonzero(np.isfinite(cycles) & np.isfinite(energy))
        best = fits[lower_corners(cycles[fits], energy[fits])]
        points = [SupportedPoint(float(energy[i]), float(cycles[i]), batch[i]) for i in best]
        if points:
            self.front = lower_left_hull([*self.front, *points])
        return cycles * energy


def search(
    parts: Mapping[Part, ModelPart[Schedule]],
    engine: Engine,
    evaluation_count: int,
    seed: int,
    observer: SearchObserver = UNOBSERVED,
    fixed: SupportedPoint[None] = NOTHING,
) -> Searched[Part, Schedule]:
    """Return the best schedule that an engine finds within a budget of evaluations.

    Each part gets an equal share of the evaluations. Its first one is the vector of zeros, so that there is always a
    schedule. A search that is interrupted still evaluates that one of each part.

    Args:
        parts: what to search, by any name.
        evaluation_count: schedules of parts whose cost is computed.
        seed: of all that the engine draws.
        observer: hears of improvements, and may end the search.
        fixed: what the model costs beside its parts.

    Raises:
        UnusableValueError: there are fewer evaluations than parts.
        NothingFitsError: nothing fits.
    """
    whole = _Whole(_begin(parts, engine, evaluation_count, seed), fixed)
    spent, curve = len(parts), [(len(parts), whole.best.edp)]
    while waiting := [turns for turns in whole.turns.values() if turns.left]:
        for turns in waiting:
            observer.hear(spent, evaluation_count, curve[-1][1])
            if observer.is_interrupted:
                return whole.searched(spent, curve, is_complete=False)
            before = turns.front
            spent += turns.take()
            if turns.front != before and (edp := whole.best.edp) < curve[-1][1]:
                curve.append((spent, edp))
    observer.hear(spent, evaluation_count, curve[-1][1])
    return whole.searched(spent, curve, is_complete=True)


def _begin(
    parts: Mapping[Part, ModelPart[Schedule]], engine: Engine, evaluation_count: int, seed: int
) -> dict[Part, _Turns[Schedule]]:
    if evaluation_count < len(parts):
        problem = f"{evaluation_count} is fewer than one for each of {len(parts)} distinct parts of the model"
        raise UnusableValueError("evaluations", problem, f"give {len(parts)} or more")
    share, left_over = divmod(evaluation_count, len(parts))
    seeds = np.random.SeedSequence(seed).generate_state(len(parts)) % LARGEST_SEED + 1
    every: dict[Part, _Turns[Schedule]] = {}
    for index, (name, part) in enumerate(parts.items()):
        turns = _Turns(part, engine(part.problem, int(seeds[index])), share + (index < left_over))
        turns.evaluate(np.zeros((1, len(part.problem.choice_sizes)), dtype=np.int64))
        if not turns.front:
            raise NothingFitsError("hardware", "no tile of a layer fits its memories", "")
        every[name] = turns
    return every


@dataclass(frozen=True)
class _Whole(Generic[Part, Schedule]):
    """All parts of a model, and what it costs beside them."""

    turns: Mapping[Part, _Turns[Schedule]]
    fixed: SupportedPoint[None]

    @property
    def best(self) -> SupportedPoint[Mapping[Part, SupportedPoint[Choices]]]:
        """The least product of what was evaluated: the supported point of each part."""
        runs = {name: turns.part.runs for name, turns in self.turns.items()}
        chosen = sum_of_fronts({name: (turns.front, runs[name]) for name, turns in self.turns.items()}, self.fixed)
        energy_pj = sum(runs[name] * point.energy_pj for name, point in chosen.items())
        cycles = sum(runs[name] * point.cycles for name, point in chosen.items())
        return SupportedPoint(self.fixed.energy_pj + energy_pj, self.fixed.cycles + cycles, chosen)

    def searched(self, spent: int, curve: Sequence[Improvement], *, is_complete: bool) -> Searched[Part, Schedule]:
        best = self.best
        schedules = {
            name: SupportedPoint(point.energy_pj, point.cycles, self.turns[name].part.problem.schedule(point.choice))
            for name, point in best.choice.items()
        }
        return Searched(schedules, best.edp, spent, tuple(curve), is_complete)

"""The problem that a search engine solves: whole numbers to choose, and the costs of the choices.

A *problem* is one part of a model on one accelerator: the mapping of a contraction, or the fused groups of all layers.
Its *relaxation*, which :meth:`SearchProblem.descent` starts, has real parameters in place of the choices. An *engine*
proposes batches of choices and gets their costs. It knows neither the meaning of a choice, nor the budget, nor the
other parts that are searched at the same time. So each engine searches every kind of problem.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Generator as TorchGenerator
    from torch import Tensor

Schedule_co = TypeVar("Schedule_co", covariant=True)
Choices: TypeAlias = NDArray[np.int64]
Costs: TypeAlias = NDArray[np.float64]


class Descent(Protocol):
    """A relaxed problem: the real parameters of some restarts."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """The tensors that an optimizer moves."""

    def step(self, temperature: float) -> tuple[Choices, Sequence[int], Tensor]:
        """Return the rounded parameters as schedules, the restart of each schedule, and a loss with a gradient."""


class SearchProblem(Protocol[Schedule_co]):
    """A space of schedules.

    The vector of zeros is a schedule that fits if any does.
    """

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        """Values of each choice: choice ``i`` is a whole number from 0 to before ``choice_sizes[i]``."""

    @property
    def first_choice_count(self) -> int:
        """Choices that a search in two steps settles first, with zeros for the others."""

    def evaluate(self, choices: Choices) -> tuple[Costs, Costs]:
        """Return cycles and energy in pJ of schedules, whose choices are rows; infinite where one does not fit."""

    def schedule(self, choices: Choices) -> Schedule_co:
        """Return the schedule of one vector of choices, as the tables of its kind of accelerator need it."""

    def moves(self, choices: Choices) -> Choices:
        """Return the schedules that differ from one by a single move."""

    def descent(self, restarts: int, generator: TorchGenerator) -> Descent:
        """Return real parameters in place of the choices, drawn by PyTorch's generator."""


# Yields batches of choices; is sent the energy-delay product of each. It ends where it has nothing more to propose.
Proposals: TypeAlias = Generator[Choices, Costs, None]
# Starts to search a problem, with a seed from 1 to 2^31 - 1.
Engine: TypeAlias = Callable[["SearchProblem[object]", int], Proposals]

UNFIT = 1e3  # above the logarithm of any number


def at_points(points: NDArray[np.float64], problem: SearchProblem[object]) -> Choices:
    """Return the choices at points of the unit cube, whose side each choice divides equally; other axes are unused."""
    sizes = np.array(problem.choice_sizes)
    floors = (points[:, : len(sizes)] * sizes).astype(np.int64)
    chosen: Choices = np.minimum(np.maximum(floors, 0), sizes - 1)
    return chosen


def losses(products: Costs) -> list[float]:
    """Return the logarithms of products, and the same large number for each schedule that does not fit."""
    fits = np.isfinite(products)
    return [float(loss) for loss in np.where(fits, np.log(np.where(fits, products, 1.0)), UNFIT)]

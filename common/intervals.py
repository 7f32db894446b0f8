"""Three-point estimates: a quantity in its pessimistic, likely and optimistic case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreePoint:
    """A three-point estimate (Malcolm et al. 1959, PERT): one quantity in three cases.

    The pessimistic case is the one that is worse for the result, whether its number is small or large: a slow clock and
    a long time are both pessimistic.
    """

    pessimistic: float
    likely: float
    optimistic: float

    @property
    def cases(self) -> tuple[float, float, float]:
        """Pessimistic, likely, optimistic."""
        return self.pessimistic, self.likely, self.optimistic

    @classmethod
    def exactly(cls, value: float) -> ThreePoint:
        """Return a quantity without uncertainty: the same value in all three cases."""
        return cls(value, value, value)


def combine(function: Callable[..., float], *estimates: ThreePoint) -> ThreePoint:
    """Apply a function case by case: to all pessimistic values, to all likely ones, and to all optimistic ones."""
    return ThreePoint(*(function(*values) for values in zip(*(estimate.cases for estimate in estimates), strict=True)))

"""Three-point estimates: a quantity in its pessimistic, likely and optimistic case."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

# An interval holds 90 %: its ends are this many standard deviations from the median of a normal distribution.
END_Z = 1.6448536269514715


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


NOTHING = ThreePoint.exactly(0.0)


def combine(function: Callable[..., float], *estimates: ThreePoint) -> ThreePoint:
    """Apply a function case by case: to all pessimistic values, to all likely ones, and to all optimistic ones."""
    return ThreePoint(*(function(*values) for values in zip(*(estimate.cases for estimate in estimates), strict=True)))


def summed(estimates: Iterable[ThreePoint]) -> ThreePoint:
    """Return the sum of estimates case by case; nothing sums to zero."""
    return combine(lambda *values: sum(values), NOTHING, *estimates)

"""Quantities with their interval and the way in which they are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, hypot, log, prod

from common.files.configuration import Constant, IntervalPoint

GIVEN = "given"
MODELLED = "modelled"


@dataclass(frozen=True, slots=True)
class BoundedValue:
    """A quantity with its interval, low ≤ likely ≤ high."""

    likely: float
    low: float
    high: float
    source: str  # how it is known: ``measured``, ``given``, ``modelled`` or ``configured``

    @classmethod
    def exactly(cls, value: float, source: str) -> BoundedValue:
        return cls(value, value, value, source)

    @classmethod
    def of(cls, constant: Constant) -> BoundedValue:
        """Return a configured constant as a modelled quantity."""
        return cls(constant.likely, constant.low, constant.high, MODELLED)

    def at(self, point: IntervalPoint) -> float:
        return float(getattr(self, point))

    def times(self, factor: float) -> BoundedValue:
        """Multiply value and interval by a factor that is not negative."""
        return BoundedValue(self.likely * factor, self.low * factor, self.high * factor, self.source)


def given(value: float | None) -> BoundedValue | None:
    """Return a value that the user gave, taken as exact; None where none was given."""
    return None if value is None else BoundedValue.exactly(value, GIVEN)


def value_at(quantity: BoundedValue | None, point: IntervalPoint) -> float | None:
    """Return the likely value or one end; None where the quantity is unknown."""
    return None if quantity is None else quantity.at(point)


def independent_sum(*terms: BoundedValue) -> BoundedValue:
    """Return the modelled sum of quantities that err independently: the distances to their ends add in quadrature."""
    likely = sum(term.likely for term in terms)
    down = hypot(*(term.likely - term.low for term in terms))
    up = hypot(*(term.high - term.likely for term in terms))
    return BoundedValue(likely, likely - down, likely + up, MODELLED)


def independent_product(*factors: BoundedValue) -> BoundedValue:
    """Return the modelled product of positive quantities that err independently: as the sum, in logarithms."""
    likely = prod(factor.likely for factor in factors)

    def span(ratio: Callable[[BoundedValue], float]) -> float:
        return exp(hypot(*(log(ratio(factor)) for factor in factors)))

    down, up = span(lambda factor: factor.likely / factor.low), span(lambda factor: factor.high / factor.likely)
    return BoundedValue(likely, likely / down, likely * up, MODELLED)

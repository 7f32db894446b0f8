"""Quantities with their interval and the way in which they are known."""

from __future__ import annotations

from dataclasses import dataclass

from common.configuration import IntervalPoint

GIVEN = "given"


@dataclass(frozen=True, slots=True)
class BoundedValue:
    """A quantity with its interval, low ≤ likely ≤ high.

    ``source`` says how the quantity is known: ``measured``, ``given``, ``modelled`` or ``configured``.
    """

    likely: float
    low: float
    high: float
    source: str

    @classmethod
    def exactly(cls, value: float, source: str) -> BoundedValue:
        return cls(value, value, value, source)

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

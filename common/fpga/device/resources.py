"""What a kernel takes of a device, and what a device or a region of it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from math import ceil
from operator import attrgetter


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts of each kind. ``bram36`` counts blocks of 36 Kb, halves being single 18 Kb blocks."""

    lut: float = 0.0
    ff: float = 0.0
    bram36: float = 0.0
    uram: float = 0.0
    dsp: float = 0.0
    memory_channels: float = 0.0

    def __add__(self, other: Resources) -> Resources:
        return Resources(*(mine + more for mine, more in zip(amounts(self), amounts(other), strict=True)))

    def times(self, factor: float) -> Resources:
        """Every amount times one factor."""
        return Resources(*(amount * factor for amount in amounts(self)))

    def scaled(self, factors: Resources) -> Resources:
        """Every amount times its own factor, as closure fractions are applied."""
        return Resources(*(a * f for a, f in zip(amounts(self), amounts(factors), strict=True)))

    def whole(self) -> Resources:
        """Every amount rounded up to whole ones."""
        return Resources(*(float(ceil(amount - 1e-9)) for amount in amounts(self)))

    def shortfall(self, available: Resources) -> str:
        """The first kind of which more is needed than there is, or an empty word."""
        pairs = zip(RESOURCE_NAMES, amounts(self), amounts(available), strict=True)
        return next((name for name, needed, there in pairs if needed > there * (1 + 1e-9)), "")

    def fits(self, available: Resources) -> bool:
        """Whether there is enough of every kind."""
        return not self.shortfall(available)


RESOURCE_NAMES = tuple(field.name for field in fields(Resources))
amounts: Callable[[Resources], tuple[float, ...]] = attrgetter(*RESOURCE_NAMES)  # in the order of the fields


def total(parts: Iterable[Resources]) -> Resources:
    """The sum over parts."""
    return sum(parts, Resources())

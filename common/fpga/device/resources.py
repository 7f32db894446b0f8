"""Resources of an FPGA: what a kernel needs, and what a device or a region has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from math import ceil, inf
from operator import add, attrgetter, mul

BLOCK_BITS = 72  # width of a block RAM of 36 Kb and of an UltraRAM at its full width (UG573)
URAM_WORDS = 4096  # of an UltraRAM, which has no other shape
BRAM36_BYTES, URAM_BYTES = (words * BLOCK_BITS // 8 for words in (512, URAM_WORDS))


@dataclass(frozen=True, slots=True)
class Resources:
    """Amount of each resource. ``bram36`` counts blocks of 36 Kb; half a block is one 18 Kb block."""

    lut: float = 0.0
    ff: float = 0.0
    bram36: float = 0.0
    uram: float = 0.0
    dsp: float = 0.0
    memory_channels: float = 0.0

    def __add__(self, other: Resources) -> Resources:
        return Resources(*map(add, amounts(self), amounts(other)))

    def times(self, factor: float) -> Resources:
        return Resources(*(amount * factor for amount in amounts(self)))

    def scaled(self, factors: Resources) -> Resources:
        """Multiply each amount by a factor of its own, such as a closure fraction."""
        return Resources(*map(mul, amounts(self), amounts(factors)))

    def inverse(self) -> Resources:
        """Return one over each amount, where the amounts are factors."""
        return Resources(*(1 / amount for amount in amounts(self)))

    def whole(self) -> Resources:
        """Round every amount up to a whole number."""
        return Resources(*(float(ceil(amount - 1e-9)) for amount in amounts(self)))

    def shortfall(self, available: Resources) -> str:
        """Return the first resource of which more is needed than available, or an empty string."""
        pairs = zip(RESOURCE_NAMES, amounts(self), amounts(available), strict=True)
        return next((name for name, needed, limit in pairs if needed > limit * (1 + 1e-9)), "")

    def least(self, other: Resources) -> Resources:
        return Resources(*map(min, amounts(self), amounts(other)))

    def fits(self, available: Resources) -> bool:
        return not self.shortfall(available)


RESOURCE_NAMES = tuple(field.name for field in fields(Resources))
UNLIMITED = Resources(*[inf] * len(RESOURCE_NAMES))
amounts: Callable[[Resources], tuple[float, ...]] = attrgetter(*RESOURCE_NAMES)  # in the order of the fields


def total(parts: Iterable[Resources]) -> Resources:
    return sum(parts, Resources())

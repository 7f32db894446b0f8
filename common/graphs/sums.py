"""Sums, products and ratios in which an unknown operand makes the result unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def total(terms: Iterable[Number | None]) -> Number | None:
    """Return the sum of the terms, or None where any of them is unknown (None). Terms may be symbolic counts."""
    result: Number = 0
    for term in terms:
        if term is None:
            return None
        result += term
    return result


def product(factors: Iterable[Number | None]) -> Number | None:
    """Return the product of the factors, or None where any of them is unknown (None). They may be symbolic counts."""
    result: Number = 1
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Return the quotient; None if a term is unknown or the denominator is zero."""
    return None if numerator is None or not denominator else numerator / denominator

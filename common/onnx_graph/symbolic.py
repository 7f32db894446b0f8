"""Shapes over dimensions that were left unbound, found by inferring the model at several bindings.

A dimension is taken to be ``m · (a₀ + a₁x₁ + … + aₙxₙ)`` with a monomial m of degree at most two over the symbols x.
The coefficients follow exactly from n + 1 bindings, of which each but the first changes one symbol, and a further one
of multiples of 12 must agree: a half, rounded, is affine over odd numbers. All others are distinct primes, so that one
product is not mistaken for another.

Two small and two large bindings must agree as well, where the model can be inferred there at all. A dimension that ends
at a constant in the large ones is the smaller of the two (a table of 512 positions). Everything else is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

from common.graph import Body, Count, Dim, is_symbolic
from common.onnx_graph.types import TensorType, ValueType

LARGEST_CELL = 2**63 - 1
FIRST = 7  # of the primes that give the coefficients
SMALL_CHECKS, LARGE_CHECKS = (1, 2), (1_009, 16_411)  # each the first of as many primes (or ones) as there are symbols
CHECKS = len(SMALL_CHECKS) + len(LARGE_CHECKS)  # at which a model may have no shapes


def sample_bindings(names: Sequence[str]) -> list[dict[str, int]]:
    """Bindings to infer the model at, ``CHECKS`` last; a single empty one where every dimension is bound."""
    if not names:
        return [{}]
    primes = _primes(FIRST)
    first = {name: next(primes) for name in names}
    one_changed = [{**first, name: next(primes)} for name in names]
    divisible = {name: 12 * (position + 2) for position, name in enumerate(names)}
    checks = [dict(zip(names, _primes(least), strict=False)) for least in (*SMALL_CHECKS, *LARGE_CHECKS)]
    return [first, *one_changed, divisible, *checks]


def _primes(least: int) -> Iterator[int]:
    """Primes from ``least`` on; ones without end from 1 on."""
    number = least
    while True:
        if number == 1:
            yield 1
        elif all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            yield number
        number += number > 1


Sample = tuple[Mapping[str, ValueType], Mapping[str, Body]]


def with_symbols(samples: Sequence[Sample], names: Sequence[str]) -> tuple[dict[str, ValueType], dict[str, Body]]:
    """Types and bodies over symbols.

    Args:
        samples: types and bodies at each of ``sample_bindings(names)``.
        names: the unbound dimensions.
    """
    fit = _Fit(tuple(names))
    types, bodies = samples[0]
    found = {name: _type([sample[0].get(name) for sample in samples], fit) for name in types}
    counts = {
        name: Body(
            name,
            body.owner,
            fit(tuple(sample[1][name].execution_count for sample in samples)),
            fit(tuple(sample[1][name].execution_bound for sample in samples)),
        )
        for name, body in bodies.items()
    }
    return {name: value for name, value in found.items() if value is not None}, counts


def _type(found: Sequence[ValueType | None], fit: _Fit) -> ValueType | None:
    first = found[0]
    if not isinstance(first, TensorType):
        return first
    shapes = [value.shape if isinstance(value, TensorType) else None for value in found]
    certain = shapes[:-CHECKS]
    if first.shape is None or any(shape is None or len(shape) != len(first.shape) for shape in certain):
        return TensorType(first.element_type, None)
    rank = len(first.shape)
    known = (shape if shape is not None and len(shape) == rank else (None,) * rank for shape in shapes)
    return TensorType(first.element_type, tuple(map(fit, zip(*known, strict=True))))


def number(count: Count | None) -> int | None:
    """A count for a numeric cell: empty while it is unknown or symbolic, or more than the cell can hold."""
    if count is None or is_symbolic(count):
        return None
    return int(count) if count <= LARGEST_CELL else None


def expression(count: Count | None) -> str:
    """A count that a numeric cell cannot hold, written out: over unbound dimensions, or as the large number it is."""
    return "" if count is None or number(count) is not None else str(expanded(count))


def expanded(count: Count) -> Count:
    """A count as a sum of products."""
    return count.expand() if is_symbolic(count) else count


class _Fit:
    """From a dimension's extents at the sampled bindings to its expression; each distinct row is solved once."""

    def __init__(self, names: tuple[str, ...]) -> None:
        import sympy  # 0.3 s that only a model with unbound dimensions pays

        shown = (name if name.isidentifier() else f"'{name}'" for name in names)  # a*b would read as a product
        self._symbols = [sympy.Symbol(name, integer=True, positive=True) for name in shown]
        self._samples = [tuple(sample.values()) for sample in sample_bindings(names)]
        rows = [[1, *sample] for sample in self._samples[: len(names) + 1]]
        self._inverse = sympy.Matrix(rows).inv().tolist()
        self._smaller: Any = sympy.Min
        self._solve = cache(self._solved)

    def __call__(self, extents: tuple[Dim, ...]) -> Dim:
        if None in extents[:-CHECKS]:
            return None
        return extents[0] if len(set(extents)) == 1 else self._solve(extents)

    def _solved(self, extents: tuple[Dim, ...]) -> Dim:
        for degree in range(3):
            for chosen in combinations_with_replacement(range(len(self._symbols)), degree):
                found = self._affine_times(chosen, extents[:-CHECKS])
                if found is not None:
                    return self._checked(found, max(extents[:-CHECKS]), extents[-CHECKS:])
        return None

    def _affine_times(self, chosen: tuple[int, ...], extents: tuple[int, ...]) -> Count | None:
        """The expression if the extents are the product of the chosen symbols and an affine form."""
        samples = self._samples[: len(extents)]
        factors = [_product(sample[index] for index in chosen) for sample in samples]
        if any(extent % factor for extent, factor in zip(extents, factors, strict=True)):
            return None
        rest = [extent // factor for extent, factor in zip(extents, factors, strict=True)]
        coefficients = [sum(a * b for a, b in zip(row, rest, strict=False)) for row in self._inverse]
        if any(coefficient.q != 1 for coefficient in coefficients):
            return None
        constant, *factors = map(int, coefficients)
        if any(constant + _dot(factors, sample) != extent for sample, extent in zip(samples, rest, strict=True)):
            return None
        return _product(self._symbols[index] for index in chosen) * (constant + _dot(factors, self._symbols))

    def _checked(self, found: Count, largest: int, extents: Sequence[Dim]) -> Dim:
        """The expression if the checks agree: those at which the model has no shapes say nothing.

        A constant at the large ones ends the growth; one below what was seen before is something else.
        """
        samples = self._samples[-CHECKS:]
        expected = [found.subs(dict(zip(self._symbols, sample, strict=True))) for sample in samples]
        pairs = [*zip(extents, expected, strict=True)]
        if any(extent not in (None, wanted) for extent, wanted in pairs[: len(SMALL_CHECKS)]):
            return None
        known = [(extent, wanted) for extent, wanted in pairs[len(SMALL_CHECKS) :] if extent is not None]
        ends = {extent for extent, wanted in known if extent != wanted}
        if not ends:
            return found
        end = ends.pop()
        if ends or end < largest or any(extent != min(end, wanted) for extent, wanted in known):
            return None
        return self._smaller(end, found)


def _product(factors: Iterator[Count]) -> Count:
    result = 1
    for factor in factors:
        result = result * factor
    return result


def _dot(one: Sequence[Count], other: Sequence[Count]) -> Count:
    return sum(a * b for a, b in zip(one, other, strict=True))

"""Shapes over unbound dimensions, found by inferring the model at several sample bindings.

A dimension is assumed to be ``m · (a₀ + a₁x₁ + … + aₙxₙ)`` with a monomial m of degree at most two over the symbols x.
The coefficients follow exactly from n + 1 bindings to distinct primes, each but the first with one symbol changed.
Primes keep one product from being mistaken for another. A further binding to multiples of 12 must agree, because a
rounded half would look affine over odd numbers.

Two small and two large bindings must agree as well, where the model can be inferred there at all. A dimension that is
constant at the large bindings is the minimum of the constant and the expression (a table of 512 positions).
Everything else is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import combinations_with_replacement
from math import prod

from common.graphs.expressions import at, dimension, smaller
from common.graphs.graph import Body, Count, Dim, is_symbolic
from common.onnx_graph.shapes.types import TensorType, ValueType

LARGEST_CELL = 2**63 - 1
MOST_KEPT = 10_000  # texts
FIRST = 7  # first of the primes that give the coefficients
SMALL_CHECKS, LARGE_CHECKS = (1, 2), (1_009, 16_411)  # each binds all symbols to primes (or ones) from this number on
CHECKS = len(SMALL_CHECKS) + len(LARGE_CHECKS)  # bindings at which a model may have no shapes


def sample_bindings(names: Sequence[str]) -> list[dict[str, int]]:
    """Return the bindings to infer the model at; the last ``CHECKS`` are checks.

    Without unbound dimensions there is one empty binding.
    """
    if not names:
        return [{}]
    primes = _primes(FIRST)
    first = {name: next(primes) for name in names}
    one_changed = [{**first, name: next(primes)} for name in names]
    divisible = {name: 12 * (position + 2) for position, name in enumerate(names)}
    checks = [dict(zip(names, _primes(least), strict=False)) for least in (*SMALL_CHECKS, *LARGE_CHECKS)]
    return [first, *one_changed, divisible, *checks]


def _primes(least: int) -> Iterator[int]:
    """Yield primes from ``least`` on; if ``least`` is 1, yield ones without end."""
    number = least
    while True:
        if number == 1:
            yield 1
        elif all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            yield number
        number += number > 1


Sample = tuple[Mapping[str, ValueType | None], Mapping[str, Body]]


def with_symbols(samples: Sequence[Sample], names: Sequence[str]) -> tuple[dict[str, ValueType], dict[str, Body]]:
    """Return types and bodies over symbols from samples, of which one may lack what is as at the first."""
    fit = _Fit(names)
    types, bodies = samples[0]
    varying = set[str]().union(*(sample[0] for sample in samples[1:]))
    fitted = {
        name: _type([sample[0].get(name, first) for sample in samples], fit) if name in varying else first
        for name, first in types.items()
    }
    counts = {
        name: Body(
            name,
            body.owner,
            fit(tuple(sample[1][name].execution_count for sample in samples)),
            fit(tuple(sample[1][name].execution_bound for sample in samples)),
        )
        for name, body in bodies.items()
    }
    return {name: value for name, value in fitted.items() if value is not None}, counts


def numbers_with_symbols(samples: Sequence[Mapping[str, int | None]], names: Sequence[str]) -> dict[str, Count | None]:
    """Return numbers over symbols, each from its value in every sample."""
    fit = _Fit(names)
    return {name: fit(tuple(sample.get(name) for sample in samples)) for name in samples[0]}


def _type(sampled: Sequence[ValueType | None], fit: _Fit) -> ValueType | None:
    first = sampled[0]
    if not isinstance(first, TensorType):
        return first
    shapes = [value.shape if isinstance(value, TensorType) else None for value in sampled]
    required = shapes[:-CHECKS]
    if first.shape is None or any(shape is None or len(shape) != len(first.shape) for shape in required):
        return TensorType(first.element_type, None)
    rank = len(first.shape)
    known = (shape if shape is not None and len(shape) == rank else (None,) * rank for shape in shapes)
    return TensorType(first.element_type, tuple(map(fit, zip(*known, strict=True))))


def number(count: Count | None) -> int | None:
    """Return a count for a numeric cell; None where it is unknown, symbolic, or too large for the cell."""
    if count is None or is_symbolic(count):
        return None
    return int(count) if count <= LARGEST_CELL else None


@lru_cache(MOST_KEPT)
def expression(count: Count | None) -> str:
    """Return the text of a count that a numeric cell cannot hold: a symbolic expression or a large number."""
    return "" if count is None or number(count) is not None else str(count)


class _Fit:
    """Fits an expression to a dimension's extents at the sample bindings; each distinct row is solved once."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._samples = names, sample_bindings(names)
        self._solve = cache(self._fitted)

    def __call__(self, extents: tuple[Dim, ...]) -> Dim:
        if None in extents[:-CHECKS]:
            return None
        return extents[0] if len(set(extents)) == 1 else self._solve(extents)

    def _fitted(self, extents: tuple[Dim, ...]) -> Dim:
        for degree in range(3):
            for chosen in combinations_with_replacement(self._names, degree):
                form = self._affine_times(chosen, extents[:-CHECKS])
                if form is not None:
                    return self._checked(form, max(extents[:-CHECKS]), extents[-CHECKS:])
        return None

    def _affine_times(self, chosen: tuple[str, ...], extents: tuple[int, ...]) -> Count | None:
        """Return the product of chosen symbols and an affine form that has these extents; None where there is none."""
        samples = self._samples[: len(extents)]
        factors = [prod(sample[name] for name in chosen) for sample in samples]
        if any(extent % factor for extent, factor in zip(extents, factors, strict=True)):
            return None
        start, *changed = (extent // factor for extent, factor in zip(extents, factors, strict=True))
        first, *others = samples
        affine: Count = start
        for name, sample, value in zip(self._names, others, changed, strict=False):  # only this symbol is another one
            slope, remainder = divmod(value - start, sample[name] - first[name])
            if remainder:
                return None
            affine += slope * (dimension(name) - first[name])
        form = prod(map(dimension, chosen), start=affine)
        return (
            form if all(at(form, sample) == extent for sample, extent in zip(samples, extents, strict=True)) else None
        )

    def _checked(self, form: Count, largest: int, extents: Sequence[Dim]) -> Dim:
        """Return the expression if all checks agree at which the model has shapes, else None.

        If the extent is a constant at the large bindings, return the minimum of the constant and the expression. The
        constant must not be below ``largest``, the largest extent at the other bindings.
        """
        pairs = [*zip(extents, (at(form, sample) for sample in self._samples[-CHECKS:]), strict=True)]
        if any(extent not in (None, wanted) for extent, wanted in pairs[: len(SMALL_CHECKS)]):
            return None
        known = [(extent, wanted) for extent, wanted in pairs[len(SMALL_CHECKS) :] if extent is not None]
        ends = {extent for extent, wanted in known if extent != wanted}
        if not ends:
            return form
        end = ends.pop()
        if ends or end < largest or any(extent != min(end, wanted) for extent, wanted in known):
            return None
        return smaller(end, form)

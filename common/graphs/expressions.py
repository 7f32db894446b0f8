"""Expressions over the dimensions that a model leaves unbound: sums of products with whole coefficients.

The formulas that compute shapes and counts of a bound model compute these of an unbound one: expressions add, multiply
and divide as integers do. They do not compare, except for being the same. A whole quotient of which it is not known
whether it has a remainder, and the smaller of two sizes, are factors of their own: ``floor(seq/2 + 1/2)``,
``Min(512, seq)``. An expression is always written out as a sum, and its text is what SymPy reads.

SymPy itself is not used: its import and arithmetic took a third of the time of counting the work of a model, and a
fifth of the memory.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import chain
from math import gcd, prod
from typing import Any, ClassVar, TypeAlias

Count: TypeAlias = Any  # an int, or an Expression


@dataclass(frozen=True, slots=True)
class Dimension:
    """An unbound dimension, a positive integer."""

    name: str
    operands: ClassVar[tuple[Count, ...]] = ()

    def __str__(self) -> str:
        """Return the name, in quotes where it would read as more than a name."""
        return self.name if self.name.isidentifier() else f"'{self.name}'"

    def at(self, sizes: Mapping[str, int]) -> int:
        return sizes[self.name]


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest of several sizes, of which each is the smallest for some dimensions."""

    operands: tuple[Count, ...]

    def __str__(self) -> str:
        return f"Min({', '.join(map(str, self.operands))})"

    def at(self, sizes: Mapping[str, int]) -> int:
        return min(at(operand, sizes) for operand in self.operands)


@dataclass(frozen=True, slots=True)
class Quotient:
    """The whole quotient of two sizes, where it is not known whether there is a remainder."""

    operands: tuple[Count, Count]

    def __str__(self) -> str:
        """Return the text; a sum that is divided by a number has fractions as coefficients."""
        dividend, divisor = self.operands
        if isinstance(divisor, int):
            return f"floor({_text(dividend, divisor)})"
        return f"floor(({dividend})/({divisor}))"

    def at(self, sizes: Mapping[str, int]) -> int:
        dividend, divisor = self.operands
        return at(dividend, sizes) // at(divisor, sizes)


Factor: TypeAlias = Dimension | Smallest | Quotient
Product: TypeAlias = tuple[tuple[Factor, int], ...]  # factors and their powers, ordered by text; () is 1


@dataclass(slots=True, repr=False)
class Expression:
    """A sum of products of factors, of which at least one depends on a dimension.

    No coefficient is 0. Arithmetic makes expressions, or numbers, by ``_of``. They are written out, so equal ones have
    equal terms.
    """

    terms: Mapping[Product, int]

    @property
    def names(self) -> frozenset[str]:
        factors = [factor for product in self.terms for factor, _ in product]
        names = frozenset(factor.name for factor in factors if isinstance(factor, Dimension))
        inner = (operand for factor in factors for operand in factor.operands if isinstance(operand, Expression))
        return names.union(*(operand.names for operand in inner))

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __neg__(self) -> Count:
        return self * -1

    def __add__(self, other: Count) -> Count:
        return _of(chain(self.terms.items(), _terms(other).items()))

    def __sub__(self, other: Count) -> Count:
        return self + -other

    def __rsub__(self, other: Count) -> Count:
        return -self + other

    def __mul__(self, other: Count) -> Count:
        multipliers = _terms(other)
        return _of((_times(left, right), a * b) for left, a in self.terms.items() for right, b in multipliers.items())

    __radd__, __rmul__ = __add__, __mul__

    def __pow__(self, power: int) -> Count:
        return prod([self] * power)

    def __floordiv__(self, divisor: Count) -> Count:
        return _by_number(self, divisor) if isinstance(divisor, int) else _by_expression(self, divisor)

    def __rfloordiv__(self, dividend: int) -> Count:
        return _by_expression(dividend, self)

    def __mod__(self, divisor: Count) -> Count:
        return self - divisor * (self // divisor)


def dimension(name: str) -> Expression:
    return _alone(Dimension(name))


def at(count: Count, sizes: Mapping[str, int]) -> int:
    if not isinstance(count, Expression):
        return int(count)
    return sum(
        coefficient * prod(factor.at(sizes) ** power for factor, power in product)
        for product, coefficient in count.terms.items()
    )


def with_sizes(count: Count, sizes: Mapping[str, Count]) -> Count:
    """Return a count in which dimensions have other sizes, which may be expressions; dimensions without one stay."""
    if not isinstance(count, Expression):
        return count
    return sum_of(
        coefficient * prod((_with_sizes(factor, sizes) ** power for factor, power in product), start=1)
        for product, coefficient in count.terms.items()
    )


def _with_sizes(factor: Factor, sizes: Mapping[str, Count]) -> Count:
    if isinstance(factor, Dimension):
        return sizes.get(factor.name, _alone(factor))
    first, *others = (with_sizes(operand, sizes) for operand in factor.operands)
    return reduce(smaller if isinstance(factor, Smallest) else operator.floordiv, others, first)


def sum_of(counts: Iterable[Count]) -> Count:
    """Return the sum of many counts, in time that is linear in their terms."""
    return _of(chain.from_iterable(_terms(count).items() for count in counts))


def smaller(left: Count, right: Count) -> Count:
    kept: list[Count] = []
    for size in (*_smallest_of(left), *_smallest_of(right)):
        if not any(_at_most(known, size) for known in kept):
            kept = [*(known for known in kept if not _at_most(size, known)), size]
    if len(kept) == 1:
        return kept[0]
    return _alone(Smallest(tuple(sorted(kept, key=lambda size: (isinstance(size, Expression), str(size))))))


def upper_limit(count: Count) -> int | None:
    """Return the number that a size is at most, where it is the smallest of a number and others; else None."""
    return next((size for size in _smallest_of(count) if isinstance(size, int)), None)


def _smallest_of(count: Count) -> tuple[Count, ...]:
    """Return the sizes of which a count is the smallest: its own, if it is no such factor."""
    match [*_terms(count).items()]:
        case [(((Smallest(operands=operands), 1),), 1)]:
            return operands
    return (count,)


def _at_most(left: Count, right: Count) -> bool:
    """Return whether one count is at most the other whatever the dimensions are, as far as the coefficients show.

    A dimension is at least 1. So the difference is not negative if no coefficient is when each dimension is written as
    1 and what is above it.
    """
    difference = _terms(right - left)
    if not all(isinstance(factor, Dimension) for product in difference for factor, _ in product):
        return False
    above = (
        coefficient * prod((_alone(factor) + 1) ** power for factor, power in product)
        for product, coefficient in difference.items()
    )
    return all(coefficient >= 0 for coefficient in _terms(sum(above)).values())


def _by_number(dividend: Expression, divisor: int) -> Count:
    """Return the whole quotient: the terms that the number divides, and the quotient of the rest."""
    whole = {product: value // divisor for product, value in dividend.terms.items() if value % divisor == 0}
    undivided = {product: value for product, value in dividend.terms.items() if value % divisor}
    if not any(undivided):  # a number at most
        return _of(whole.items()) + undivided.get((), 0) // divisor
    common = reduce(gcd, undivided.values(), divisor)
    parts = _of((product, value // common) for product, value in undivided.items())
    return _alone(Quotient((parts, divisor // common))) + _of(whole.items())


def _by_expression(dividend: Count, divisor: Expression) -> Count:
    """Return the whole quotient: without a remainder where the divisor is a product that each term contains."""
    if dividend == divisor:
        return 1
    if len(divisor.terms) == 1:
        ((product, coefficient),) = divisor.terms.items()
        inverse = tuple((factor, -power) for factor, power in product)
        quotients = [(_times(product, inverse), value) for product, value in _terms(dividend).items()]
        if all(power > 0 for product, _ in quotients for _, power in product):
            return _of(quotients) // coefficient
    return _alone(Quotient((dividend, divisor)))


def _alone(factor: Factor) -> Expression:
    return Expression({((factor, 1),): 1})


def _terms(count: Count) -> Mapping[Product, int]:
    return count.terms if isinstance(count, Expression) else {(): operator.index(count)}


def _of(terms: Iterable[tuple[Product, int]]) -> Count:
    """Return the sum of terms, of which several may have the same product: a number where no dimension is left."""
    sums: dict[Product, int] = {}
    for product, coefficient in terms:
        sums[product] = sums.get(product, 0) + coefficient
    kept = {product: coefficient for product, coefficient in sums.items() if coefficient}
    return Expression(kept) if any(kept) else kept.get((), 0)


def _times(left: Product, right: Product) -> Product:
    if not left or not right:
        return left or right
    powers = dict(left)
    for factor, power in right:
        powers[factor] = powers.get(factor, 0) + power
    kept = ((factor, power) for factor, power in powers.items() if power)
    return tuple(sorted(kept, key=lambda factor_and_power: _place(factor_and_power[0])))


def _place(factor: Factor) -> tuple[bool, str]:
    return not isinstance(factor, Dimension), str(factor)


def _text(count: Count, divisor: int = 1) -> str:
    """Return a count over a number as text; the terms are in the order of their powers, the highest first."""
    terms = _terms(count)
    factors = sorted({factor for product in terms for factor, _ in product}, key=_place)

    def powers(term: tuple[Product, int]) -> list[int]:
        powers = dict(term[0])
        return [-powers.get(factor, 0) for factor in factors]

    signed = [_term_text(product, Fraction(value, divisor)) for product, value in sorted(terms.items(), key=powers)]
    first, *later = signed
    text = "".join(f" {'-' if term[0] == '-' else '+'} {term.lstrip('-')}" for term in later)
    return first + text


def _term_text(product: Product, coefficient: Fraction) -> str:
    words = [str(factor) if power == 1 else f"{factor}**{power}" for factor, power in product]
    number = abs(coefficient.numerator)
    shown = "*".join([*([str(number)] if number != 1 or not words else []), *words])
    over = f"/{coefficient.denominator}" if coefficient.denominator > 1 else ""
    return f"{'-' if coefficient < 0 else ''}{shown}{over}"

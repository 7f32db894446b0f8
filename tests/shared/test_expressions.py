"""Expressions over unbound dimensions, against integers and against SymPy."""

from __future__ import annotations

import operator

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from common.graphs.expressions import Expression, at, dimension, smaller, sum_of

NAMES = ("a", "b", "c")
A, B, C = map(dimension, NAMES)
SYMBOLS = {name: sympy.Symbol(name, integer=True, positive=True) for name in NAMES}
SIZES = ({"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 3, "c": 5}, {"a": 97, "b": 12, "c": 640})
ARITHMETIC = (operator.add, operator.sub, operator.mul)


def trees(operations):
    """Nested operations on dimensions and numbers: names, numbers, or (operation, tree, tree)."""
    leaves = st.sampled_from(NAMES) | st.integers(-5, 5)
    return st.recursive(leaves, lambda inner: st.tuples(st.sampled_from(operations), inner, inner), max_leaves=9)


def calculated(tree, leaf):
    """The result of a tree whose names stand for what ``leaf`` says."""
    if not isinstance(tree, tuple):
        return leaf(tree) if isinstance(tree, str) else tree
    operation, one, other = tree
    return operation(calculated(one, leaf), calculated(other, leaf))


@pytest.mark.slow
@given(trees(ARITHMETIC))
def test_sums_and_products_are_written_as_sympy_expands_them(tree):
    found, expected = calculated(tree, dimension), sympy.expand(calculated(tree, SYMBOLS.get))
    assert sympy.sympify(str(found), locals=SYMBOLS) == expected
    assert str(found).startswith("-") or str(found) == str(expected)  # SymPy writes 1 - a for -a + 1
    assert isinstance(found, Expression) == bool(sympy.sympify(str(found)).free_symbols)
    for sizes in SIZES:
        assert at(found, sizes) == calculated(tree, sizes.get)


def divided(one, other):
    return one // (abs(other) % 7 + 1) if isinstance(other, int) else one // 3


@pytest.mark.slow
@given(trees((*ARITHMETIC, divided, smaller)), st.sampled_from((1, 2, 7, 8)))
def test_quotients_and_smaller_sizes_have_the_value_of_the_numbers(tree, divisor):
    whole = calculated(tree, dimension) // divisor
    read = sympy.sympify(str(whole), locals=SYMBOLS)
    for sizes in SIZES:
        expected = reference(tree, sizes) // divisor
        assert at(whole, sizes) == expected
        assert read.subs({SYMBOLS[name]: size for name, size in sizes.items()}) == expected


def reference(tree, sizes):
    """The value of a tree over numbers; a quotient is by what the tree over dimensions divides by."""
    if not isinstance(tree, tuple):
        return sizes[tree] if isinstance(tree, str) else tree
    operation, one, other = tree
    if operation is divided:
        by = calculated(other, dimension)
        return reference(one, sizes) // (abs(by) % 7 + 1 if isinstance(by, int) else 3)
    values = reference(one, sizes), reference(other, sizes)
    return min(values) if operation is smaller else operation(*values)


@pytest.mark.slow
@given(trees(ARITHMETIC), trees(ARITHMETIC))
def test_equal_sums_are_one_key(one, other):
    found = [calculated((operator.mul, (operator.add, *pair), "c"), dimension) for pair in ((one, other), (other, one))]
    assert found[0] == found[1]
    assert len({*found}) == 1


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (A // 2, "floor(a/2)"),
        ((A + 1) // 2, "floor(a/2 + 1/2)"),
        ((4 * A + 6) // 8, "floor(a/2 + 3/4)"),
        ((8 * A + 3) // 8, "a"),
        ((8 * A * B + 12 * B + 5) // 4, "2*a*b + 3*b + 1"),
        ((A * B * C + 2 * B) // B, "a*c + 2"),
        (6 * A * B // (2 * A), "3*b"),
        ((A + B) // (A + B), "1"),
        (A // B, "floor((a)/(b))"),
        (7 // A, "floor((7)/(a))"),
        (A % 5, "a - 5*floor(a/5)"),
        (smaller(A, 512), "Min(512, a)"),
        (smaller(512, smaller(A, 31)), "Min(31, a)"),
        (smaller(A, A + 1), "a"),
        (smaller(3 * A * B + A, A), "a"),
        (smaller(A, 1), "1"),
        (smaller(A + 600, 512), "512"),
        (smaller(5 * A, 3 * A * B + 2 * A), "5*a"),
        (smaller(4 * A, 3 * A * B), "Min(3*a*b, 4*a)"),
        (smaller(smaller(A, 7), smaller(7, A)) * B, "b*Min(7, a)"),
        (A * 0 + 3, "3"),
        (A**3 - A, "a**3 - a"),
        (dimension("x + y") * 2 * A, "2*'x + y'*a"),
    ],
)
def test_what_is_simplified_and_how_it_is_written(found, text):
    assert str(found) == text
    assert isinstance(found, int) == text.isdigit()


def test_many_counts_are_added_at_once():
    assert sum_of([A, 7, A * B, 3 * A, -A * B]) == 4 * A + 7
    assert sum_of([A, 7, -A]) == 7
    assert sum_of([]) == 0


def test_names_are_those_that_it_depends_on():
    assert (A * B - B * A + C).names == {"c"}
    assert (smaller(A, 7) + (B + 1) // 2).names == {"a", "b"}


def test_sizes_are_not_compared_and_only_multiply_with_whole_numbers():
    for wrong in (lambda: A < 3, lambda: max(A, B), lambda: A * 0.5, lambda: A + "b", lambda: A / 2):
        with pytest.raises(TypeError):
            wrong()

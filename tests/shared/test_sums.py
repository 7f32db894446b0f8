"""Sums and products in which an unknown operand makes the result unknown."""

from __future__ import annotations

from common.graphs.expressions import dimension
from common.graphs.sums import product, total


def test_the_terms_are_added():
    assert total((7, 11, 13)) == 31
    assert total(iter([0.5, 17])) == 17.5
    assert total([]) == 0


def test_one_unknown_term_makes_the_sum_unknown():
    assert total((7, None, 13)) is None
    assert total([None]) is None


def test_symbolic_counts_are_added():
    batch = dimension("batch")
    assert total((3 * batch, 5, batch)) == 4 * batch + 5


def test_the_factors_are_multiplied():
    assert product((7, 11, 13)) == 1001
    assert product([]) == 1
    assert product((3, dimension("batch"))) == 3 * dimension("batch")


def test_one_unknown_factor_makes_the_product_unknown():
    assert product((0, None)) is None

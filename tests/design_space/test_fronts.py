from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from common.design_space.search.fronts import SupportedPoint, best, lower_left_hull, sum_of_fronts

points = st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=7)


def supported(pairs, choice=0):
    return [
        SupportedPoint(float(energy), float(cycles), (choice, index)) for index, (energy, cycles) in enumerate(pairs)
    ]


def joined(first, second):
    return [
        SupportedPoint(a.energy_pj + b.energy_pj, a.cycles + b.cycles, (a.choice, b.choice))
        for a, b in product(first, second)
    ]


@pytest.mark.slow
@given(st.lists(points, min_size=1, max_size=4))
def test_the_least_product_of_sums_is_a_sum_of_supported_points(parts):
    everything, hulls = supported(parts[0]), lower_left_hull(supported(parts[0]))
    for number, part in enumerate(parts[1:], start=1):
        everything = joined(everything, supported(part, number))
        hulls = lower_left_hull(joined(hulls, lower_left_hull(supported(part, number))))
    assert best(hulls).edp == approx(min(point.edp for point in everything))


@given(points)
def test_a_hull_falls_and_bends_one_way(pairs):
    hull = lower_left_hull(supported(pairs))
    assert hull
    slopes = [(b.energy_pj - a.energy_pj) / (b.cycles - a.cycles) for a, b in pairwise(hull)]
    assert all(slope < 0 for slope in slopes)
    assert slopes == sorted(slopes)


def test_a_choice_that_another_beats_is_not_supported():
    (left,) = lower_left_hull(
        [SupportedPoint(3.0, 5.0, "a"), SupportedPoint(3.0, 7.0, "b"), SupportedPoint(2.0, 5.0, "c")]
    )
    assert left.choice == "c"
    assert lower_left_hull([]) == ()


parts_with_repeats = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=4), st.integers(1, 2)),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@given(parts_with_repeats)
def test_the_chosen_points_are_the_best_of_all_choices(parts):
    chosen = sum_of_fronts(
        {number: (lower_left_hull(supported(pairs, number)), times) for number, (pairs, times) in enumerate(parts)}
    )
    found = [point for number, point in chosen.items() for _ in range(parts[number][1])]
    everything = product(*(pairs for pairs, times in parts for _ in range(times)))
    least = min(sum(energy for energy, _ in one) * sum(cycles for _, cycles in one) for one in everything)
    assert sum(point.energy_pj for point in found) * sum(point.cycles for point in found) == approx(least)

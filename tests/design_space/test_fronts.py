from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from common.design_space.search.fronts import Corner, best, lower_left_hull, sum_of_fronts

points = st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=7)


def corners(pairs, choice=0):
    return [Corner(float(energy), float(cycles), (choice, index)) for index, (energy, cycles) in enumerate(pairs)]


def joined(first, second):
    return [
        Corner(a.energy_pj + b.energy_pj, a.cycles + b.cycles, (a.choice, b.choice)) for a, b in product(first, second)
    ]


@given(st.lists(points, min_size=1, max_size=4))
def test_the_least_product_of_sums_is_a_sum_of_corners(parts):
    everything, hulls = corners(parts[0]), lower_left_hull(corners(parts[0]))
    for number, part in enumerate(parts[1:], start=1):
        everything = joined(everything, corners(part, number))
        hulls = lower_left_hull(joined(hulls, lower_left_hull(corners(part, number))))
    assert best(hulls).edp == approx(min(corner.edp for corner in everything))


@given(points)
def test_a_hull_falls_and_bends_one_way(pairs):
    hull = lower_left_hull(corners(pairs))
    assert hull
    slopes = [(b.energy_pj - a.energy_pj) / (b.cycles - a.cycles) for a, b in pairwise(hull)]
    assert all(slope < 0 for slope in slopes)
    assert slopes == sorted(slopes)


def test_a_choice_that_another_beats_is_no_corner():
    (left,) = lower_left_hull([Corner(3.0, 5.0, "a"), Corner(3.0, 7.0, "b"), Corner(2.0, 5.0, "c")])
    assert left.choice == "c"
    assert lower_left_hull([]) == ()


parts_with_repeats = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=4), st.integers(1, 2)),
    min_size=1,
    max_size=3,
)


@given(parts_with_repeats)
def test_the_chosen_corners_are_the_best_of_all_choices(parts):
    chosen = sum_of_fronts(
        {number: (lower_left_hull(corners(pairs, number)), times) for number, (pairs, times) in enumerate(parts)}
    )
    found = [corner for number, corner in chosen.items() for _ in range(parts[number][1])]
    everything = product(*(pairs for pairs, times in parts for _ in range(times)))
    least = min(sum(energy for energy, _ in one) * sum(cycles for _, cycles in one) for one in everything)
    assert sum(corner.energy_pj for corner in found) * sum(corner.cycles for corner in found) == approx(least)

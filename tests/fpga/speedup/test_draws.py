"""Draws of an interval have its ends at 5 and 95 %, and what two times have in common is drawn once."""

import numpy as np
import pytest

from common.fpga.speedup.draws import DRAWS, Draws
from common.intervals import ThreePoint

EXACT = ThreePoint.exactly(1.0)


def quantiles(values):
    return np.quantile(values, (0.05, 0.5, 0.95))


@pytest.mark.parametrize("cases", [(7.0, 3.0, 2.0), (2.0, 3.0, 7.0), (3.1, 3.0, 3.0)])
def test_the_ends_of_an_interval_are_its_quantiles(cases):
    assert quantiles(Draws(["a"]).of("a", ThreePoint(*cases))) == pytest.approx(sorted(cases), rel=2e-3)


def test_between_two_ends_parts_keep_their_sum():
    """What stays grows as what moves shrinks, and no draw has a negative part."""
    draws = Draws(["share"])
    stays = draws.between("share", ThreePoint(5.0, 3.0, 0.0))
    assert stays + draws.between("share", ThreePoint(2.0, 4.0, 7.0)) == pytest.approx(np.full(DRAWS, 7.0))
    assert (stays.min(), stays.max()) == (0.0, 5.0)


def test_terms_are_independent_and_each_has_every_quantile_once():
    draws = Draws(["a", "b"])
    one, other = (draws.of(term, ThreePoint(2.0, 1.0, 0.5)) for term in "ab")
    assert sorted(one) == pytest.approx(sorted(other))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05
    again = Draws(["a", "b"]).of("a", ThreePoint(2.0, 1.0, 0.5))
    assert (one == again).all()


def test_a_kernels_time_keeps_its_interval_whatever_part_the_clock_has():
    draws, time_us = Draws(["array", "clock"]), ThreePoint(30.0, 10.0, 8.0)
    for clock_mhz in (EXACT, ThreePoint(150.0, 300.0, 310.0), ThreePoint(1.0, 300.0, 900.0)):
        found = draws.kernel_us({"array": 1.0}, "clock", time_us, clock_mhz)
        assert found.min() == 8.0  # the best that is known
        assert np.quantile(found, 0.95) == pytest.approx(30.0, rel=0.13)
    assert np.median(draws.kernel_us({"array": 1.0}, "clock", time_us, EXACT)) == pytest.approx(10.0, rel=1e-3)


def test_kernels_of_one_family_share_their_efficiency_and_all_share_the_clock():
    draws, wide = Draws(["array", "rows", "clock"]), ThreePoint(30.0, 10.0, 3.0)
    same, twice = (draws.kernel_us({"array": 1.0}, "clock", wide, EXACT) for _ in range(2))
    assert (same == twice).all()
    apart = draws.kernel_us({"rows": 1.0}, "clock", wide, EXACT)
    assert abs(np.corrcoef(same, apart)[0, 1]) < 0.05
    slow = ThreePoint(100.0, 300.0, 300.0)
    clocked = [draws.kernel_us({family: 1.0}, "clock", wide, slow) for family in ("array", "rows")]
    assert np.corrcoef(*map(np.log, clocked))[0, 1] > 0.3


def test_a_known_time_is_not_drawn():
    draws = Draws(["array", "clock"])
    assert draws.kernel_us({"array": 1.0}, "clock", ThreePoint.exactly(7.0), ThreePoint(1, 2, 3)).tolist() == [7.0]


def test_two_engines_of_one_family_are_alike_only_as_far_as_the_family_goes():
    draws, wide = Draws(["array", "one", "other", "clock"]), ThreePoint(30.0, 10.0, 3.0)
    one, other = (draws.kernel_us({"array": 0.25, name: 0.75}, "clock", wide, EXACT) for name in ("one", "other"))
    assert np.corrcoef(np.log(one), np.log(other))[0, 1] == pytest.approx(0.25, abs=0.05)
    assert np.quantile(one, 0.95) == pytest.approx(30.0, rel=0.1)


def test_a_clock_that_is_nearly_known_leaves_the_kernels_of_two_families_apart():
    """Of an interval of 3 the clock makes 10 %, so each family's own efficiency makes nearly all of its variance."""
    draws, wide = Draws(["array", "rows", "clock"]), ThreePoint(30.0, 10.0, 3.0)
    nearly = ThreePoint(270.0, 300.0, 303.0)
    clocked = [draws.kernel_us({family: 1.0}, "clock", wide, nearly) for family in ("array", "rows")]
    assert abs(np.corrcoef(*map(np.log, clocked))[0, 1]) < 0.1


def test_a_term_that_is_zero_in_one_case_is_drawn_by_its_own_ranks():
    draws, estimate = Draws(["a", "b"]), ThreePoint(5.0, 3.0, 0.0)
    one, other = (draws.of(term, estimate) for term in "ab")
    assert (one == draws.between("a", estimate)).all()
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05

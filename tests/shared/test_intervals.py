"""Three-point estimates: sums case by case, and the ends of an interval that holds 90 %."""

from statistics import NormalDist

from common.intervals import END_Z, NOTHING, ThreePoint, summed


def test_estimates_are_summed_case_by_case_and_nothing_sums_to_zero():
    assert summed([ThreePoint(2.0, 3.0, 5.0), ThreePoint(7.0, 11.0, 13.0)]) == ThreePoint(9.0, 14.0, 18.0)
    assert summed(iter(())) == NOTHING


def test_ninety_percent_of_a_normal_distribution_are_between_the_ends():
    assert NormalDist().inv_cdf(0.95) == END_Z

"""The interval around a model's time, by hand."""

import pytest

from common.fpga.kernels.estimate import interval
from common.intervals import ThreePoint

SHARES, ALL = ThreePoint(0.1, 0.2, 0.4), ThreePoint.exactly(1.0)


def test_published_shares_are_the_ends_around_their_middle():
    assert interval(50.0, 10.0, 0.0, SHARES, ALL).cases == pytest.approx((100, 50, 25))


def test_a_time_beyond_what_was_published_does_not_end_the_interval():
    """Published kernels take 25 to 100 us, twice their middle either way; the model says 119 us of this one."""
    assert interval(119.0, 10.0, 0.0, SHARES, ALL).cases == pytest.approx((238, 119, 25))


def test_a_time_better_than_what_was_published_is_the_best_case_too():
    assert interval(20.0, 10.0, 0.0, SHARES, ALL).cases == pytest.approx((100, 20, 20))

"""Profiles of rates against the integral of the rate, and against arrivals of one rate."""

import math

import numpy as np
import pytest

from common.load.requests.demand import BURSTY, CONSTANT, POISSON, Demand
from common.load.requests.rate_profile import RateProfile, RateStep
from common.load.requests.schedules import constant, poisson, profiled
from common.messages.errors import UnusableValueError

RAMPED = RateProfile.of([(10, 20, 20), (10, 20, 80), (5, 0, 0), (10, 80, 80)])  # 200, 500, 0 and 800 requests


def test_constant_arrivals_come_when_the_integral_of_the_rate_is_their_number():
    times_s = profiled(RAMPED, None).intended_ns / 1e9
    assert len(times_s) == 1500
    assert np.allclose(times_s[:200], np.arange(200) / 20)
    ramp_s = times_s[200:700] - 10
    assert np.allclose(20 * ramp_s + 3 * ramp_s**2, np.arange(500), atol=1e-6)  # 60/s more in 10 s: 3 t²
    assert times_s[699] < 20 and times_s[700] == 25  # nothing comes in between
    assert np.allclose(times_s[700:], 25 + np.arange(800) / 80)


def test_a_ramp_down_ends_at_its_end():
    profile = RateProfile.of([(4, 50, 0), (1, 7, 7)])
    times_s = profiled(profile, None).intended_ns / 1e9
    falling_s = times_s[times_s < 4]
    assert np.allclose(50 * falling_s - 6.25 * falling_s**2, np.arange(100), atol=1e-4)
    assert np.allclose(times_s[100:], 4 + np.arange(7) / 7)


def test_poisson_arrivals_of_a_profile_have_its_counts():
    profile = RateProfile.of([(100, 20, 20), (100, 20, 80), (100, 80, 80)])
    times_s = profiled(profile, 3).intended_ns / 1e9
    assert (np.diff(times_s) >= 0).all() and times_s[-1] < 300
    for begin, end, expected in ((0, 100, 2000), (100, 150, 1750), (150, 200, 3250), (200, 300, 8000)):
        found = ((times_s >= begin) & (times_s < end)).sum()
        assert found == pytest.approx(expected, abs=4 * math.sqrt(expected)), (begin, end)
    gaps_s = np.diff(times_s[times_s >= 200])
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("steps", [[(20, 50, 50)], [(5, 50, 50), (15, 50, 50)]])
def test_a_profile_of_one_rate_is_that_rate(steps):
    profile = RateProfile.of(steps)
    assert np.array_equal(profiled(profile, None).intended_ns, constant(50, 20).intended_ns)
    assert np.allclose(profiled(profile, 7).intended_ns, poisson(50, 20, 7).intended_ns, atol=2000)  # whole ns of gaps


def test_what_a_demand_asks_for_step_by_step():
    demand = Demand(10, 3, profile=RAMPED, kind=CONSTANT)
    assert demand.name == "constant profile" and demand.steps == RAMPED.steps
    assert len(demand.schedule()) == 1500
    assert Demand(10, 3).steps == (RateStep(3, 10, 10),)
    assert Demand(10, 3, users=2).steps == ()
    assert Demand(10, 3, kind=POISSON, profile=RAMPED).name == "poisson profile" and BURSTY not in demand.name


def test_what_makes_no_profile():
    with pytest.raises(UnusableValueError, match="<profile>: no request comes: every rate is 0"):
        RateProfile.of([(5, 0, 0), (1, 0, 0)])
    with pytest.raises(UnusableValueError, match=r"<profile>: 1e.08 requests are more than 50,000,000"):
        profiled(RateProfile.of([(10, 1e7, 1e7)]), 0)

"""Limits of several sessions: by hand, and how often they hold the level about which sessions scatter."""

from __future__ import annotations

import numpy as np
import pytest

from common.latency.sessions import FIGURES, point_figures, student_quantile, with_sessions
from common.latency.statistics import figures

ONE_PERCENT, LEVEL_US = 0.01, 1000.0


def sessions(rng, count, runs=60):
    levels = LEVEL_US * (1 + ONE_PERCENT * rng.standard_normal(count))
    return [level * (1 + 0.002 * rng.standard_normal(runs)) for level in levels]


def test_the_figures_of_a_session_are_those_of_its_series():
    samples = np.random.default_rng(1).lognormal(3, 0.2, 5000)
    found = figures(samples)
    assert point_figures(samples) == pytest.approx([found[f"{name}_us"] for name in FIGURES])


def test_students_quantile_is_the_one_in_the_tables():
    assert [student_quantile(degrees, 0.95) for degrees in (1, 2, 4)] == pytest.approx([6.314, 2.920, 2.132], abs=1e-3)


def test_the_limits_of_two_sessions_by_hand():
    """Medians 100 and 102: a deviation of 1.414, so the mean is off by 1; Student's quantile for two is 6.314."""
    two = [np.full(50, 100.0), np.full(50, 102.0)]
    found = with_sessions({**figures(np.concatenate(two)), "p50_low_us": 101.0, "p50_high_us": 101.0}, two)
    assert (found["p50_low_us"], found["p50_high_us"]) == pytest.approx((101 - 6.314, 101 + 6.314), abs=1e-3)


def test_one_session_changes_nothing_and_no_limit_comes_from_nowhere():
    one = figures(np.random.default_rng(2).lognormal(3, 0.2, 100))
    assert with_sessions(one, [np.ones(100)]) == one
    assert one["p99_us"] is None is with_sessions(one, [np.ones(50), np.full(50, 2.0)])["p99_high_us"]


def test_limits_hold_the_level_about_which_sessions_scatter():
    """Meant for 95 % on each side, nine in ten; those of the runs alone hold it in less than half."""
    rng = np.random.default_rng(3)
    held = {"runs": 0, "sessions": 0}
    for _ in range(60):
        series = sessions(rng, 4)
        alone = figures(series[0])
        both = with_sessions(figures(np.concatenate(series)), series)
        held["runs"] += alone["p50_low_us"] <= LEVEL_US <= alone["p50_high_us"]
        held["sessions"] += both["p50_low_us"] <= LEVEL_US <= both["p50_high_us"]
    assert held["sessions"] >= 54
    assert held["runs"] <= 30

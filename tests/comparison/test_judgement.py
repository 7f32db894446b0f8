"""Verdicts follow from effect, interval, test and floor; an undecided one says how many runs would decide it."""

from __future__ import annotations

import numpy as np
import pytest

from common.comparison.judgement import holm, judge, judge_exact
from common.comparison.series import Difference, difference


def found(share, low, high, floor, runs=100):
    return Difference(100.0, 100 * (1 + share), share, low, high, floor, 0.001, 0.5, runs, runs)


@pytest.mark.parametrize(
    ("shares", "p_value", "outcome"),
    [
        ((0.07, 0.05, 0.09, 0.03), 0.001, "regressed"),
        ((-0.07, -0.09, -0.05, 0.03), 0.001, "improved"),
        ((0.07, 0.05, 0.09, 0.08), 0.001, "undecided"),  # a repeat scatters as much
        ((0.07, -0.01, 0.15, 0.03), 0.001, "undecided"),  # the interval holds zero
        ((0.07, 0.05, 0.09, 0.03), 0.06, "undecided"),  # the test cannot rule out chance
        ((0.01, -0.01, 0.03, 0.03), 0.3, "unchanged"),
        ((0.01, -0.01, 0.03, 0.07), 0.3, "undecided"),  # a change as large as the margin would not be seen
        ((0.01, -0.07, 0.03, 0.03), 0.3, "undecided"),
        ((0.07, 0.0, 0.14, 0.03), 0.001, "undecided"),  # zero is an end of the interval
        ((-0.07, -0.14, 0.0, 0.03), 0.001, "undecided"),
        ((0.07, 0.05, 0.09, 0.03), None, "regressed"),  # a figure with an interval and no runs
    ],
)
def test_a_verdict(shares, p_value, outcome):
    assert judge(found(*shares), 0.05, p_value, is_less_better=True).outcome == outcome


def test_more_is_better_for_a_rate():
    assert judge(found(0.07, 0.05, 0.09, 0.03), 0.05, 0.001, is_less_better=False).outcome == "improved"


def test_runs_that_would_decide_are_enough():
    """Noise falls with the square root: a floor of 8 % is below a difference of 4 % after four times the runs."""
    judgement = judge(found(0.04, -0.02, 0.1, 0.08), 0.05, 0.3, is_less_better=True)
    assert (judgement.outcome, judgement.runs_needed) == ("undecided", 400)


def test_an_interval_counts_with_half_its_width_whichever_side_of_zero_it_is():
    """From 2 to 18 % it reaches 8 % either way, which is below a difference of 4 % after four times the runs."""
    judgement = judge(found(0.04, 0.02, 0.18, 0.01), 0.05, 0.3, is_less_better=True)
    assert (judgement.outcome, judgement.runs_needed) == ("undecided", 400)


@pytest.mark.parametrize("floor", [1e12, float("inf")])
def test_a_node_of_almost_no_time_is_not_decided_by_any_number_of_runs(floor):
    judgement = judge(found(0.04, -0.02, 0.1, floor), 0.05, 0.3, is_less_better=True)
    assert (judgement.outcome, judgement.runs_needed) == ("undecided", None)


def test_runs_that_would_decide_do_decide():
    rng = np.random.default_rng(2)

    def judged(runs):
        before, after = (level * (1 + 0.1 * rng.standard_normal(runs)) for level in (1000.0, 1040.0))
        one = difference(before, after)
        return judge(one, 0.05, one.p_value, is_less_better=True)

    first = judged(30)
    assert first.outcome == "undecided"
    assert judged(2 * first.runs_needed).outcome == "regressed"


def test_too_few_runs_say_how_many_are_needed():
    judgement = judge(difference(np.ones(3), np.ones(100)), 0.05, None, is_less_better=True)
    assert (judgement.outcome, judgement.runs_needed) == ("undecided", 5)
    assert judgement.reason == "3 runs are too few"
    one = judge(difference(np.ones(1), np.ones(100)), 0.05, None, is_less_better=True)
    assert one.reason == "1 run is too few"


def test_a_difference_as_large_as_the_noise_floor_is_not_told_from_it():
    assert judge(found(0.2, 0.1, 0.3, 0.2), 0.05, 0.001, is_less_better=True).outcome == "undecided"
    assert judge(found(0.2, 0.1, 0.3, 0.19), 0.05, 0.001, is_less_better=True).outcome == "regressed"


def test_enough_runs_of_a_baseline_without_time_say_that():
    judgement = judge(Difference(0.0, 5.0, baseline_runs=11, candidate_runs=11), 0.05, None, is_less_better=True)
    assert judgement.reason == "the baseline takes no time that the clock can measure"
    unknown = judge(Difference(0.0, 5.0), 0.05, None, is_less_better=True)
    assert unknown.reason.startswith("one value each, without an interval")


def test_one_value_each_decides_nothing():
    judgement = judge(Difference(3.0, 5.0, 2 / 3), 0.05, None, is_less_better=True)
    assert (judgement.outcome, judgement.runs_needed) == ("undecided", None)
    assert judgement.reason


def test_what_is_computed_differs_or_does_not():
    assert judge_exact(Difference(7.0, 7.0, 0.0), is_less_better=True).outcome == "unchanged"
    assert judge_exact(Difference(7.0, 8.0, 1 / 7), is_less_better=True).outcome == "regressed"
    assert judge_exact(Difference(7.0, 8.0, 1 / 7), is_less_better=False).outcome == "improved"


def test_holm_by_hand():
    """Of four: 4 x 0.01, 3 x 0.02, 2 x 0.03 and, not below the one before, 1 x 0.05."""
    assert holm([0.03, 0.01, 0.05, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([None, 0.02, None, 0.01]) == [None, 0.02, None, 0.02]
    assert holm([]) == []

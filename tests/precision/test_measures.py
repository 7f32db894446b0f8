"""Noise, agreement and limits against closed forms, and against scipy's limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from common.precision.judgement.measures import accuracy, agreement, limits, signal_to_noise_db


@pytest.mark.parametrize(("agreed", "count"), [(0, 1), (1, 1), (491, 500), (500, 500), (0, 32), (17, 40)])
def test_the_limits_are_those_of_scipy(agreed, count):
    share = limits([1.0] * agreed + [0.0] * (count - agreed))
    expected = binomtest(agreed, count).proportion_ci(0.95, method="wilson")
    assert (share.value, share.low, share.high) == pytest.approx((agreed / count, *expected))
    assert 0 <= share.low <= share.value <= share.high <= 1


def test_the_limits_of_491_in_500_are_those_of_the_issue():
    share = limits([1.0] * 491 + [0.0] * 9)
    assert [round(100 * end, 1) for end in (share.value, share.low, share.high)] == [98.2, 96.6, 99.1]


def test_the_noise_of_rounding_is_a_twelfth_of_the_squared_step():
    signal = np.random.default_rng(0).uniform(-1, 1, 100_000)
    step = 2 / 255
    expected = 10 * math.log10((1 / 3) / (step**2 / 12))
    assert signal_to_noise_db(signal, step * np.round(signal / step)) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("expected", "actual", "ratio"),
    [([1.0, 2.0], [1.0, 2.0], math.inf), ([0.0, 0.0], [0.0, 1.0], None), ([1.0, 2.0], [1.0, math.nan], None)],
)
def test_what_has_no_ratio_has_none(expected, actual, ratio):
    assert signal_to_noise_db(np.array(expected), np.array(actual)) == ratio


def test_agreement_counts_the_likeliest_classes():
    scores = np.array([[0.1, 0.9, 0.0], [0.5, 0.2, 0.3], [0.3, 0.4, 0.2]])
    other = np.array([[0.2, 0.8, 0.9], [0.5, 0.2, 0.3], [math.nan, 9.0, 0.2]])
    assert agreement(scores, other) == [0, 1, 0]
    assert agreement(scores, other, classes=2) == [1, 1, 0]
    assert accuracy(np.array([2, 0, 0]), other) == [1, 1, 0]


def test_a_sample_of_several_positions_has_their_share():
    scores = np.eye(3)[[[0, 1, 2, 0]]]
    assert agreement(scores, np.eye(3)[[[0, 1, 0, 0]]]) == [0.75]

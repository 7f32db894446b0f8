"""The benchmark of the dashboard: its arithmetic, on ticks that are written out."""

from statistics import linear_regression

import pytest

from benchmarks.pipeline.dashboard import Figure, rates


def test_rates_gaps_and_missed_ticks():
    steady = [(number, 5 + number / 10) for number in range(101)]
    slower = [(number, number / 8) for number in range(0, 101) if number not in (40, 41, 77)]
    lowest_hz, missed, gap_s = rates([steady, slower])
    assert lowest_hz == pytest.approx(1 / linear_regression(range(98), [time_s for _, time_s in slower]).slope)
    assert lowest_hz == pytest.approx(97 / 12.5, rel=0.02)  # all ticks over all of the time
    assert missed == 3
    assert gap_s == pytest.approx(0.13)  # rank 194.04 of 196: between 0.125 s and the second longest, 0.25 s
    assert rates([steady])[:2] == (pytest.approx(10.0), 0)


def test_one_late_tick_is_no_slower_rate():
    late = [(number, number / 10) for number in range(600)] + [(600, 60.06)]
    assert rates([late])[0] == pytest.approx(10.0, abs=0.001)


@pytest.mark.parametrize(
    ("value", "is_least", "expected"), [(9.99, True, False), (10.0, True, True), (10.01, False, False)]
)
def test_limits(value, is_least, expected):
    assert Figure("rate", value, 10.0, "Hz", is_least).is_met is expected

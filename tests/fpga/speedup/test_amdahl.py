"""Amdahl's law: in numbers, at its points of break-even, and against measured frame rates."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.fpga.speedup.amdahl import (
    break_even_batch,
    break_even_kernel_speedup,
    break_even_launch_us,
    payback_count,
    total_speedup,
)

# Measured on boards: (pre-processing, execution, post-processing) in ms and frames per second, before and after
# pre-processing alone moved to the FPGA.
MEASURED = [
    ((2.78, 2.84, 0.35), 167.39, (1.42, 2.78, 0.48), 212.95),
    ((18.84, 11.79, 0.69), 31.52, (2.79, 11.68, 0.69), 65.89),
    ((3.42, 0.69, 0.57), 213.08, (0.91, 0.69, 0.57), 459.77),
]


def law_on_the_measured_rate(before, rate, pre_ms):
    """A frame's time outside the stages shrinks in proportion."""
    return rate * total_speedup(before[0] / sum(before), before[0] / pre_ms)


def period_less_the_saving(before, rate, pre_ms):
    """What lies between the stages stays as long as it was."""
    return 1e3 / (1e3 / rate - (before[0] - pre_ms))


def sum_of_the_stages(before, rate, pre_ms):
    """Nothing lies between the stages; the measured rate is not used."""
    return 1e3 / sum((pre_ms, *before[1:]))


@pytest.mark.parametrize(
    ("predict", "median_limit", "worst_limit"),
    [
        (law_on_the_measured_rate, 0.018, 0.019),
        (period_less_the_saving, 0.018, 0.032),
        (sum_of_the_stages, 0.007, 0.019),
    ],
)
def test_what_only_the_stages_before_and_the_new_pre_processing_predict(predict, median_limit, worst_limit):
    """None of the three uses what execution and post-processing took afterwards: a prediction, not a fit."""
    errors = [abs(predict(before, rate, after[0]) / rate_after - 1) for before, rate, after, rate_after in MEASURED]
    assert median(errors) < min(median_limit, 0.03)
    assert max(errors) < worst_limit


def test_the_measured_stages_and_rates_agree_with_each_other():
    """What the pairs themselves leave open: stages that add up to the measured period within 1.3 %."""
    for before, rate, after, rate_after in MEASURED:
        assert 1e3 / sum(before) == pytest.approx(rate, rel=0.0131)
        assert 1e3 / sum(after) == pytest.approx(rate_after, rel=0.0035)


def test_the_first_pair_by_hand():
    # f = 2.78 / 5.97 = 0.46566, S_k = 2.78 / 1.42 = 1.95775; 1 / (0.53434 + 0.23786) = 1.29501; 167.39 x 1.29501
    assert law_on_the_measured_rate((2.78, 2.84, 0.35), 167.39, 1.42) == pytest.approx(216.77, abs=0.01)


def test_the_law_in_numbers():
    # f = 3/5, S_k = 3: 1 / (2/5 + 1/5)
    assert total_speedup(3 / 5, 3) == pytest.approx(5 / 3)
    # with 1/5 of overhead: 1 / (2/5 + 1/5 + 1/5)
    assert total_speedup(3 / 5, 3, 1 / 5) == pytest.approx(5 / 4)


def test_an_overhead_above_the_gain_makes_the_whole_slower():
    assert total_speedup(0.5, 2, 0.3) == pytest.approx(1 / 1.05)


def test_nothing_moved_changes_nothing():
    assert total_speedup(0, 7) == 1


@pytest.mark.parametrize(("fraction", "overhead"), [(0.7, 0.11), (0.93, 0.05), (0.31, 0.0), (0.5, -0.2)])
def test_at_break_even_the_total_is_unchanged(fraction, overhead):
    speedup = break_even_kernel_speedup(fraction, overhead)
    assert speedup is not None
    assert total_speedup(fraction, speedup, overhead) == pytest.approx(1)


@pytest.mark.parametrize("overhead", [0.3, 0.5])
def test_no_kernel_is_fast_enough_when_the_overhead_costs_what_moves(overhead):
    assert break_even_kernel_speedup(0.3, overhead) is None
    assert total_speedup(0.3, 1e12, overhead) < 1 + 1e-9


# --- launches and batches: H on the host, F with the card, F0 with free launches -----------------------------------


def test_the_batch_that_carries_the_launches():
    # 1,000 us on the host; 900 us and 700 us of launches with the card: B x 1000 >= B x 900 + 700 from B = 7 on
    assert break_even_batch(1_000, 1_600, 900) == 7
    assert break_even_batch(1_000, 1_601, 900) == 8  # 701 / 100
    assert break_even_batch(1_000, 1_000, 900) == 1
    assert break_even_batch(1_000, 1_600, 1_000) is None
    assert break_even_batch(1_000, 1_700, 1_100) is None


@given(st.floats(10, 1e6), st.floats(0.01, 1.2), st.floats(0.0, 3.0))
def test_the_batch_is_the_smallest_that_pays(host, free_share, launch_share):
    free, finish = host * free_share, host * (free_share + launch_share)

    def speedup(batch):
        return batch * host / (batch * free + (finish - free))

    batch = break_even_batch(host, finish, free)
    if batch is None:
        assert all(speedup(some) < 1 + 1e-9 for some in (1, 10, 1_000, 10**9))
    else:
        assert speedup(batch) >= 1 - 1e-6
        assert batch == 1 or speedup(batch - 1) < 1 + 1e-6


def test_the_launch_that_breaks_even():
    # 7 calls of 11 us; 500 us with them, 423 us without: at 600 us each may cost 11 + 100 / 7
    assert break_even_launch_us(600, 500, 423, 77, 7) == pytest.approx(11 + 100 / 7)
    # at 450 us each may cost (450 - 423) / 7
    assert break_even_launch_us(450, 500, 423, 77, 7) == pytest.approx(27 / 7)
    assert break_even_launch_us(420, 500, 423, 77, 7) is None
    assert break_even_launch_us(600, 500, 500, 0, 0) is None


@given(
    st.lists(st.tuples(st.floats(1, 100), st.integers(0, 9)), min_size=1, max_size=5),
    st.floats(1, 200),
    st.floats(0.5, 20),
)
def test_no_launch_up_to_the_break_even_makes_the_whole_slower(paths, host, present):
    """The finish as the longest of several paths, each with some of nine launches on it: overlap of every kind."""

    def finish(launch):
        return max(fixed + count * launch for fixed, count in paths)

    found = break_even_launch_us(host, finish(present), finish(0), 9 * present, 9)
    if found is None:
        assert finish(0) > host
    else:
        assert finish(found) <= host * (1 + 1e-9)


def test_a_cost_paid_once_is_paid_back():
    assert payback_count(7_000, 1_300, 1_200) == 70
    assert payback_count(7_001, 1_300, 1_200) == 71
    assert payback_count(0, 1_300, 1_200) == 0
    assert payback_count(7_000, 1_300, 1_300) is None

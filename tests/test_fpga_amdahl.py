from __future__ import annotations

from statistics import median

import pytest

from common.fpga.amdahl import break_even_kernel_speedup, total_speedup

# Measured on boards: (pre-processing, execution, post-processing) in ms and frames per second, before and after
# pre-processing alone moved to the FPGA.
MEASURED = [
    ((2.78, 2.84, 0.35), 167.39, (1.42, 2.78, 0.48), 212.95),
    ((18.84, 11.79, 0.69), 31.52, (2.79, 11.68, 0.69), 65.89),
    ((3.42, 0.69, 0.57), 213.08, (0.91, 0.69, 0.57), 459.77),
]


def test_amdahl_is_within_3_percent_of_measured_systems():
    errors = []
    for before, fps_before, after, fps_after in MEASURED:
        predicted = total_speedup(before[0] / sum(before), before[0] / after[0])
        errors.append(abs(predicted / (fps_after / fps_before) - 1))
    assert median(errors) < 0.03
    assert max(errors) < 0.03


def test_the_law_in_numbers():
    # f = 3/5, S_k = 3: 1 / (2/5 + 1/5)
    assert total_speedup(3 / 5, 3) == pytest.approx(5 / 3)
    # with 1/5 of overhead: 1 / (2/5 + 1/5 + 1/5)
    assert total_speedup(3 / 5, 3, 1 / 5) == pytest.approx(5 / 4)


def test_an_overhead_above_the_gain_makes_the_whole_slower():
    assert total_speedup(0.5, 2, 0.3) == pytest.approx(1 / 1.05)


def test_nothing_moved_changes_nothing():
    assert total_speedup(0, 7) == 1


@pytest.mark.parametrize(("fraction", "overhead"), [(0.7, 0.11), (0.93, 0.05), (0.31, 0.0)])
def test_at_break_even_the_total_is_unchanged(fraction, overhead):
    speedup = break_even_kernel_speedup(fraction, overhead)
    assert speedup is not None
    assert total_speedup(fraction, speedup, overhead) == pytest.approx(1)


@pytest.mark.parametrize("overhead", [0.3, 0.5])
def test_no_kernel_is_fast_enough_when_the_overhead_costs_what_moves(overhead):
    assert break_even_kernel_speedup(0.3, overhead) is None
    assert total_speedup(0.3, 1e12, overhead) < 1 + 1e-9

"""One run of the host in three cases: by hand, and what holds in each."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.intervals import ThreePoint
from common.messages.errors import UpstreamError
from common.workload.host_cost import HostTotals, divided_run, run_energy, run_latency, surplus_us

SUMMARY = {"p50_us": 1_009.0, "p50_low_us": 997.0, "p50_high_us": 1_103.0}


def test_a_run_is_as_uncertain_as_its_median_and_a_short_one_is_pessimistic():
    assert run_latency(1_009.0, SUMMARY) == ThreePoint(997.0, 1_009.0, 1_103.0)
    assert run_latency(1_009.0, dict.fromkeys(SUMMARY)) == ThreePoint.exactly(1_009.0)
    assert run_latency(1_009.0, SUMMARY | {"p50_high_us": None}) == ThreePoint.exactly(1_009.0)


def test_energy_is_as_uncertain_as_power_and_time_together():
    energy = {"energy_uj": 7.0, "energy_low_uj": 5.0, "energy_high_uj": 11.0}
    found = run_energy(energy, ThreePoint(9.0, 10.0, 13.0))
    assert found.cases == pytest.approx((5.0 * 9 / 10, 7.0, 11.0 * 13 / 10))
    assert run_energy(dict.fromkeys(energy), ThreePoint.exactly(10.0)) is None
    ends = {"energy_low_uj": None, "energy_high_uj": None}
    assert run_energy(energy | ends, ThreePoint.exactly(10.0)) == ThreePoint.exactly(7.0)


def test_a_corrected_time_may_be_too_long_by_what_the_correction_may_lack():
    row = {"correction_us": 3.0, "correction_high_us": 10.0}
    assert surplus_us(17.0, row) == 7.0
    assert surplus_us(5.0, row) == 5.0  # no time is negative
    assert surplus_us(17.0, None) == surplus_us(17.0, dict.fromkeys(row)) == 0.0


def test_the_gap_stays_unless_it_is_divided_and_an_excess_shortens_every_step():
    assert divided_run([30.0, 50.0], [0, 0], 100.0) == ([30.0, 50.0], 20.0)
    assert divided_run([30.0, 50.0], [0, 0], 100.0, is_gap_divided=True) == ([37.5, 62.5], 0.0)
    assert divided_run([30.0, 50.0], [0, 0], 40.0) == ([15.0, 25.0], 0.0)
    assert divided_run([0.0, 0.0], [0, 0], 40.0, is_gap_divided=True) == ([0.0, 0.0], 40.0)


def test_what_a_step_has_too_much_is_no_longer_its_own_and_no_other_gets_it():
    assert divided_run([30.0, 50.0], [7.0, 11.0], 100.0) == ([23.0, 39.0], 38.0)
    assert divided_run([30.0, 50.0], [6.0, 10.0], 40.0) == ([12.0, 20.0], 8.0)


@pytest.mark.slow
@example([(1e-308, 0.0)], 2.0, True)
@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1)), max_size=9), st.floats(1, 1e6), st.booleans())
def test_the_steps_and_the_gap_are_the_run(parts, run_us, is_gap_divided):
    own_us = [us for us, _ in parts]
    surplus = [us * share for us, share in parts]
    steps, gap_us = divided_run(own_us, surplus, run_us, is_gap_divided=is_gap_divided)
    assert sum(steps) + gap_us == pytest.approx(run_us)
    assert gap_us >= 0
    assert all(us >= 0 for us in steps)


def test_a_run_that_takes_no_time_is_refused():
    with pytest.raises(UpstreamError, match="no node has a latency; rerun <op_latency>"):
        HostTotals(ThreePoint(0.0, 1.0, 1.0), None, None)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.floats(1, 1e5), st.floats(0, 1)), min_size=2, max_size=9),
    st.floats(1, 1e6),
    st.data(),
)
def test_in_no_case_more_moves_than_in_a_better_one(parts, run_us, data):
    """Whatever a plan moves: the share of the run that goes with it rises from case to case."""
    own_us, surplus = [us for us, _ in parts], [us * share for us, share in parts]
    moved = data.draw(st.sets(st.integers(0, len(parts) - 1)))
    none = [0.0] * len(parts)
    cases = [divided_run(own_us, surplus, run_us), divided_run(own_us, none, run_us)]
    cases.append(divided_run(own_us, none, run_us, is_gap_divided=True))
    shares = [sum(steps[index] for index in moved) / run_us for steps, _ in cases]
    assert shares[0] <= shares[1] * (1 + 1e-9) + 1e-9
    assert shares[1] <= shares[2] * (1 + 1e-9) + 1e-9

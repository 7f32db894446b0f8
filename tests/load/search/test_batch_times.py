"""Predictions from measured times of batches, against closed forms and against each other."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.load.requests.load_record import FAILED
from common.load.search.batch_times import (
    capacity_hz,
    every_size,
    measure_times,
    powers_of_two,
    predicted,
    sustainable_hz,
    unknown_tail,
)
from common.load.search.bulk_queue import ROUGH
from common.load.search.halving import Configuration

TIMES = {1: np.array([0.004, 0.006]), 4: np.array([0.011]), 8: np.array([0.019])}
MEANS = {size: np.array([own.mean()]) for size, own in TIMES.items()}


@pytest.mark.parametrize("workers", [1, 2])
def test_each_size_is_measured_on_full_batches(workers):
    sizes = []

    def load(source, policy):
        def service_ns(batch, now_ns):
            sizes.append(len(batch.requests))
            return 1000 * len(batch.requests) * 10**3

        return simulate(source, service_ns, policy, workers=workers)

    times = measure_times(load, workers, [1, 3, 4], 0.3)
    assert {size: len(own) for size, own in times.items()} == {1: 99 * workers, 3: 32 * workers, 4: 24 * workers}
    assert {size: {*own.tolist()} for size, own in times.items()} == {size: {size / 1000} for size in (1, 3, 4)}
    assert {*sizes} == {1, 3, 4}


@pytest.mark.parametrize(("failing", "taken_s"), [(3, {0.010}), (1, {0.001})])
def test_calls_that_fail_are_not_timed_unless_all_do(failing, taken_s):
    """Each third call, or each, fails after a tenth of the time."""

    def load(source, policy):
        record = simulate(source, lambda batch, _: 10**6 if batch.index % failing == 0 else 10**7, policy)
        outcomes = np.where(record.batch_indices % failing == 0, FAILED, record.outcomes)
        return replace(record, outcomes=outcomes)

    assert {*measure_times(load, 1, [1], 0.1)[1].tolist()} == taken_s


def test_sizes_between_measured_ones_lie_on_the_line():
    every = every_size(TIMES, 8)
    assert [float(own.mean()) for own in every] == pytest.approx([5e-3, 7e-3, 9e-3, 11e-3, 13e-3, 15e-3, 17e-3, 19e-3])
    assert every[0].tolist() == TIMES[1].tolist()


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_powers_of_two_and_the_largest(most, sizes):
    assert powers_of_two(most) == sizes


def test_a_session_that_serves_slow_calls_has_their_percentiles():
    """At 2 % load hardly any request waits: p99 is a slow call, of which there are 3 %."""
    found = predicted({1: np.repeat([0.001, 0.05], [97, 3])}, Configuration(1, 0.0, 1, 1), 8.0, ROUGH)
    assert found.p50_us == pytest.approx(1000)
    assert found.p99_us == pytest.approx(50_000, rel=0.1)
    assert found.utilization == pytest.approx(8.0 * 0.00247, rel=0.1)


def test_calls_that_know_their_tail_are_enough():
    assert unknown_tail({1: np.full(299, 0.01), 4: np.full(300, 0.02)}) == ""


def test_too_few_calls_do_not_know_their_tail():
    few = {1: np.full(299, 0.01), 4: np.full(61, 0.02)}
    assert unknown_tail(few) == "61 calls with a batch of 4 were timed, and 299 are needed for their tail"


def test_rare_slow_calls_take_more():
    """Of squares that are 361 in 5 % of the calls and 1 in the others, 4,615 have a mean to 10 % at 95 %."""
    slow = np.repeat([1.0, 19.0], [1900, 100])
    mean, deviation = 0.05 * 361 + 0.95, 360 * (0.05 * 0.95) ** 0.5
    enough = math.ceil((1.645 * deviation / mean / 0.1) ** 2)
    assert (
        unknown_tail({1: slow}) == f"2,000 calls with a batch of 1 were timed, and {enough:,} are needed for their tail"
    )
    assert unknown_tail({1: np.tile(slow, 2)}) != ""
    assert unknown_tail({1: np.tile(slow, 3)}) == ""


@pytest.mark.slow
def test_a_queue_with_more_sessions_answers_sooner():
    one, two = (predicted(TIMES, Configuration(8, 0.002, count, 1), 300.0) for count in (1, 2))
    assert two.p99_us < one.p99_us
    assert predicted(TIMES, Configuration(8, 0.002, 1, 1), 430.0) is None
    assert predicted(TIMES, Configuration(8, 0.002, 2, 1), 430.0) is not None


def test_capacity_is_that_of_full_batches():
    assert capacity_hz(TIMES, Configuration(8, 0.0, 3, 2)) == pytest.approx(3 * 8 / 0.019)


@pytest.mark.slow
@pytest.mark.parametrize(
    "setup", [Configuration(1, 0.0, 1, 1), Configuration(8, 0.003, 1, 1), Configuration(4, 0.0, 2, 1)]
)
def test_the_sustainable_rate_meets_the_bound_and_little_more_does_not(setup):
    rate_hz = sustainable_hz(MEANS, setup, 40_000.0)
    assert predicted(MEANS, setup, rate_hz).p99_us <= 1.05 * 40_000
    beyond = predicted(MEANS, setup, 1.15 * rate_hz)
    assert beyond is None or beyond.p99_us > 40_000


def test_a_bound_below_the_service_time_leaves_the_lightest_load():
    assert sustainable_hz(TIMES, Configuration(8, 0.0, 1, 1), 100.0) == pytest.approx(0.02 * 8 / 0.019)

"""Predictions from measured times of batches, against closed forms and against each other."""

import math

import numpy as np
import pytest

from common.load.generator.virtual_clock import simulate
from common.load.search.batch_times import (
    capacity_hz,
    every_size,
    measure_times,
    powers_of_two,
    predicted,
    sustainable_hz,
)
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


def test_sizes_between_measured_ones_lie_on_the_line():
    every = every_size(TIMES, 8)
    assert [float(own.mean()) for own in every] == pytest.approx([5e-3, 7e-3, 9e-3, 11e-3, 13e-3, 15e-3, 17e-3, 19e-3])
    assert every[0].tolist() == TIMES[1].tolist()


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_powers_of_two_and_the_largest(most, sizes):
    assert powers_of_two(most) == sizes


@pytest.mark.slow
def test_two_sessions_are_m_m_2():
    mean_s, rate_hz = 0.01, 130.0
    exponential = -mean_s * np.log(1 - (np.arange(4000) + 0.5) / 4000)
    load = rate_hz * mean_s / 2
    queued = (2 * load**2 / (1 - load)) / (1 + 2 * load + 2 * load**2 / (1 - load))  # Erlang C for two servers
    decay = 2 / mean_s - rate_hz  # P(wait > t) = queued · exp(-decay t)

    def beyond(time_s):
        ratio = queued * decay / (decay - 1 / mean_s)
        served = math.exp(-time_s / mean_s)
        return (1 - queued) * served + ratio * served - (ratio - queued) * math.exp(-decay * time_s)

    found = predicted({1: exponential}, Configuration(1, 0.0, 2, 1), rate_hz)
    assert beyond(found.p50_us / 1e6) == pytest.approx(0.5, abs=0.02)
    assert beyond(found.p99_us / 1e6) == pytest.approx(0.01, abs=0.004)
    assert found.utilization == pytest.approx(load, rel=0.03)


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
    alone = Configuration(setup.batch_max, setup.wait_s, 1, 1)
    share_hz = rate_hz / setup.session_count
    assert predicted(MEANS, alone, share_hz).p99_us <= 40_000
    beyond = predicted(MEANS, alone, 1.15 * share_hz)
    assert beyond is None or beyond.p99_us > 40_000


def test_a_bound_below_the_service_time_leaves_the_lightest_load():
    assert sustainable_hz(TIMES, Configuration(8, 0.0, 1, 1), 100.0) == pytest.approx(0.02 * 8 / 0.019)

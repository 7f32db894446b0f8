"""Limits of percentiles of requests that wait together."""

import numpy as np
import pytest

from common.latency.statistics import percentile, variance_factor
from common.load.generator.virtual_clock import simulate
from common.load.requests.batching import BatchPolicy
from common.load.requests.schedules import poisson
from common.load.requests.sources import OpenLoop
from common.load.results.validity import LoadValidity
from common.load.search.halving import Configuration
from common.load.search.trials import FILLING_SHARE, trial

SETUP = Configuration(1, 0.0, 1, 1)
SERVICE_NS, RATE_HZ = 10_000_000, 85.0


def run(seed, requests, rate_hz=RATE_HZ):
    source = OpenLoop(poisson(rate_hz, requests / rate_hz, seed))
    return simulate(source, lambda batch, now_ns: SERVICE_NS, BatchPolicy())


def test_independent_events_have_no_factor():
    random = np.random.default_rng(0)
    factors = [variance_factor(random.random(10_000) < 0.01) for _ in range(20)]
    assert np.mean(factors) < 1.4  # the mean of the larger of 1 and a chi-square of 9 degrees over 9 is 1.2


def test_events_that_come_in_runs_have_their_length_as_factor():
    """Whole runs of eleven: the variance of a mean is eleven times that of independent events."""
    random = np.random.default_rng(1)
    factors = [variance_factor(np.repeat(random.random(4000) < 0.05, 11)) for _ in range(100)]
    assert np.mean(factors) == pytest.approx(11, rel=0.15)


def test_too_few_events_are_taken_as_independent():
    assert variance_factor(np.array([True, False, False] * 3)) == 1.0
    assert variance_factor(np.zeros(400, bool)) == 1.0


@pytest.mark.slow
def test_the_limits_hold_the_percentile_of_a_loaded_queue():
    """At 85 % of an M/D/1 queue, limits for independent requests hold the percentile of a long run in 5 of 60 runs."""
    long_us = run(99, 200_000).latencies_us
    true_p99 = float(np.quantile(long_us, 0.99))
    ours, alone, tries = 0, 0, 60
    for seed in range(tries):
        record = run(seed, 2000)
        found = trial(record, LoadValidity("valid"), SETUP, RATE_HZ)
        latencies_us = record.latencies_us[int(FILLING_SHARE * len(record)) :]
        quick = percentile(latencies_us, 0.99)
        limits = found.p99_us
        ours += (limits.low or 0.0) <= true_p99 <= (limits.high or np.inf)
        alone += quick.low <= true_p99 <= quick.high
    assert ours >= 0.7 * tries
    assert alone <= 0.3 * tries


@pytest.mark.slow
def test_limits_stand_around_the_value():
    found = trial(run(3, 40_000, 50.0), LoadValidity("valid"), SETUP, RATE_HZ)
    assert found.p50_us.low <= found.p50_us.value <= found.p50_us.high
    assert found.p99_us.low <= found.p99_us.value <= found.p99_us.high
    assert trial(run(3, 100), LoadValidity("valid"), SETUP, RATE_HZ).p99_us.high is None

"""Limits of percentiles of requests that wait together."""

import numpy as np
import pytest

from common.latency.statistics import ordered_percentile
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
        quick = ordered_percentile(np.sort(latencies_us), 0.99)
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

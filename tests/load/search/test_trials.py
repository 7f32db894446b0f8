"""Trials of a search: what they count, and limits of percentiles of requests that wait together."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.latency.statistics import ordered_percentile
from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import COMPLETED, FAILED
from common.load.requests.schedules import poisson
from common.load.requests.sources import OpenLoop
from common.load.results.validity import LoadValidity, judge
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
    assert ours >= 0.9 * tries
    assert alone <= 0.3 * tries


@pytest.mark.slow
def test_limits_stand_around_the_value():
    found = trial(run(3, 40_000, 50.0), LoadValidity("valid"), SETUP, RATE_HZ)
    assert found.p50_us.low <= found.p50_us.value <= found.p50_us.high
    assert found.p99_us.low <= found.p99_us.value <= found.p99_us.high
    assert trial(run(3, 100), LoadValidity("valid"), SETUP, RATE_HZ).p99_us.high is None


def test_a_trial_counts_what_failed_and_what_came_too_late():
    """Calls of 10 ms: a request that queues is beyond the bound. Every tenth one fails."""
    record = run(3, 400, 20.0)
    failed = np.arange(len(record)) % 10 == 5
    record = replace(record, outcomes=np.where(failed, FAILED, COMPLETED), failures={"thrown": int(failed.sum())})
    validity = judge([record], is_open=True, most_running=1)
    found = trial(record, validity, SETUP, 20.0, bound_us=10_000)
    assert (found.validity.status, found.validity.reason) == ("failing", validity.reason)
    assert (found.sent_count, found.failed_count) == (len(record), failed.sum())
    assert found.p99_us.value is None and not found.is_within(1e9)
    counted = slice(int(FILLING_SHARE * len(record)), None)
    in_time = record.waited_us <= 10_000
    assert found.good_share == pytest.approx((in_time & ~failed)[counted].mean())
    allowed = judge([record], is_open=True, most_running=1, max_error_share=0.11)
    assert trial(record, allowed, SETUP, 20.0).p99_us.value is not None

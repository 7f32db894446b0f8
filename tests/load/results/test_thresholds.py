"""Thresholds of loads whose every answer is known."""

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import Log
from common.load.requests.schedules import constant
from common.load.requests.sources import ClosedLoop, OpenLoop
from common.load.results.load_figures import LoadTest, goodput_hz, steady, summary
from common.load.results.thresholds import LoadThresholds

MS = 1_000_000
BOUND = LoadThresholds(bound_us=50_000)


def answered(latencies_ms, failed=(), gap_ms=20):
    """A request every 20 ms, each on a worker of its own."""
    log = Log()
    for index, latency_ms in enumerate(latencies_ms):
        begin_ns = index * gap_ms * MS
        batch = log.form([log.add(begin_ns, 0, begin_ns)], 1, 0, index, begin_ns, begin_ns)
        log.end(batch, begin_ns, begin_ns + latency_ms * MS, (), "thrown" if index in failed else "")
    return log.finished(0.0, len(latencies_ms) * gap_ms * MS, (), is_interrupted=False)


def test_goodput_counts_answers_within_the_bound_and_no_failures():
    record = answered([10, 50, 51, 10, 10], failed=[3])
    assert BOUND.is_good(record).tolist() == [True, True, False, False, True]
    assert BOUND.good_share(record) == 0.6 and LoadThresholds().good_share(record) == 0.8
    assert goodput_hz(LoadTest(record, BatchPolicy(), 5, True, thresholds=BOUND)) == pytest.approx(0.6 * 50)


def test_a_call_that_is_waited_for_changes_no_goodput_of_a_schedule():
    record = answered([10] * 99 + [60_000])
    assert goodput_hz(LoadTest(record, BatchPolicy(), 100, True, thresholds=BOUND)) == pytest.approx(0.99 * 50)


def test_without_a_schedule_goodput_is_what_is_answered_in_the_time():
    record = simulate(ClosedLoop(2, 1000 * MS), lambda batch, now_ns: 10 * MS, BatchPolicy())
    assert goodput_hz(LoadTest(record, BatchPolicy(), 1, False)) == pytest.approx(100)
    nothing = simulate(OpenLoop(constant(10, 0.2)), lambda batch, now_ns: MS, BatchPolicy(), end_ns=0)
    assert goodput_hz(LoadTest(nothing, BatchPolicy(), 1, True)) == 0


@pytest.mark.parametrize(
    ("thresholds", "broken"),
    [
        (LoadThresholds(0.02, 50_000, 45.0), []),
        (LoadThresholds(0.01, 50_000, 45.0), ["2 % of the requests got no answer; <max_error_share> is 1 %"]),
        (LoadThresholds(0.02, 50_000, 48.5), ["48.25 requests/s were answered within 50 ms; <min_goodput> is 48.5"]),
        (LoadThresholds(0.02, None, 48.0), []),
        (LoadThresholds(0.02, None, 49.5), ["49 requests/s were answered; <min_goodput> is 49.5"]),
    ],
)
def test_a_threshold_that_is_broken_is_named(thresholds, broken):
    record = answered([10] * 97 + [70] * 3 + [10] * 100, failed=[10, 11, 12, 13])
    test = LoadTest(record, BatchPolicy(), 1, True, thresholds=thresholds)
    assert thresholds.broken(summary(test, steady(record))) == broken


def test_every_latency_figure_counts_a_request_without_an_answer_with_the_time_that_was_waited():
    """2 % of the calls are given up after 300 ms: p95 is that of the answers, p99 is the timeout."""
    record = answered([300 if index % 50 == 7 else 10 for index in range(1000)], failed=range(7, 1000, 50))
    found = summary(LoadTest(record, BatchPolicy(), 1, True, thresholds=LoadThresholds(0.02)), steady(record))
    assert (found["validity"], found["error_share"]) == ("valid", 0.02)
    assert (found["request_p95_us"], found["request_p99_us"], found["request_max_us"]) == (10_000, 300_000, 300_000)
    assert found["request_mean_us"] == pytest.approx(0.02 * 300_000 + 0.98 * 10_000)
    usual = summary(LoadTest(record, BatchPolicy(), 1, True), steady(record))
    assert (usual["validity"], usual["request_p99_us"]) == ("failing", None)


def test_a_request_that_expires_counts_with_its_timeout():
    policy = BatchPolicy(timeout_ns=100 * MS)
    calls = lambda batch, now_ns: (1050 if batch.index == 20 else 2) * MS  # noqa: E731
    record = simulate(OpenLoop(constant(100, 10)), calls, policy)
    share = record.expired_count / len(record)
    assert 0.09 < share < 0.11
    test = LoadTest(record, policy, 1, True, thresholds=LoadThresholds(share))
    found = summary(test, steady(record))
    assert (found["validity"], found["request_p95_us"]) == ("valid", 100_000)
    assert found["request_max_us"] == 1_050_000


def test_limits_are_widened_by_what_the_generator_holds_up():
    log = Log()
    for index in range(1000):
        begin_ns, delay_ns = index * 20 * MS, 3 * MS if index % 10 == 0 else 0
        batch = log.form([log.add(begin_ns, 0, begin_ns)], 1, 0, 0, begin_ns, begin_ns + delay_ns)
        log.end(batch, begin_ns + delay_ns, begin_ns + delay_ns + 10 * MS + index % 7)
    record = log.finished(0.0, 20_000 * MS, (), is_interrupted=False)
    found = summary(LoadTest(record, BatchPolicy(), 1, True), steady(record))
    assert found["validity"] == "valid"
    assert found["generator_delay_share"] == pytest.approx(0.3 / 10.3, rel=1e-3)
    assert found["request_p95_us"] == pytest.approx(13_000)
    assert found["request_p95_low_us"] == pytest.approx(10_000)
    assert found["request_p50_low_us"] == pytest.approx(found["request_p50_us"], rel=1e-3)
    assert np.isclose(found["request_p99_high_us"], 13_000, rtol=1e-3)

"""Verdicts on simulated runs: an overload is found at five per cent too much, and no stable queue is accused."""

import numpy as np
import pytest

from common.load.generator.virtual_clock import simulate
from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import Log
from common.load.requests.schedules import Arrivals, Bursts, bursty, constant, poisson
from common.load.requests.sources import ClosedLoop, OpenLoop
from common.load.results.validity import depths, grows, judge, utilization

MS = 1_000_000


def at(utilization_share, seed, duration_s=20, policy=BatchPolicy()):  # noqa: B008 - a frozen value
    arrivals = poisson(1000 * utilization_share, duration_s, seed)
    return simulate(OpenLoop(arrivals), lambda batch, now_ns: MS * len(batch.requests), policy)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_queue_near_its_limit_is_not_called_an_overload(seed):
    assert judge(at(0.95, seed), is_open=True, most_running=1).status == "valid"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_rate_five_per_cent_too_high_is_an_overload(seed):
    validity = judge(at(1.05, seed), is_open=True, most_running=1)
    assert (validity.status, validity.reason[:15]) == ("overload", "the queue grows")


@pytest.mark.slow
def test_an_overload_of_workers_that_rest_is_that_of_the_load_test_itself():
    log = Log()
    for index in range(200):  # of twice the requests that can be answered; a call takes half of the time
        begin_ns = index * 10 * MS
        batch = log.form([log.add(index * 5 * MS, 0, begin_ns)], 1, 0, 0, begin_ns, begin_ns)
        log.end(batch, begin_ns, begin_ns + 5 * MS)
    validity = judge(log.finished(0.0, 2000 * MS, (), is_interrupted=False), is_open=True, most_running=1)
    assert validity.reason.endswith("the load test itself is the limit: workers are busy 50 % of the time")
    assert "itself" not in judge(at(1.05, 1), is_open=True, most_running=1).reason


@pytest.mark.slow
def test_bursts_that_the_queue_absorbs_are_no_overload():
    arrivals = bursty(500, 40, Bursts(peak=3, share=0.2, mean_s=0.5), seed=1)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: MS, BatchPolicy())
    assert record.latencies_us.max() > 100_000  # a backlog of more than a hundred requests
    assert not grows(record, 1)


@pytest.mark.slow
def test_requests_that_are_turned_away_are_an_overload():
    rejecting = at(1.3, 1, policy=BatchPolicy(capacity=5))
    expiring = at(1.3, 1, policy=BatchPolicy(timeout_ns=7 * MS))
    for record in (rejecting, expiring):
        validity = judge(record, is_open=True, most_running=1)
        assert validity.status == "overload"
        assert "found the queue full or waited beyond the timeout" in validity.reason
    assert rejecting.counts["rejected"] > 0 and expiring.expired_count == expiring.counts["cancelled"] > 0


def test_users_who_wait_overload_nothing():
    record = simulate(ClosedLoop(50, 10_000 * MS), lambda batch, now_ns: MS, BatchPolicy())
    assert judge(record, is_open=False, most_running=1).status == "valid"
    assert utilization(record, 1) == pytest.approx(1)


@pytest.mark.parametrize(("late", "validity"), [(1, "valid"), (2, "invalid")])
def test_a_generator_that_holds_up_more_than_one_per_cent_makes_a_run_invalid(late, validity):
    log = Log()
    for index in range(100):
        begin_ns = index * 10 * MS
        formed_ns = begin_ns + (3 * MS // 2 if index < late else MS // 2)
        batch = log.form([log.add(begin_ns, 0, begin_ns)], 1, 0, 0, begin_ns, formed_ns)
        log.end(batch, formed_ns + 5 * MS, formed_ns + 9 * MS)
    record = log.finished(0.0, 1000 * MS, (), is_interrupted=False)
    assert record.late_share == late / 100
    assert judge(record, is_open=True, most_running=1).status == validity


def test_a_late_generator_hides_no_overload():
    log = Log()
    for index in range(100):  # of twice the requests that can be answered, the first ten start late
        formed_ns = index * 10 * MS + (3 * MS // 2 if index < 10 else 0)
        batch = log.form([log.add(index * 5 * MS, 0, formed_ns)], 1, 0, 0, index * 10 * MS, formed_ns)
        log.end(batch, formed_ns, (index + 1) * 10 * MS)
    validity = judge(log.finished(0.0, 1000 * MS, (), is_interrupted=False), is_open=True, most_running=1)
    assert validity.status == "invalid"
    assert "the generator held up" in validity.reason
    assert "the queue grows" in validity.reason


def test_a_delay_below_one_per_cent_of_the_latency_is_not_late():
    log = Log()
    batch = log.form([log.add(0, 0, 0)], 1, 0, 0, 0, 3 * MS // 2)
    log.end(batch, 3 * MS // 2, 200 * MS)
    assert log.finished(0.0, 200 * MS, (), is_interrupted=False).late_share == 0


def test_nothing_answered_is_invalid():
    record = simulate(OpenLoop(constant(100, 0.1)), lambda batch, now_ns: MS, BatchPolicy(), end_ns=0)
    assert judge(record, is_open=True, most_running=1).reason == "no request was answered"


def test_depths_count_what_came_and_has_not_left():
    arrivals = Arrivals(np.array([0, 1, 2, 3, 20]) * MS)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: 5 * MS, BatchPolicy())
    assert depths(record, np.array([0, 1, 3, 4, 5, 10, 15, 20]) * MS).tolist() == [0, 1, 3, 3, 2, 1, 0, 0]
    assert utilization(record, 1) == pytest.approx(1)
    assert utilization(record, 2) == pytest.approx(0.5)

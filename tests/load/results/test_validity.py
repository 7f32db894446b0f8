"""Verdicts on simulated runs: an overload is found at five per cent too much, and no stable queue is accused."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.load.virtual_clock import simulate
from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import CANCELLED, REJECTED, Log
from common.load.requests.schedules import Arrivals, Bursts, bursty, constant, poisson
from common.load.requests.sources import ClosedLoop, OpenLoop
from common.load.results.validity import delay_share, depths, grows, judge, undelayed_us, utilization

MS = 1_000_000


def at(utilization_share, seed, duration_s=20, policy=BatchPolicy()):  # noqa: B008 - a frozen value
    arrivals = poisson(1000 * utilization_share, duration_s, seed)
    return simulate(OpenLoop(arrivals), lambda batch, now_ns: MS * len(batch.requests), policy)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_queue_near_its_limit_is_not_called_an_overload(seed):
    assert judge([at(0.95, seed)], is_open=True, most_running=1).status == "valid"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_rate_five_per_cent_too_high_is_an_overload(seed):
    validity = judge([at(1.05, seed)], is_open=True, most_running=1)
    assert (validity.status, validity.reason[:15]) == ("overload", "the queue grows")


@pytest.mark.slow
def test_an_overload_of_workers_that_rest_is_that_of_the_load_test_itself():
    log = Log()
    for index in range(200):  # of twice the requests that can be answered; a call takes half of the time
        begin_ns = index * 10 * MS
        batch = log.form([log.add(index * 5 * MS, 0, begin_ns)], 1, 0, 0, begin_ns, begin_ns)
        log.end(batch, begin_ns, begin_ns + 5 * MS)
    validity = judge([log.finished(0.0, 2000 * MS, (), is_interrupted=False)], is_open=True, most_running=1)
    assert validity.reason.endswith("the load test itself is the limit: workers are busy 50 % of the time")
    assert "itself" not in judge([at(1.05, 1)], is_open=True, most_running=1).reason


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
        validity = judge([record], is_open=True, most_running=1)
        assert validity.status == "overload"
        assert "found the queue full or waited beyond the timeout" in validity.reason
    assert rejecting.counts["rejected"] > 0 and expiring.expired_count == expiring.counts["cancelled"] > 0


def test_users_who_wait_overload_nothing():
    record = simulate(ClosedLoop(50, 10_000 * MS), lambda batch, now_ns: MS, BatchPolicy())
    assert judge([record], is_open=False, most_running=1).status == "valid"
    assert utilization(record, 1) == pytest.approx(1)


def held_up(delays_ms, call_ms=10, gap_ms=17, *, has_priority=False):
    """A load whose generator holds up the requests for these times; one worker answers them."""
    log, free_ms = Log(), 0.0
    log.has_priority = has_priority
    for index, delay_ms in enumerate(delays_ms):
        ready_ms = max(index * gap_ms, free_ms)
        formed_ms, free_ms = ready_ms + delay_ms, ready_ms + delay_ms + call_ms
        ready_ns, formed_ns, ended_ns = (round(MS * time_ms) for time_ms in (ready_ms, formed_ms, free_ms))
        batch = log.form([log.add(index * gap_ms * MS, 0, formed_ns)], 1, 0, 0, ready_ns, formed_ns)
        log.end(batch, formed_ns, ended_ns)
    return log.finished(0.0, round(MS * free_ms), (), is_interrupted=False)


def test_a_generator_without_priority_is_late_in_a_light_load_and_the_load_is_valid():
    """The plain thread of SqueezeNet at 60 requests/s: 7 % of the requests are held up for 1 to 3 ms."""
    record = held_up([2.5 if index % 14 == 0 else 0.1 for index in range(600)])
    assert record.late_share == pytest.approx(43 / 600)
    assert delay_share([record]) == pytest.approx(43 * 2.5 / (600 * 10 + 43 * 2.5 + 557 * 0.1))
    assert judge([record], is_open=True, most_running=1).status == "valid"


@pytest.mark.parametrize(("has_priority", "names_it"), [(False, True), (True, False)])
def test_a_generator_that_makes_a_tenth_of_the_latency_makes_a_load_invalid(has_priority, names_it):
    late, very_late = (
        held_up([delay_ms if index % 4 == 0 else 0 for index in range(600)], has_priority=has_priority)
        for delay_ms in (4, 6)
    )
    assert judge([late], is_open=True, most_running=1).status == "valid"  # 1 ms of 11
    validity = judge([very_late], is_open=True, most_running=1)
    assert (validity.status, "`ulimit -r 1`" in validity.reason) == ("invalid", names_it)  # 1.5 ms of 11.5
    assert "held up 25 % of the requests for over 1 ms, which makes 13 % of the latency" in validity.reason


def test_few_requests_that_wait_long_for_the_generator_leave_a_load_valid():
    record = held_up([500 if index == 0 else 0 for index in range(600)], gap_ms=600)
    assert judge([record], is_open=True, most_running=1).status == "valid"


def test_a_delay_counts_for_those_that_queue_behind_it():
    """Calls of 10 ms without a pause: a delay of 6 ms makes each later request 6 ms later."""
    record = held_up([0, 6, 0, 0], gap_ms=10)
    assert record.waited_us.tolist() == [10_000, 16_000, 16_000, 16_000]
    assert undelayed_us(record).tolist() == [10_000] * 4
    rested = held_up([0, 6, 0, 0], gap_ms=16)
    assert undelayed_us(rested).tolist() == rested.waited_us.tolist()[:1] * 4


def test_a_late_batch_begins_no_sooner_than_its_newest_request():
    """The generator sleeps from 0 to 30 ms and then takes three requests, of 0, 10 and 20 ms, into a call of 1 ms."""
    log = Log()
    requests = [log.add(intended_ns, 0, 30 * MS) for intended_ns in (0, 10 * MS, 20 * MS)]
    log.end(log.form(requests, 3, 0, 0, 0, 30 * MS), 30 * MS, 31 * MS)
    record = log.finished(0.0, 40 * MS, (), is_interrupted=False)
    assert undelayed_us(record).tolist() == [21_000, 11_000, 1_000]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_latency_without_delays_holds_its_own_call(workers, seed):
    """Whatever is held up, no request is answered before it came, nor later than it was."""
    random = np.random.default_rng(seed)
    service = lambda batch, now_ns: MS  # noqa: E731
    policy = BatchPolicy(most=4, wait_ns=2 * MS)
    record = simulate(OpenLoop(poisson(1500 * workers, 1, seed)), service, policy, workers=workers)
    ready_ns = record.batches.ready_ns - random.choice([0, 0, 0, 3 * MS], len(record.batches.sizes))
    undelayed = undelayed_us(replace(record, batches=replace(record.batches, ready_ns=ready_ns)))
    assert (undelayed >= MS / 1e3).all()
    assert (undelayed <= record.waited_us).all()


@pytest.mark.parametrize("workers", [1, 3])
def test_without_delays_nothing_changes(workers):
    arrivals = poisson(900 * workers, 1, 2)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: MS, BatchPolicy(most=2, wait_ns=MS), workers=workers)
    late = replace(record, batches=replace(record.batches, ready_ns=record.batches.ready_ns.copy()))
    late.batches.ready_ns[-1] -= 2 * MS  # the last batch alone is held up
    assert (undelayed_us(record) == record.waited_us).all()
    changed = undelayed_us(late) != record.waited_us
    assert set(np.flatnonzero(changed)) <= set(np.flatnonzero(record.batch_indices == len(record.batches.sizes) - 1))


def test_a_late_generator_hides_no_overload():
    log = Log()
    for index in range(100):  # of twice the requests that can be answered, a tenth starts late
        formed_ns = index * 10 * MS + (900 * MS if index < 10 else 0)
        batch = log.form([log.add(index * 5 * MS, 0, formed_ns)], 1, 0, 0, index * 10 * MS, formed_ns)
        log.end(batch, formed_ns, max((index + 1) * 10 * MS, formed_ns))
    validity = judge([log.finished(0.0, 1000 * MS, (), is_interrupted=False)], is_open=True, most_running=1)
    assert validity.status == "invalid"
    assert "the generator held up" in validity.reason
    assert "the queue grows" in validity.reason


def ended(failures, rejected=0, expired=0, waiting=0, answered=0, *, is_interrupted=False):
    """A load with so many requests of each outcome, one every 10 ms; a call takes 5 ms."""
    log = Log()
    outcomes = [*failures, *[""] * answered, *[REJECTED] * rejected, *[CANCELLED] * expired, *[None] * waiting]
    for index, outcome in enumerate(outcomes):
        begin_ns = index * 10 * MS
        request = log.add(begin_ns, 0, begin_ns)
        if isinstance(outcome, str):
            batch = log.form([request], 1, 0, 0, begin_ns, begin_ns)
            log.end(batch, begin_ns, begin_ns + 5 * MS, (), outcome)
        elif outcome is not None:
            log.drop(request, outcome, begin_ns)
    return log.finished(0.0, len(outcomes) * 10 * MS, (), is_interrupted=is_interrupted)


@pytest.mark.parametrize(
    ("record", "status", "reason"),
    [
        (ended(["thrown"], answered=999), "valid", ""),
        (ended(["thrown"] * 2, answered=998), "failing", "0.2 % of the requests failed (2 x thrown)"),
        (ended(["thrown"] * 90, answered=10), "failing", "90 % of the requests failed (90 x thrown)"),
        (ended(["a", "b", "b", "c", "d", "d"], answered=94), "failing", "(2 x b, 2 x d, 1 x a, others)"),
        (ended([], rejected=2, answered=998), "overload", "0.2 % of the requests found the queue full"),
        (ended([], expired=2, answered=998), "overload", "0.2 % of the requests found the queue full"),
        (ended([], waiting=2, answered=998), "overload", "0.2 % of the requests still waited when the load ended"),
        (ended(["thrown"], rejected=1, answered=998), "overload", "0.1 % of the requests failed (1 x thrown); 0.1 %"),
        (ended(["thrown"] * 3), "failing", "no request was answered; 100 % of the requests failed (3 x thrown)"),
        (ended([], waiting=3, is_interrupted=True), "invalid", "no request was answered"),
        (ended([], waiting=5, answered=10, is_interrupted=True), "valid", ""),
    ],
)
def test_requests_without_an_answer_enter_the_verdict(record, status, reason):
    validity = judge([record], is_open=True, most_running=1)
    assert validity.status == status and reason in validity.reason


def test_the_share_that_may_fail_is_asked_for():
    record = ended(["thrown"] * 5, answered=95)
    assert judge([record], is_open=True, most_running=1, max_error_share=0.05).status == "valid"
    assert judge([record], is_open=True, most_running=1, max_error_share=0.049).status == "failing"


def test_a_delay_below_one_per_cent_of_the_latency_is_not_late():
    log = Log()
    batch = log.form([log.add(0, 0, 0)], 1, 0, 0, 0, 3 * MS // 2)
    log.end(batch, 3 * MS // 2, 200 * MS)
    assert log.finished(0.0, 200 * MS, (), is_interrupted=False).late_share == 0


def test_nothing_answered_is_invalid():
    record = simulate(OpenLoop(constant(100, 0.1)), lambda batch, now_ns: MS, BatchPolicy(), end_ns=0)
    assert judge([record], is_open=True, most_running=1).reason.startswith("no request was answered")


def test_depths_count_what_came_and_has_not_left():
    arrivals = Arrivals(np.array([0, 1, 2, 3, 20]) * MS)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: 5 * MS, BatchPolicy())
    assert depths(record, np.array([0, 1, 3, 4, 5, 10, 15, 20]) * MS).tolist() == [0, 1, 3, 3, 2, 1, 0, 0]
    assert utilization(record, 1) == pytest.approx(1)
    assert utilization(record, 2) == pytest.approx(0.5)

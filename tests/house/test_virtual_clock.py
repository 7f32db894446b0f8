"""Runs on the virtual clock: queueing theory's closed forms, the stall that a closed loop hides, and every balance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.virtual_clock import simulate
from common.load.requests.batching import BatchPolicy, BatchQueue
from common.load.requests.load_record import LATE_NS, OUTCOMES, Log
from common.load.requests.schedules import Arrivals, constant, poisson
from common.load.requests.sources import ClosedLoop, OpenLoop

MS = 1_000_000
SERVICE_NS = 1 * MS


def lindley_ends_ns(intended_ns, service_ns):
    """When each request of one server ends (Lindley 1952): the later of its arrival and the end before it, plus one."""
    ranks = np.arange(len(intended_ns))
    return np.maximum.accumulate(intended_ns - ranks * service_ns) + (ranks + 1) * service_ns


def one_at_a_time(arrivals, service_ns=SERVICE_NS):
    return simulate(OpenLoop(arrivals), lambda batch, now_ns: service_ns, BatchPolicy())


@pytest.mark.parametrize("utilization", [0.5, 0.8, 0.95, 1.2])
def test_every_request_ends_when_lindleys_recursion_says(utilization):
    arrivals = poisson(1000 * utilization, 10, seed=11)
    record = one_at_a_time(arrivals)
    ends_ns = lindley_ends_ns(arrivals.intended_ns, SERVICE_NS)
    assert (record.batches.ended_ns == ends_ns).all()
    assert record.late_share == 0


@pytest.mark.slow
@pytest.mark.parametrize("utilization", [0.5, 0.8, 0.95])
def test_lindleys_recursion_has_the_mean_of_pollaczek_and_khinchine(utilization):
    arrivals = poisson(1000 * utilization, 20_000, seed=5)
    mean_ms = np.mean(lindley_ends_ns(arrivals.intended_ns, SERVICE_NS) - arrivals.intended_ns) / 1e6
    assert mean_ms == pytest.approx(1 + utilization / (2 * (1 - utilization)), rel=0.03)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("utilization", "duration_s"), [(0.5, 400), (0.8, 400), (0.95, 4000)])
def test_a_simulated_queue_has_the_mean_of_pollaczek_and_khinchine(utilization, duration_s):
    """A queue that is nearly full changes slowly: its mean takes ten times as long to settle within 3 %."""
    record = one_at_a_time(poisson(1000 * utilization, duration_s, seed=1))
    mean_ms = record.latencies_us.mean() / 1e3
    assert mean_ms == pytest.approx(1 + utilization / (2 * (1 - utilization)), rel=0.03)


def test_an_open_loop_shows_a_stall_that_a_closed_loop_hides():
    """At 500 requests/s a stall of 200 ms meets 100 requests; of a user who waits for each answer it meets one."""
    begin_ns, stall_ns, service_ns = 1000 * MS, 200 * MS, 29 * MS // 2

    def service(batch, now_ns):
        return service_ns + (begin_ns + stall_ns - now_ns if begin_ns <= now_ns < begin_ns + stall_ns else 0)

    opened = simulate(OpenLoop(constant(500, 4)), service, BatchPolicy(), workers=200)
    users = ClosedLoop(1, 60 * 1000 * MS, most_requests=2000)
    begin_ns = 69 * service_ns  # when the user sends a request
    closed = simulate(users, service, BatchPolicy())
    assert len(opened) == len(closed) == 2000
    # The worst three wait 200, 198 and 196 ms; the third of 2,000 is at the 99.9th percentile.
    assert np.quantile(opened.latencies_us, 0.999) / 1e3 == pytest.approx(210.5, abs=0.01)
    assert (opened.latencies_us > 14_500).sum() == 100
    assert np.quantile(closed.latencies_us, 0.999) / 1e3 == pytest.approx(14.5)
    assert (closed.latencies_us > 14_500).sum() == 1


def test_users_of_a_closed_loop_wait_for_each_other_and_think():
    loop = ClosedLoop(3, 100 * MS, think_ns=5 * MS)
    record = simulate(loop, lambda batch, now_ns: 10 * MS, BatchPolicy())
    # One server of 10 ms and three users: each answer takes 30 ms less the 5 ms of thinking, after the first round.
    assert record.latencies_us[:3].tolist() == [10_000, 20_000, 30_000]
    assert set(record.latencies_us[3:].tolist()) == {25_000}
    assert len(record) == record.counts["completed"] == 12
    assert record.intended_ns.max() < 100 * MS


def test_a_full_batch_goes_at_once_and_a_part_of_one_after_the_wait():
    arrivals = Arrivals(np.array([0, 1, 2, 3, 10, 30, 31]) * MS)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: MS, BatchPolicy(most=4, wait_ns=7 * MS), workers=2)
    assert record.batches.sizes.tolist() == [4, 1, 2]
    assert (record.batches.batched_ns // MS).tolist() == [3, 17, 37]
    assert record.latencies_us.tolist() == [4000, 3000, 2000, 1000, 8000, 8000, 7000]


def test_a_preferred_size_goes_at_once():
    arrivals = Arrivals(np.array([0, 1, 2, 20, 20, 20, 20, 20, 20, 20]) * MS)
    policy = BatchPolicy(most=6, wait_ns=50 * MS, preferred=(2, 4))
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: MS, policy)
    assert record.batches.sizes.tolist() == [2, 6, 2]
    assert (record.batches.batched_ns // MS).tolist() == [1, 20, 21]


def test_requests_share_a_batch_only_within_a_bucket_and_the_oldest_goes_first():
    arrivals = Arrivals(np.array([0, 1, 2, 3, 4, 5]) * MS, np.array([10, 60, 16, 64, 200, 5]))
    policy = BatchPolicy(most=2, wait_ns=100 * MS, buckets=(16, 64))
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: 10 * MS, policy)
    assert record.batches.lengths.tolist() == [16, 64, 16]
    assert record.batch_indices.tolist() == [0, 1, 0, 1, -1, 2]
    assert [OUTCOMES[outcome] for outcome in record.outcomes].count("rejected") == 1  # 200 fits no bucket
    assert (record.batches.batched_ns // MS).tolist() == [2, 12, 105]


def test_of_buckets_that_are_ready_the_one_with_the_oldest_request_goes_first():
    """All wait for one worker: the order of the buckets is 16, 32, 64, that of their oldest requests another."""
    arrivals = Arrivals(np.array([0, 1, 2, 3, 4, 5]) * MS, np.array([10, 60, 10, 30, 12, 64]))
    policy = BatchPolicy(most=2, wait_ns=0, buckets=(16, 32, 64))
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: 10 * MS, policy)
    assert record.batches.lengths.tolist() == [16, 64, 16, 32]
    assert record.batch_indices.tolist() == [0, 1, 2, 3, 2, 1]


@pytest.mark.parametrize("seed", range(5))
def test_single_requests_of_all_buckets_go_in_the_order_in_which_they_came(seed):
    rng = np.random.default_rng(seed)
    arrivals = Arrivals(np.sort(rng.integers(0, 997 * MS, 211)), rng.integers(1, 65, 211))
    policy = BatchPolicy(most=1, buckets=(8, 16, 32, 64))
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: 7 * MS, policy)
    assert record.batch_indices.tolist() == [*range(211)]


def test_a_batch_without_buckets_is_padded_to_its_longest_and_to_the_next_size():
    arrivals = Arrivals(np.zeros(5, np.int64), np.array([3, 7, 5, 2, 4]))
    policy = BatchPolicy(most=4, preferred=(2,), pads_size=True, wait_ns=0)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: MS, policy)
    assert record.batches.sizes.tolist() == [4, 1]
    assert record.batches.padded_sizes.tolist() == [4, 2]
    assert record.batches.lengths.tolist() == [7, 4]


@pytest.mark.parametrize("source", [OpenLoop(Arrivals(np.arange(9) * MS)), ClosedLoop(9, 100 * MS)])
def test_a_plan_knows_since_when_a_batch_is_ready(source):
    """Without a free worker more may wait than a batch holds."""
    log = Log()
    queue = BatchQueue(source, BatchPolicy(most=3, wait_ns=50 * MS), log)
    queue.plan(7 * MS)
    assert queue.pending_count >= 8
    assert queue.wake_ns == log.intended_ns[2]


def test_a_full_queue_rejects_and_a_long_wait_cancels():
    arrivals = Arrivals(np.array([0, 1, 2, 3, 4, 40]) * MS)
    policy = BatchPolicy(capacity=3, timeout_ns=15 * MS)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: 10 * MS, policy)
    # 0 runs to 10, 1 to 20; then 2 and 3 have waited 18 and 17 ms; 4 found three before it.
    names = [OUTCOMES[outcome] for outcome in record.outcomes]
    assert names == ["completed", "completed", "cancelled", "cancelled", "rejected", "completed"]


def test_a_request_that_has_expired_keeps_no_place_in_the_queue():
    """While the first call takes 1.15 s, a request comes every 20 ms and leaves after 100: five wait at a time."""
    arrivals = Arrivals(np.arange(60) * 20 * MS)
    policy = BatchPolicy(capacity=6, timeout_ns=100 * MS)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: 1150 * MS if batch.index == 0 else MS, policy)
    assert (record.counts["rejected"], record.expired_count) == (0, 52)
    assert set((record.left_ns - record.intended_ns)[record.is_expired]) == {100 * MS}
    assert set(record.waited_us[record.is_expired]) == {100_000}


def test_a_generator_that_looks_late_finds_who_waited_when_each_request_came():
    source, log = OpenLoop(Arrivals(np.arange(60) * 20 * MS)), Log()
    queue = BatchQueue(source, BatchPolicy(capacity=6, timeout_ns=100 * MS), log)
    queue.admit(1190 * MS)
    assert [OUTCOMES[outcome] for outcome in log.outcomes] == ["cancelled"] * 55 + ["pending"] * 5
    assert queue.pending_count == 5 and queue.expires_ns == (55 * 20 + 100) * MS


def test_a_user_whose_request_expires_sends_the_next_one_though_all_workers_are_busy():
    policy = BatchPolicy(timeout_ns=10 * MS)
    loop = ClosedLoop(2, 50 * MS, think_ns=2 * MS)
    record = simulate(loop, lambda batch, now_ns: 1000 * MS, policy)
    assert record.intended_ns.tolist() == [0, 0, 12 * MS, 24 * MS, 36 * MS, 48 * MS]
    assert record.expired_count == 5 and record.counts["completed"] == 1


def test_what_is_not_answered_at_the_end_is_cancelled():
    record = simulate(OpenLoop(constant(100, 1)), lambda batch, now_ns: 100 * MS, BatchPolicy(), end_ns=1000 * MS)
    assert record.counts == {"pending": 0, "completed": 9, "rejected": 0, "failed": 0, "cancelled": 91}


@pytest.mark.slow
@given(
    gaps=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    most=st.integers(1, 7),
    wait=st.integers(0, 9),
    workers=st.integers(1, 3),
    service=st.integers(1, 11),
    capacity=st.integers(1, 20),
    timeout=st.integers(1, 40),
)
def test_every_request_is_accounted_for(gaps, most, wait, workers, service, capacity, timeout):
    arrivals = Arrivals(np.cumsum(gaps) * MS)
    policy = BatchPolicy(most, wait * MS, capacity=capacity, timeout_ns=timeout * MS)
    record = simulate(OpenLoop(arrivals), lambda batch, now_ns: service * MS, policy, workers=workers)
    counts = record.counts
    assert len(record) == len(gaps) == sum(counts.values())
    assert counts["pending"] == counts["failed"] == 0
    served = record.batch_indices[record.is_completed]
    assert np.bincount(served, minlength=len(record.batches.sizes)).tolist() == record.batches.sizes.tolist()
    assert record.batches.sizes.max(initial=1) <= most
    assert (np.diff(served) >= 0).all()  # oldest first
    # No batch waits while it and its worker are ready, so the virtual clock is never late.
    assert (record.late_ns >= 0).all() and (record.late_ns <= LATE_NS // 10**9).all()
    waited_ns = record.batches.batched_ns[served] - record.intended_ns[record.is_completed]
    assert (waited_ns >= 0).all() and (waited_ns < timeout * MS).all()

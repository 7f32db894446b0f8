"""Runs by the clock, without looking at it: faults are raised and waited for by events."""

import itertools
import os
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from common.load.generator import wall_clock as clocked
from common.load.generator.wall_clock import ServedStream, serve, serve_together
from common.load.requests.batching import BatchPolicy
from common.load.requests.schedules import Arrivals, constant, poisson
from common.load.requests.sources import ClosedLoop, OpenLoop
from common.messages.errors import PipelineError

MS = 1_000_000


class Stub:
    """A service that calls a function with each batch."""

    stages = ("nothing",)

    def __init__(self, answer=lambda worker, batch: None, workers=1):
        self.worker_count, self.answer, self.given_up = workers, answer, []

    def run(self, worker, batch):
        self.answer(worker, batch)
        return (batch.index,)

    def give_up(self, worker):
        self.given_up.append(worker)


@contextmanager
def raising(number=signal.SIGINT):
    """Let a signal raise KeyboardInterrupt, as in a program of its own."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def balances(record, sent):
    assert len(record) == sent == sum(record.counts.values())
    assert record.counts["pending"] == 0
    return record.counts


@pytest.mark.parametrize("workers", [1, 3])
def test_every_request_is_served_once_and_in_order(workers):
    seen, lock = [], threading.Lock()

    def answer(worker, batch):
        with lock:
            seen.extend(batch.requests)

    arrivals = poisson(20_000, 0.1, seed=2)
    record = serve(OpenLoop(arrivals), Stub(answer, workers), BatchPolicy(most=5, wait_ns=MS))
    assert sorted(seen) == list(range(len(arrivals)))
    assert balances(record, len(arrivals))["completed"] == len(arrivals)
    assert (record.intended_ns == arrivals.intended_ns).all()
    batches = record.batches
    assert batches.stages_ns[:, 0].tolist() == list(range(len(batches.sizes)))
    assert (record.queued_ns >= record.intended_ns).all()
    assert (batches.batched_ns[record.batch_indices] >= record.queued_ns).all()
    assert (batches.started_ns >= batches.batched_ns).all() and (batches.ended_ns >= batches.started_ns).all()
    assert (batches.batched_ns >= batches.ready_ns).all()
    assert set(batches.workers.tolist()) <= set(range(workers))


def test_a_service_that_stands_still_holds_up_no_request():
    """The schedule goes on while the only worker waits: all requests count from their intended start."""
    stall = Stub(lambda worker, batch: batch.index or time.sleep(0.05))
    record = serve(OpenLoop(constant(1000, 0.02)), stall, BatchPolicy())
    assert balances(record, 20)["completed"] == 20
    first_end_ns = record.batches.ended_ns[0]
    assert (record.latencies_us[1:] * 1000 >= first_end_ns - record.intended_ns[1:]).all()
    assert record.intended_ns.tolist() == [k * MS for k in range(20)]


def test_a_request_that_throws_fails_alone():
    def answer(worker, batch):
        if batch.index % 100 == 37:
            raise PipelineError("stub", "one of a hundred")

    record = serve(OpenLoop(constant(100_000, 0.01)), Stub(answer), BatchPolicy())
    counts = balances(record, 1000)
    assert (counts["completed"], counts["failed"]) == (990, 10)
    assert record.failures == {"one of a hundred": 10}


def test_a_stuck_call_fails_after_the_timeout_and_another_worker_goes_on():
    stuck, released = threading.Event(), threading.Event()

    def answer(worker, batch):
        if batch.index == 1:
            stuck.set()
            released.wait()

    service = Stub(answer)
    arrivals = Arrivals(np.array([0, 1, 1500]) * MS)
    record = serve(OpenLoop(arrivals), service, BatchPolicy(timeout_ns=500 * MS))
    released.set()
    counts = balances(record, 3)
    assert stuck.is_set() and service.given_up == [0]
    assert (counts["completed"], counts["failed"]) == (2, 1)
    assert record.failures == {"no answer within 0.5 s": 1}


def test_ctrl_c_cancels_what_waits_and_what_runs():
    released = threading.Event()

    def answer(worker, batch):
        if batch.index == 2:
            os.kill(os.getpid(), signal.SIGINT)
            released.wait()

    service = Stub(answer)
    with raising():
        record = serve(OpenLoop(constant(1_000_000, 1e-5)), service, BatchPolicy())
    released.set()
    counts = balances(record, 10)
    assert record.is_interrupted and service.given_up == [0]
    assert (counts["completed"], counts["cancelled"]) == (2, 8)


class Clock:
    """The clock of a load, which only the service moves."""

    def __init__(self, monkeypatch):
        self.now_ns, self.look_count, self.is_over = 0, 0, False
        monkeypatch.setattr(clocked._Run, "now_ns", lambda run: self.now_ns)
        monkeypatch.setattr(clocked, "LOOK_S", 0.01)

    def look(self):
        self.look_count += 1

    def passes(self, seconds):
        """Let time pass amid a call, which goes on until the main thread has looked at the load at that time."""
        self.now_ns += round(seconds * 1e9)
        last = self.look_count + 2
        while self.look_count < last and not self.is_over:
            time.sleep(0.001)

    def serve(self, arrivals_ns, answer, policy=BatchPolicy(), workers=1):  # noqa: B008 - a frozen value
        arrivals = Arrivals(np.array(arrivals_ns, np.int64))
        service = Stub(answer, workers)
        stream = ServedStream(OpenLoop(arrivals), service, policy, last_ns=int(arrivals.intended_ns[-1]))
        record = serve_together([stream], look=self.look)[0]
        self.is_over = True
        return record, service


def test_a_call_that_is_longer_than_the_drain_is_counted(monkeypatch):
    clock = Clock(monkeypatch)
    record, _ = clock.serve([0], lambda worker, batch: clock.passes(7))
    assert balances(record, 1)["completed"] == 1
    assert record.waited_us.tolist() == [7e6]


def test_the_drain_begins_when_the_call_has_ended_that_ran_as_the_last_request_came(monkeypatch):
    clock = Clock(monkeypatch)
    record, _ = clock.serve([0, 1, 2], lambda worker, batch: clock.passes(0 if batch.index else 7))
    assert balances(record, 3)["completed"] == 3


def test_what_still_waits_after_the_drain_is_cancelled(monkeypatch):
    """Calls of 3 s begin at 0 and 3 s, when all requests have come; a third one would begin after the drain of 5 s."""
    clock = Clock(monkeypatch)
    record, _ = clock.serve([0] * 5, lambda worker, batch: clock.passes(3))
    counts = balances(record, 5)
    assert (counts["completed"], counts["cancelled"]) == (2, 3)
    assert record.waited_us.tolist() == [3e6, 6e6, 6e6, 6e6, 6e6]


def test_a_call_that_does_not_end_fails_after_a_minute(monkeypatch):
    clock = Clock(monkeypatch)
    record, service = clock.serve([0, 0], lambda worker, batch: clock.passes(61))
    counts = balances(record, 2)
    assert (counts["failed"], counts["cancelled"], service.given_up) == (1, 1, [0])
    assert record.failures == {"no answer within 60 s": 1}
    assert record.waited_us.tolist() == [61e6, 61e6]


def test_a_bug_in_a_service_is_raised_and_not_counted():
    def answer(worker, batch):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        serve(OpenLoop(constant(1000, 0.01)), Stub(answer, workers=2), BatchPolicy())


def test_users_send_the_next_request_after_the_answer():
    record = serve(ClosedLoop(4, 10**12, most_requests=100), Stub(workers=2), BatchPolicy(most=2))
    assert balances(record, 100)["completed"] == 100
    ends_ns = np.sort(record.batches.ended_ns[record.batch_indices])
    # Beyond the first of each user, every request was intended at the end of an earlier one.
    assert set(record.intended_ns[4:].tolist()) <= set(ends_ns.tolist())


def test_runs_side_by_side_end_each_at_its_own_time():
    """The second one's call ends only when the first run is over, which its only request's answer says."""
    is_answered = threading.Event()
    quick = Stub(lambda worker, batch: is_answered.set())
    slow = Stub(lambda worker, batch: is_answered.wait(60))
    streams = [ServedStream(OpenLoop(constant(100, 0.03)), one, BatchPolicy()) for one in (quick, slow)]
    first, second = serve_together(streams)
    assert balances(first, 3)["completed"] == balances(second, 3)["completed"] == 3
    assert not first.is_interrupted and not second.is_interrupted


def test_ctrl_c_ends_runs_side_by_side():
    both, lock = threading.Barrier(2), threading.Lock()

    def stuck(worker, batch):
        if both.wait(60) == 0:
            os.kill(os.getpid(), signal.SIGINT)
        lock.acquire()

    lock.acquire()
    with raising():
        streams = [ServedStream(OpenLoop(constant(100, 0.03)), Stub(stuck), BatchPolicy()) for _ in range(2)]
        records = serve_together(streams)
    lock.release()
    for record in records:
        assert record.is_interrupted and record.counts["completed"] == 0
        assert sum(record.counts.values()) == len(record) == record.counts["cancelled"]


class Freed:
    """Python drops what is raised while an object is freed."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def stuck():
    """A stream whose first call lasts as long as the test."""
    released = threading.Event()
    yield ServedStream(OpenLoop(constant(100, 0.03)), Stub(lambda *_: released.wait()), BatchPolicy())
    released.set()


def test_a_signal_while_an_object_is_freed_ends_the_run(stuck):
    with raising(signal.SIGTERM):
        (record,) = serve_together([stuck], look=[Freed()].clear)
    assert record.is_interrupted and balances(record, len(record))["cancelled"] == len(record) > 0


def test_a_second_signal_raises(stuck):
    with raising(), pytest.raises(KeyboardInterrupt):
        serve_together([stuck], look=lambda: [signal.raise_signal(signal.SIGINT) for _ in range(2)])


def test_a_signal_as_the_last_run_ends_is_not_lost(monkeypatch):
    conclude = clocked._concluded

    def concluding(state, **flags):
        signal.raise_signal(signal.SIGINT)
        return conclude(state, **flags)

    monkeypatch.setattr(clocked, "_concluded", concluding)
    with raising(), pytest.raises(KeyboardInterrupt):
        serve(OpenLoop(constant(100, 0.03)), Stub(), BatchPolicy())


def test_a_run_outside_of_the_main_thread_leaves_signals_alone():
    records, handlers = [], []
    service = Stub(lambda *_: handlers.append(signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(
        target=lambda: records.append(serve(OpenLoop(constant(100, 0.03)), service, BatchPolicy()))
    )
    thread.start()
    thread.join()
    assert balances(records[0], 3)["completed"] == 3 and not records[0].is_interrupted
    assert {*handlers} == {signal.getsignal(signal.SIGINT)}


@pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="no real-time scheduling")
@pytest.mark.parametrize("is_refused", [False, True])
def test_the_generator_alone_goes_before_others_where_the_system_allows_that(monkeypatch, is_refused):
    policies, given = {}, []

    def note(*_):
        threads = {thread.name: thread.native_id for thread in threading.enumerate()}
        policies.update({name: os.sched_getscheduler(number) for name, number in threads.items() if number})

    def refuse(*_):
        given.append(_)
        raise PermissionError

    if is_refused:
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
    else:
        may(os.SCHED_RR)
    record = serve(OpenLoop(constant(100, 0.05)), Stub(note), BatchPolicy())
    assert balances(record, 5)["completed"] == 5 and len(given) == is_refused
    assert policies.pop("load-generator") == (os.SCHED_OTHER if is_refused else os.SCHED_RR)
    assert policies["load-0"] == policies["MainThread"] == os.SCHED_OTHER


def may(policy):
    """Skip where a thread may not choose this policy."""
    refused = []

    def choose():
        try:
            os.sched_setscheduler(threading.get_native_id(), policy, os.sched_param(1))
        except OSError as error:
            refused.append(error)

    thread = threading.Thread(target=choose)
    thread.start()
    thread.join()
    if refused:
        pytest.skip(f"this process may not ({refused[0]})")


HOUR_NS = 3600 * 1000 * MS


def test_a_load_ends_when_its_record_says_enough():
    """The last request would come in an hour; it never does, and nothing is cancelled."""
    arrivals = Arrivals(np.array([0] * 400 + [HOUR_NS]))
    stream = ServedStream(OpenLoop(arrivals), Stub(), BatchPolicy(), HOUR_NS, is_enough=lambda record: True)
    (record,) = serve_together([stream])
    assert balances(record, 400)["completed"] == 400
    assert not record.is_interrupted


def test_users_send_nothing_more_once_the_record_says_enough():
    source = ClosedLoop(3, HOUR_NS, think_ns=MS)
    (record,) = serve_together([ServedStream(source, Stub(), BatchPolicy(), HOUR_NS, is_enough=lambda record: True)])
    counts = record.counts
    assert counts["completed"] == len(record) >= 300


def test_a_record_is_looked_at_a_few_times():
    """Each look is at a record that is at least a quarter longer than the last one."""
    lengths = []

    def is_enough(record):
        lengths.append(len(record))
        return len(record) >= 600

    arrivals = Arrivals(np.concatenate([np.linspace(0, 1000 * MS, 2000).astype(np.int64), [HOUR_NS]]))
    serve_together([ServedStream(OpenLoop(arrivals), Stub(), BatchPolicy(), HOUR_NS, is_enough=is_enough)])
    assert lengths[0] >= 300 and lengths[-1] >= 600
    assert all(later >= 1.25 * earlier for earlier, later in itertools.pairwise(lengths))

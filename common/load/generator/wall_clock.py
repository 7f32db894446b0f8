"""A load by the wall clock: workers take batches from the queue and serve them, each in a thread of its own.

A worker that ends a batch takes the next one itself, if one is ready. Otherwise it is idle, and the generator, a thread
that does nothing else, sleeps until the batcher has something for it. So nothing waits for the service: the schedule
says when each request is intended to start, and the record knows of it at that time however busy all threads are. A
batch costs one wake-up of the generator instead of one per request. Its delay is measured: ``ready_ns`` to
``batched_ns``.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeAlias

from common.load.requests.batching import NEVER_NS, BatchPolicy, BatchQueue
from common.load.requests.load_record import Batch, LoadRecord, Log
from common.load.requests.sources import Source
from common.load.service.service import Service
from common.messages.errors import PipelineError
from common.process import interrupts

SWITCH_INTERVAL_S = 2e-4  # a thread that prepares an input holds the interpreter for this long, not for Python's 5 ms
DRAIN_S = 5.0
LONGEST_CALL_S = 60.0  # of a call that no timeout ends, once all requests have come
Started = Callable[[Callable[[], int], Callable[[], None]], None]
LOOK_S = 0.5  # a signal that the system hands to another thread does not wake the main one
FIRST_REQUESTS, MORE = 300, 1.25  # a load that may end early is looked at then, and each time that it is so much longer
WakeUps: TypeAlias = "SimpleQueue[None]"  # of the thread that waits: a load is over, or a signal has come

Listener = Callable[[Log, BatchQueue], None]  # called with a load when it begins; it may read, and must not wait


def nobody(log: Log, queue: BatchQueue) -> None:
    """Listen to no load."""


@dataclass(frozen=True, slots=True)
class ServedStream:
    source: Source
    service: Service
    policy: BatchPolicy
    last_ns: int | None = None  # when the last request comes: the drain begins. None: the source knows by itself
    listener: Listener = nobody
    is_enough: Callable[[LoadRecord], bool] | None = None  # whether a record says enough for a load to end early


@dataclass(slots=True)
class _Running:
    batch: Batch
    started_ns: int


class _Run:
    def __init__(self, stream: ServedStream, drain_s: float, wake_ups: WakeUps) -> None:
        source, service, policy = stream.source, stream.service, stream.policy
        self.log, self.source, self.service, self.policy = Log(), source, service, policy
        self._wake_ups = wake_ups
        self.last_ns = NEVER_NS if stream.last_ns is None else stream.last_ns
        self._drain_begin_ns, self._drain_ns = self.last_ns, round(drain_s * 1e9)
        self.is_enough, self.looks_at_count = stream.is_enough, FIRST_REQUESTS
        self.queue = BatchQueue(source, policy, self.log)
        stream.listener(self.log, self.queue)
        self.lock, self.over = threading.Lock(), threading.Event()
        self.generator_turn = threading.Condition(self.lock)
        self.worker_turns = [threading.Condition(self.lock) for _ in range(service.worker_count)]
        self.idle: dict[int, int] = {}  # since when each idle worker is idle, the longest first
        self.wakes_ns = 0  # when the generator wakes by itself
        self.given: dict[int, Batch] = {}  # what the generator has for a worker that wakes
        self.is_closed = False  # no further batch is formed
        self.is_concluded = False  # what still runs is given up
        self.error: BaseException | None = None
        self.running: dict[int, _Running] = {}
        self.replacements = [0] * service.worker_count  # how often a worker was given up and replaced
        self.active = 0
        self.start_s = time.perf_counter()
        self._start_ns = time.perf_counter_ns()

    def now_ns(self) -> int:
        return time.perf_counter_ns() - self._start_ns

    def start(self) -> None:
        with self.lock:
            for worker in range(self.service.worker_count):
                self.start_worker(worker)
        threading.Thread(target=self.generate, name="load-generator", daemon=True).start()

    def wake(self) -> None:
        """Let the generator look for new requests."""
        with self.lock:
            self.generator_turn.notify()

    def start_worker(self, worker: int) -> None:
        """Start a thread for a worker; the caller holds the lock."""
        self.active += 1
        name = f"load-{worker}"
        threading.Thread(target=self._work, args=(worker, self.replacements[worker]), name=name, daemon=True).start()

    def _work(self, worker: int, replacement: int) -> None:
        """Serve batches until none will come, or until this worker is given up."""
        free_ns = self.now_ns()
        try:
            while (batch := self._await_batch(worker, replacement, free_ns)) is not None:
                free_ns = self._serve(worker, replacement, batch)
        except BaseException as error:
            self._fail(error)
        finally:
            with self.lock:
                if self.replacements[worker] == replacement:
                    self.active -= 1
                if not self.active:
                    self.over.set()
                    self._wake_ups.put(None)

    def _await_batch(self, worker: int, replacement: int, free_ns: int) -> Batch | None:
        """Take a batch if one is ready, or wait for the generator; None where no further one will come."""
        with self.lock:
            if not self.is_closed and self.replacements[worker] == replacement and not self._take(worker, free_ns):
                self.idle[worker] = free_ns
                if self.queue.wake_ns < self.wakes_ns or self.queue.is_over:
                    self.generator_turn.notify()
                while worker in self.idle and not self.is_closed:
                    self.worker_turns[worker].wait()
            return self.given.pop(worker, None)

    def _take(self, worker: int, free_ns: int) -> bool:
        """Give a worker the batch that is ready, if one is; the caller holds the lock."""
        now_ns = self.now_ns()
        batch = self.queue.next_batch(now_ns, worker, free_ns)
        if batch is None:
            return False
        self.running[worker], self.given[worker] = _Running(batch, now_ns), batch
        return True

    def generate(self) -> None:
        """Give idle workers their batches, each as soon as it is ready, until none will come."""
        try:
            self.log.has_priority = _took_priority()
            with self.lock:
                while not self.is_closed:
                    self._generate_next()
        except BaseException as error:
            self._fail(error)

    def _generate_next(self) -> None:
        now_ns = self.now_ns()
        if not self.idle:
            self.queue.plan(now_ns)  # a worker may be idle by then, and need not wake the generator to say so
            self._sleep_until(self.queue.wake_ns if self.queue.wake_ns > now_ns else self.queue.expires_ns, now_ns)
            return
        worker, free_ns = next(iter(self.idle.items()))
        if self._take(worker, free_ns):
            del self.idle[worker]
            self.worker_turns[worker].notify()
        elif self.queue.is_over:
            self.close()
        else:
            self._sleep_until(self.queue.wake_ns, now_ns)

    def _sleep_until(self, wake_ns: int, now_ns: int) -> None:
        self.wakes_ns = wake_ns
        self.generator_turn.wait(None if wake_ns == NEVER_NS else max(0, wake_ns - now_ns) / 1e9)
        self.wakes_ns = 0

    def _fail(self, error: BaseException) -> None:
        """End the load for a bug of ours, which is raised where the load was started."""
        with self.lock:
            self.error = self.error or error
            self.close()

    def _serve(self, worker: int, replacement: int, batch: Batch) -> int:
        """Let the service answer a batch, and enter how that went; return when it ended."""
        stages_ns: tuple[int, ...] = ()
        failure = ""
        started_ns = self.now_ns()
        try:
            stages_ns = tuple(self.service.run(worker, batch))
        except PipelineError as error:
            failure = error.problem
        ended_ns = self.now_ns()
        with self.lock:
            if self.replacements[worker] == replacement and not self.is_concluded:
                del self.running[worker]
                self._enter(batch, started_ns, ended_ns, stages_ns, failure)
        return ended_ns

    def _enter(
        self, batch: Batch, started_ns: int, ended_ns: int, stages_ns: tuple[int, ...] = (), failure: str = ""
    ) -> None:
        self.log.end(batch, started_ns, ended_ns, stages_ns, failure)
        if started_ns < self.last_ns:
            self._drain_begin_ns = max(self._drain_begin_ns, ended_ns)
        self.source.settled(batch.requests, ended_ns)
        if self.idle:
            self.generator_turn.notify()  # a user's next request may have come

    def close(self) -> None:
        """Form no further batch; the caller holds the lock."""
        self.is_closed = True
        for turn in (self.generator_turn, *self.worker_turns):
            turn.notify_all()

    def idle_s(self) -> float:
        """End the drain, and give up what is stuck; return how long nobody needs to look, 0 once the load is over."""
        with self.lock:
            now_ns = self.now_ns()
            if now_ns >= self._drained_ns:
                self.close()
            limit_ns = self._limit_ns(now_ns)
            for worker, call in [*self.running.items()]:
                if now_ns - call.started_ns >= limit_ns:
                    self._give_up(worker, call, now_ns, limit_ns)
            stuck_ns = min((call.started_ns + limit_ns for call in self.running.values()), default=NEVER_NS)
            if self.over.is_set():
                return 0.0
            next_ns = min(stuck_ns, NEVER_NS if self.is_closed else self._drained_ns)
        return min(LOOK_S, max(1e-3, (next_ns - now_ns) / 1e9))

    def end_if_enough(self) -> None:
        """Let no further request come once the record says enough.

        Each look is at a record that is a quarter longer than the last one: a load of any length has few looks, so they
        neither disturb it nor make a narrow limit by trying often.
        """
        if self.is_enough is None or len(self.log) < self.looks_at_count:
            return
        with self.lock:  # what waits and runs is cut off from this record, as by a signal
            record = self.log.finished(self.start_s, self.now_ns(), (), is_interrupted=True)
        self.looks_at_count = math.ceil(MORE * len(record))
        if self.is_enough(record):
            with self.lock:
                now_ns = self.now_ns()
                self.queue.end(now_ns)
                self.last_ns, self.is_enough = min(self.last_ns, now_ns), None
                self._drain_begin_ns = self.last_ns
                self.generator_turn.notify()

    @property
    def _drained_ns(self) -> int:
        """When the drain ends: it begins when the calls have ended that ran as the last request came."""
        if any(call.started_ns < self.last_ns for call in self.running.values()):
            return NEVER_NS
        return self._drain_begin_ns + self._drain_ns

    def _limit_ns(self, now_ns: int) -> int:
        """Return how long a call may take: the timeout; without one ``LONGEST_CALL_S``, once all requests have come."""
        if self.policy.timeout_ns != NEVER_NS:
            return self.policy.timeout_ns
        return round(1e9 * LONGEST_CALL_S) if self.is_closed or now_ns >= self.last_ns else NEVER_NS

    def _give_up(self, worker: int, call: _Running, now_ns: int, limit_ns: int) -> None:
        """Count the requests of a call as failed, and let a new thread take the place of its worker."""
        del self.running[worker]
        self._enter(call.batch, call.started_ns, now_ns, failure=f"no answer within {limit_ns / 1e9:g} s")
        self.replacements[worker] += 1
        self.active -= 1
        self.service.give_up(worker)
        if not self.is_closed:
            self.start_worker(worker)
        elif not self.active:
            self.over.set()


def serve(
    source: Source,
    service: Service,
    policy: BatchPolicy,
    *,
    last_ns: int | None = None,
    drain_s: float = DRAIN_S,
    started: Started | None = None,
    listener: Listener = nobody,
) -> LoadRecord:
    """Let the requests of a source come, serve them, and return the record.

    A signal ends the load; what waits or runs then is cancelled, and the record says so. The next signal raises
    KeyboardInterrupt.

    The drain begins when the calls have ended that ran as the last request came. For ``drain_s`` further batches are
    formed; requests that still wait then are cancelled. No call is cut: it ends, or fails at the timeout of the policy.
    Without a timeout it fails after ``LONGEST_CALL_S``, once all requests have come.

    Args:
        last_ns: when the last request comes. None: the source knows by itself.
        started: called at the start with the clock of the load and with what wakes the generator; for requests that
            another program sends.
    """
    stream = ServedStream(source, service, policy, last_ns, listener)
    return serve_together([stream], drain_s=drain_s, started=started)[0]


def serve_together(
    streams: Sequence[ServedStream],
    *,
    drain_s: float = DRAIN_S,
    started: Started | None = None,
    look: Callable[[], None] = lambda: None,
) -> list[LoadRecord]:
    """Let the requests of several sources come at the same time, each to a service of its own; return the records.

    What ends a load, and ``started``, is as in :func:`serve`; a signal ends all of them. ``look`` is called at least
    every half second meanwhile.

    Raises:
        KeyboardInterrupt: a signal came when all had ended, or a second one.
    """
    wake_ups: WakeUps = SimpleQueue()  # what puts into it takes no lock that a signal could leave taken
    records: dict[int, LoadRecord] = {}
    states = [_Run(stream, drain_s, wake_ups) for stream in streams]
    with _quick_switches(), interrupts.FirstNoted(interrupts.SIGNALS, lambda: wake_ups.put(None)) as signals:
        for state in states:
            state.start()
            if started is not None:
                started(state.now_ns, state.wake)
        while len(records) < len(states) and not signals.has_come:
            for state in states:
                state.end_if_enough()
            idle_s = {index: states[index].idle_s() for index in range(len(states)) if index not in records}
            records |= {index: _concluded(states[index]) for index in idle_s if not idle_s[index]}
            look()
            with suppress(Empty):
                wake_ups.get(timeout=min(idle_s.values()))
    left = [index for index in range(len(states)) if index not in records]
    if signals.has_come and not left:
        raise KeyboardInterrupt  # the signal came after all
    records |= {index: _concluded(states[index], is_interrupted=True) for index in left}
    return [records[index] for index in range(len(states))]


def _concluded(state: _Run, *, is_interrupted: bool = False) -> LoadRecord:
    """Close the load: give up what still runs, and return the record."""
    with state.lock:
        ended_ns = state.now_ns()
        state.queue.admit(ended_ns)
        state.close()
        state.is_concluded = True
        for worker in state.running:
            state.service.give_up(worker)
        if state.error is not None:
            raise state.error
        return state.log.finished(state.start_s, ended_ns, state.service.stages, is_interrupted=is_interrupted)


def _took_priority() -> bool:
    """Let this thread run as soon as it wakes; return whether the system allows that (CAP_SYS_NICE, or RLIMIT_RTPRIO).

    Linux otherwise lets a thread that computes go on for up to 3 ms; a better niceness does not change that.
    """
    if hasattr(os, "sched_setscheduler"):
        with suppress(OSError):
            os.sched_setscheduler(threading.get_native_id(), os.SCHED_RR, os.sched_param(1))
            return True
    return False


@contextmanager
def _quick_switches() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)

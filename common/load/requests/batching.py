"""The dynamic batcher: which waiting requests make a batch, and when.

It has no clock and no thread; its caller gives the time. So the same code batches in a measured load and in a
simulation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

from common.load.requests.load_record import CANCELLED, REJECTED, Batch, Log
from common.load.requests.sources import Source
from common.messages.errors import UnusableValueError

NEVER_NS = 1 << 62
LARGEST = 65_536  # requests of a batch


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How requests are batched, as Triton's dynamic batcher does it.

    A batch is formed when a worker is free and a preferred size is reached, or when the oldest request has waited for
    ``wait_ns``. It takes the oldest requests. Requests of different buckets never share a batch; the bucket with the
    oldest request goes first.
    """

    most: int = 1  # requests of the largest batch
    wait_ns: int = 0  # how long the oldest request may wait for others
    preferred: tuple[int, ...] = ()  # sizes that are sent at once, in rising order; empty: the largest batch alone is
    buckets: tuple[int, ...] = ()  # lengths to pad requests to, in rising order; empty: to the longest of the batch
    pads_size: bool = False  # fill a batch up to the next preferred size, or the largest: calls then have few shapes
    capacity: int = NEVER_NS  # most waiting requests; further ones are rejected
    timeout_ns: int = NEVER_NS  # for a request to wait before it is cancelled, and a batch to run before it is given up

    def __post_init__(self) -> None:
        """Refuse sizes that contradict each other."""
        for name, value in (("batch_max", self.most), ("queue_max", self.capacity), ("timeout", self.timeout_ns)):
            if value < 1:
                raise UnusableValueError(name, f"{value}", "it takes a number above 0")
        if self.most > LARGEST:
            raise UnusableValueError("batch_max", f"{self.most}", f"it takes a number of at most {LARGEST:,}")
        if self.wait_ns < 0:
            raise UnusableValueError("batch_wait", f"{self.wait_ns / 1e9:g} s", "it takes a number of at least 0")
        for name, sizes in (("batch_preferred", self.preferred), ("buckets", self.buckets)):
            if list(sizes) != sorted({*sizes}) or (sizes and sizes[0] < 1):
                raise UnusableValueError(name, f"{list(sizes)}", "it takes whole numbers above 0, in rising order")
        if self.preferred and self.preferred[-1] > self.most:
            problem = f"{self.preferred[-1]} is above the largest batch, {self.most}"
            raise UnusableValueError("batch_preferred", problem, "give a larger <batch_max>")

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({*self.preferred, self.most}))

    def padded_size(self, size: int) -> int:
        """Return how many requests the call of a batch computes."""
        return self.sizes[bisect_left(self.sizes, size)] if self.pads_size else size

    def bucket(self, length: int) -> int:
        """Return the number of the bucket of a length; too long a length belongs to none, -1."""
        index = bisect_left(self.buckets, length)
        return index if index < len(self.buckets) else -1


class BatchQueue:
    """The queue of one load; its caller holds a lock while several workers ask."""

    def __init__(self, source: Source, policy: BatchPolicy, log: Log) -> None:
        self._source, self._policy, self._log = source, policy, log
        self._sizes = policy.sizes
        self._lines: list[deque[int]] = [deque() for _ in policy.buckets or (0,)]
        self.wake_ns = 0  # when to ask again, after no batch was ready; ``NEVER_NS`` where that depends on answers
        self.pending_count = 0
        self._is_ended = False

    @property
    def is_over(self) -> bool:
        """Whether nothing waits and nothing will come."""
        return not self.pending_count and (self._is_ended or self._source.is_over)

    def end(self, now_ns: int) -> None:
        """Admit the requests that have come, and no later ones."""
        self.admit(now_ns)
        self._is_ended = True

    def admit(self, now_ns: int) -> None:
        """Put new requests into their line; reject them if the queue is full or no bucket is long enough.

        Requests whose timeout has passed leave first, however late the generator calls this.
        """
        log, policy, lines = self._log, self._policy, self._lines
        may_expire = policy.timeout_ns != NEVER_NS
        for intended_ns, length in () if self._is_ended else self._source.due(now_ns):
            if may_expire:
                self._cancel_expired(intended_ns, now_ns)
            request = log.add(intended_ns, length, now_ns)
            line = policy.bucket(length) if policy.buckets else 0
            if line < 0 or self.pending_count >= policy.capacity:
                self._drop(request, REJECTED, now_ns, now_ns)
            else:
                lines[line].append(request)
                self.pending_count += 1
        if may_expire:
            self._cancel_expired(now_ns, now_ns)

    def _expected_ns(self, count: int) -> int | None:
        return None if self._is_ended else self._source.expected_ns(count)

    @property
    def expires_ns(self) -> int:
        """When the next request expires, as far as arrivals are known; ``NEVER_NS`` without a timeout."""
        timeout_ns = self._policy.timeout_ns
        if timeout_ns == NEVER_NS:
            return NEVER_NS
        next_ns = self._expected_ns(1)
        oldest_ns = [self._log.intended_ns[line[0]] for line in self._lines if line]
        return min([*oldest_ns, *([] if next_ns is None else [next_ns])], default=NEVER_NS - timeout_ns) + timeout_ns

    def next_batch(self, now_ns: int, worker: int, free_ns: int) -> Batch | None:
        """Return the batch that a worker, free since ``free_ns``, is to run now; None if none is ready."""
        self.admit(now_ns)
        oldest, chosen, self.wake_ns = NEVER_NS, -1, NEVER_NS
        intended_ns = self._log.intended_ns
        for index, line in enumerate(self._lines):
            if line:
                ready_ns = self._ready_ns(line)
                if ready_ns > now_ns:
                    self.wake_ns = min(self.wake_ns, ready_ns)
                elif intended_ns[line[0]] < oldest:
                    oldest, chosen = intended_ns[line[0]], index
        if chosen >= 0:
            return self._take(chosen, now_ns, worker, free_ns)
        self._plan_wake()
        return None

    def plan(self, now_ns: int) -> None:
        """Set ``wake_ns`` to when a batch is ready for a worker that becomes free; that may be past."""
        self.admit(now_ns)
        self.wake_ns = min((self._ready_ns(line) for line in self._lines if line), default=NEVER_NS)
        self._plan_wake()

    def _ready_ns(self, line: deque[int]) -> int:
        """Return when the policy sends a line: at its least preferred size, or when its oldest request has waited."""
        intended_ns, least = self._log.intended_ns, self._sizes[0]
        deadline_ns = intended_ns[line[0]] + self._policy.wait_ns
        return min(deadline_ns, intended_ns[line[least - 1]]) if len(line) >= least else deadline_ns

    def _take(self, index: int, now_ns: int, worker: int, free_ns: int) -> Batch:
        line, policy, log = self._lines[index], self._policy, self._log
        ready_ns = max(free_ns, self._ready_ns(line))
        fitting = [size for size in self._sizes if size <= len(line)]
        requests = [line.popleft() for _ in range(fitting[-1] if fitting else len(line))]
        self.pending_count -= len(requests)
        length = policy.buckets[index] if policy.buckets else max(log.lengths[request] for request in requests)
        return log.form(requests, policy.padded_size(len(requests)), length, worker, ready_ns, now_ns)

    def _plan_wake(self) -> None:
        """Set ``wake_ns`` to when a batch will be ready at the earliest, as far as arrivals are known."""
        policy = self._policy
        if len(self._lines) > 1:
            expected_ns = self._expected_ns(1)
        else:
            missing = self._sizes[0] - self.pending_count
            expected_ns = self._expected_ns(missing) if missing > 0 else None
            first_ns = None if self.pending_count else self._expected_ns(1)
            if first_ns is not None:
                self.wake_ns = min(self.wake_ns, first_ns + policy.wait_ns)
        if expected_ns is not None:
            self.wake_ns = min(self.wake_ns, expected_ns)
        self.wake_ns = min(self.wake_ns, self.expires_ns)

    def _cancel_expired(self, at_ns: int, now_ns: int) -> None:
        """Cancel the requests whose timeout has passed by ``at_ns``; each leaves the queue at its own timeout."""
        timeout_ns, intended_ns = self._policy.timeout_ns, self._log.intended_ns
        for line in self._lines:
            while line and intended_ns[line[0]] <= at_ns - timeout_ns:
                self.pending_count -= 1
                request = line.popleft()
                self._drop(request, CANCELLED, intended_ns[request] + timeout_ns, now_ns)

    def _drop(self, request: int, outcome: int, left_ns: int, now_ns: int) -> None:
        self._log.drop(request, outcome, left_ns)
        self._source.settled((request,), now_ns)

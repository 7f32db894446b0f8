"""The record of a load: a row of times per request and per batch, kept as arrays (40 bytes a request)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

TimesNs = npt.NDArray[np.int64]
Outcome = Literal["pending", "completed", "rejected", "failed", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = ("pending", "completed", "rejected", "failed", "cancelled")
PENDING, COMPLETED, REJECTED, FAILED, CANCELLED = range(5)
NO_BATCH = -1
LATE_NS = 1_000_000  # a request that the generator holds up for longer is late,
LATE_SHARE = 0.01  # and for more than this share of its latency


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that one call serves, oldest first."""

    index: int  # its number, from 0, in the order in which batches were formed
    requests: Sequence[int]
    padded_size: int  # requests that the call computes, with those that only fill it up
    length: int  # what every request is padded to along the variable axis; 0 where there is none


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Times of batches in ns from the start of the load, by batch index, and sizes as in :class:`Batch`."""

    ready_ns: TimesNs  # when the policy allowed the batch and its worker was free
    batched_ns: TimesNs  # when it was formed, and given to its worker
    started_ns: TimesNs  # when its worker, which may have been asleep, called the service
    ended_ns: TimesNs  # when the service returned or failed
    workers: TimesNs
    sizes: TimesNs
    padded_sizes: TimesNs
    lengths: TimesNs
    stages_ns: TimesNs  # what each stage of the service took, a row per batch


@dataclass(frozen=True, slots=True)
class LoadRecord:
    start_s: float  # its start on the clock of ``time.perf_counter``
    intended_ns: TimesNs  # when each request was intended to start, from the start of the load
    # When the generator put it into the queue. While all workers run, nobody could take it, and it is put there when
    # the next one asks.
    queued_ns: TimesNs
    left_ns: TimesNs  # when it left the queue: for a batch, given up, or at the end of the load
    is_expired: npt.NDArray[np.bool_]  # whether it waited beyond the timeout; such ones are among the cancelled ones
    outcomes: npt.NDArray[np.uint8]  # what became of it, as an index into ``OUTCOMES``
    batch_indices: TimesNs  # its batch, or ``NO_BATCH``
    lengths: TimesNs  # its own length; 0 where there is no variable axis
    batches: BatchRecord
    stages: tuple[str, ...]
    failures: Mapping[str, int]  # how many requests failed, by reason
    ended_ns: int
    is_interrupted: bool
    has_priority: bool = False  # whether the generator ran as soon as it woke, before threads that compute

    def __len__(self) -> int:
        return len(self.intended_ns)

    @property
    def counts(self) -> dict[Outcome, int]:
        """Requests of each outcome; they add up to those that were sent."""
        return dict(zip(OUTCOMES, np.bincount(self.outcomes, minlength=len(OUTCOMES)).tolist(), strict=True))

    @property
    def is_completed(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.outcomes == COMPLETED)

    @property
    def is_served(self) -> npt.NDArray[np.bool_]:
        """Whether each request was in a batch."""
        return np.asarray(self.batch_indices != NO_BATCH)

    @property
    def expired_count(self) -> int:
        return int(self.is_expired.sum())

    @property
    def is_cut(self) -> npt.NDArray[np.bool_]:
        """Whether a signal ended the load before it was known what becomes of each request."""
        return np.asarray((self.outcomes == CANCELLED) & ~self.is_expired & self.is_interrupted)

    @property
    def is_error(self) -> npt.NDArray[np.bool_]:
        """Whether each request was turned away, failed, or got no answer before the load ended."""
        return np.asarray(~self.is_completed & ~self.is_cut)

    @property
    def is_waited(self) -> npt.NDArray[np.bool_]:
        """Whether each request counts in the figures of latency.

        One that failed, expired or was not served counts with the time that its caller waited: its latency is no less.
        One that was turned away waited for nothing.
        """
        return np.asarray((self.outcomes != REJECTED) & ~self.is_cut)

    @property
    def settled_ns(self) -> TimesNs:
        """When the caller of each request got the answer or gave up: the end of its batch, else when it left."""
        return self.settled_with(self.batches.ended_ns)

    def settled_with(self, batch_ends_ns: TimesNs) -> TimesNs:
        """Return when each request would be settled if the batches ended at other times."""
        settled = self.left_ns.copy()
        settled[self.is_served] = batch_ends_ns[self.batch_indices[self.is_served]]
        return settled

    @property
    def waited_us(self) -> npt.NDArray[np.float64]:
        """Time from the intended start of each request that counts (:attr:`is_waited`) until it was settled."""
        return np.asarray((self.settled_ns - self.intended_ns)[self.is_waited] / 1e3)

    @property
    def offered_hz(self) -> float | None:
        """Requests per second that came; None where all came at once."""
        span_ns = int(self.intended_ns[-1]) if len(self) else 0
        return (len(self) - 1) / (span_ns / 1e9) if span_ns else None

    @property
    def answered_hz(self) -> float:
        """Answers per second until the last one: nothing is answered while the load waits for a call that fails."""
        return self.counts["completed"] / self.answering_s if self.answering_s else 0.0

    @property
    def answering_s(self) -> float:
        """Time until the last answer; 0 without one."""
        return float(self.settled_ns[self.is_completed].max(initial=0)) / 1e9

    @property
    def latencies_us(self) -> npt.NDArray[np.float64]:
        """Time from the intended start to the end of each completed request, in order."""
        done = self.is_completed
        return (self.batches.ended_ns[self.batch_indices[done]] - self.intended_ns[done]) / 1e3

    @property
    def late_ns(self) -> TimesNs:
        """Return for each request in a batch how long that was not formed although it and its worker were ready."""
        return (self.batches.batched_ns - self.batches.ready_ns)[self.batch_indices[self.is_served]]

    @property
    def late_share(self) -> float:
        """Share of the requests that the generator held up for more than ``LATE_NS`` and 1 % of their latency."""
        is_served = self.is_served
        if not is_served.any():
            return 0.0
        latency_ns = self.batches.ended_ns[self.batch_indices[is_served]] - self.intended_ns[is_served]
        return float(np.mean(self.late_ns > np.maximum(LATE_NS, LATE_SHARE * latency_ns)))


class Log:
    """A record while it is written: a few numbers per request and per batch, appended to arrays."""

    def __init__(self) -> None:
        self.intended_ns, self.queued_ns = array("q"), array("q")
        self.batch_indices, self.lengths, self.outcomes = array("q"), array("q"), array("B")
        self._batches = [array("q") for _ in range(8)]
        self._stages: dict[int, Sequence[int]] = {}
        self.failures: dict[str, int] = {}
        self.dropped_ns: dict[int, int] = {}  # when a request was rejected or cancelled in the queue
        self.has_priority = False  # of the generator

    def __len__(self) -> int:
        return len(self.outcomes)

    def add(self, intended_ns: int, length: int, queued_ns: int) -> int:
        self.intended_ns.append(intended_ns)
        self.queued_ns.append(queued_ns)
        self.lengths.append(length)
        self.batch_indices.append(NO_BATCH)
        self.outcomes.append(PENDING)
        return len(self.outcomes) - 1

    def drop(self, request: int, outcome: int, now_ns: int) -> None:
        """Enter that a request was turned away, or waited too long."""
        self.outcomes[request] = outcome
        self.dropped_ns[request] = now_ns

    def form(
        self, requests: Sequence[int], padded_size: int, length: int, worker: int, ready_ns: int, now_ns: int
    ) -> Batch:
        index = len(self._batches[0])
        values = (ready_ns, now_ns, now_ns, now_ns, worker, len(requests), padded_size, length)
        for column, value in zip(self._batches, values, strict=True):
            column.append(value)
        for request in requests:
            self.batch_indices[request] = index
        return Batch(index, requests, padded_size, length)

    def end(
        self, batch: Batch, started_ns: int, ended_ns: int, stages_ns: Sequence[int] = (), failure: str = ""
    ) -> None:
        self._batches[2][batch.index], self._batches[3][batch.index] = started_ns, ended_ns
        if stages_ns:
            self._stages[batch.index] = stages_ns
        for request in batch.requests:
            self.outcomes[request] = FAILED if failure else COMPLETED
        if failure:
            self.failures[failure] = self.failures.get(failure, 0) + len(batch.requests)

    def latency_ns(self, request: int) -> int:
        """Return the time from the intended start to the end of a request that was answered."""
        return self._batches[3][self.batch_indices[request]] - self.intended_ns[request]

    def sizes_of(self, batches: Iterable[int]) -> list[int]:
        return [self._batches[5][index] for index in batches]

    def finished(self, start_s: float, ended_ns: int, stages: tuple[str, ...], *, is_interrupted: bool) -> LoadRecord:
        """Return the record; what is still pending or running is cancelled.

        Args:
            start_s: see :class:`LoadRecord`, as the other ones.
            stages: stages of the service's calls; without any, the record has none, and is made in a few ms.
        """
        outcomes = np.array(self.outcomes, np.uint8)
        outcomes[outcomes == PENDING] = CANCELLED
        times = [np.array(column, np.int64) for column in self._batches]
        batch_indices = np.array(self.batch_indices, np.int64)
        left_ns = np.full(len(outcomes), ended_ns, np.int64)
        left_ns[batch_indices != NO_BATCH] = times[1][batch_indices[batch_indices != NO_BATCH]]
        left_ns[[*self.dropped_ns]] = [*self.dropped_ns.values()]
        is_expired = np.zeros(len(outcomes), bool)
        is_expired[[request for request in self.dropped_ns if outcomes[request] == CANCELLED]] = True
        stages_ns = np.zeros((len(times[0]), len(stages)), np.int64)
        for index, row in self._stages.items() if stages else ():
            stages_ns[index] = row
        return LoadRecord(
            start_s,
            np.array(self.intended_ns, np.int64),
            np.array(self.queued_ns, np.int64),
            left_ns,
            is_expired,
            outcomes,
            batch_indices,
            np.array(self.lengths, np.int64),
            BatchRecord(*[*times, stages_ns]),
            stages,
            dict(self.failures),
            ended_ns,
            is_interrupted,
            self.has_priority,
        )


def error_share(records: Sequence[LoadRecord]) -> float:
    """Return the share of errors among the requests whose outcome is known."""
    known = sum(len(record) - int(record.is_cut.sum()) for record in records)
    return sum(int(record.is_error.sum()) for record in records) / known if known else 0.0


def uninterrupted(record: LoadRecord) -> LoadRecord:
    """Return a record, or raise KeyboardInterrupt where a signal came during its load."""
    if record.is_interrupted:
        raise KeyboardInterrupt
    return record

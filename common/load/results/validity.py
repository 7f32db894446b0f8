"""Whether a load can be judged: the generator was in time, and the queue did not grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from common.latency.dependence import queue_factor
from common.load.requests.load_record import NO_BATCH, REJECTED, LoadRecord, TimesNs

Status = Literal["valid", "overload", "invalid"]
NS_PER_US = 1e3
MOST_LATE_SHARE = 0.01
MOST_TURNED_AWAY_SHARE = 0.01
MOSTLY_BUSY = 0.9  # share of their time; where workers are busy for less, a growing queue is not due to them
LEAST_REQUESTS = 50
BLOCKS = 16
STUDENT_15 = 1.753  # 95 % quantile of Student's t with 15 degrees of freedom: one side


@dataclass(frozen=True, slots=True)
class LoadValidity:
    """Whether the percentiles of a load count: those that are ``overload`` or ``invalid`` do not, for a reason."""

    status: Status
    reason: str = ""


def depths(record: LoadRecord, at_ns: TimesNs) -> TimesNs:
    """Return how many requests wait at given times; one that comes or goes at that time has done so."""
    waits = record.outcomes != REJECTED
    came = np.searchsorted(record.intended_ns[waits], at_ns, side="right")
    return np.asarray(came - np.searchsorted(np.sort(record.left_ns[waits]), at_ns, side="right"))


def judge(record: LoadRecord, *, is_open: bool, most_running: int) -> LoadValidity:
    """Judge a load.

    Args:
        is_open: whether its requests came by a schedule; users who wait for answers overload nothing.
        most_running: requests that the service can run at once.
    """
    return judge_all([record], is_open=is_open, most_running=most_running)


def judge_all(records: Sequence[LoadRecord], *, is_open: bool, most_running: int) -> LoadValidity:
    """Judge equal loads as one: by the share of all requests that were late, and by the queue of the median load.

    Arguments are those of :func:`judge`.
    """
    if not any(record.counts["completed"] for record in records):
        return LoadValidity("invalid", "no request was answered")
    overloads = [_overload(record, most_running) if is_open else "" for record in records]
    late, overload = _lateness(records), sorted(overloads)[len(overloads) // 2]
    reasons = [reason for reason in (late, overload) if reason]
    return LoadValidity("invalid" if late else "overload" if overload else "valid", "; ".join(reasons))


def _lateness(records: Sequence[LoadRecord]) -> str:
    """Return how the generator was late; empty where it was in time."""
    served = [int((record.batch_indices != NO_BATCH).sum()) for record in records]
    share = sum(record.late_share * count for record, count in zip(records, served, strict=True)) / max(1, sum(served))
    if share <= MOST_LATE_SHARE:
        return ""
    late = f"the generator held up {100 * share:.2g} % of the requests for over 1 ms and 1 % of their"
    return f"{late} latency; stop other work on this host, or use fewer threads"


def _overload(record: LoadRecord, most_running: int) -> str:
    """Return how a service shows that more comes than it can answer; empty where it does not."""
    turned_away = record.counts["rejected"] + record.expired_count
    if turned_away > MOST_TURNED_AWAY_SHARE * len(record):
        share = f"{100 * turned_away / len(record):.2g} %"
        return f"{share} of the requests found the queue full or waited beyond the timeout"
    if not grows(record, most_running):
        return ""
    problem, busy = "the queue grows: requests come faster than they are answered", _busy_share(record)
    if busy >= MOSTLY_BUSY:
        return problem
    return f"{problem}, and the load test itself is the limit: workers are busy {100 * busy:.0f} % of the time"


def _busy_share(record: LoadRecord) -> float:
    """Return the share of their time during which those workers that served batches were in calls."""
    return utilization(record, max(1, len(np.unique(record.batches.workers))))


def grows(record: LoadRecord, most_running: int) -> bool:
    """Whether the queue grows: it never empties in the second half, and its growth in sixteen blocks is no chance.

    A queue that does not grow returns to where it was: its growths add up to its last depth, which is small beside
    their scatter. So Student's t of the growths separates the two without a threshold in requests.
    """
    if len(record) < LEAST_REQUESTS:
        return False
    begin_ns, end_ns = int(record.intended_ns[0]), int(record.intended_ns[-1])
    waiting = depths(record, np.linspace(begin_ns, end_ns, BLOCKS + 1).astype(np.int64))
    growths = np.diff(waiting)
    half = record.intended_ns[record.intended_ns >= (begin_ns + end_ns) // 2]
    if waiting[-1] <= most_running or depths(record, half).min() < 1:
        return False
    scatter = float(growths.std(ddof=1))
    return float(growths.mean()) > STUDENT_15 * scatter / math.sqrt(BLOCKS)


def utilization(record: LoadRecord, worker_count: int) -> float:
    """Return the share of the workers' time in calls, between the first arrival and the last."""
    begin_ns, end_ns = int(record.intended_ns[0]), int(record.intended_ns[-1])
    if end_ns == begin_ns:
        return 1.0
    batches = record.batches
    spent = np.clip(batches.ended_ns, begin_ns, end_ns) - np.clip(batches.started_ns, begin_ns, end_ns)
    return float(spent.sum()) / ((end_ns - begin_ns) * worker_count)


def latency_factor(record: LoadRecord, worker_count: int, *, is_open: bool) -> float:
    """Return the least variance factor of the latencies: that of a queue of this utilization.

    It is 1 where there is no such queue: users wait for answers, or a call serves several requests.
    """
    batches = record.batches
    if not is_open or len(record) < LEAST_REQUESTS or not len(batches.sizes) or batches.sizes.max() > 1:
        return 1.0
    service_us, gaps_us = (batches.ended_ns - batches.started_ns) / NS_PER_US, np.diff(record.intended_ns) / NS_PER_US
    return queue_factor(utilization(record, worker_count), service_us, gaps_us)

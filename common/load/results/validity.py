"""What a load is worth: the generator was in time, the queue did not grow, and hardly a request failed.

Latencies count from the intended start, so they hold the generator's own delays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from common.latency.dependence import Samples, queue_factor
from common.latency.statistics import Estimate
from common.load.requests.load_record import LATE_NS, REJECTED, LoadRecord, TimesNs
from common.load.results.thresholds import MAX_ERROR_SHARE, percent

Status = Literal["valid", "overload", "failing", "invalid"]
NS_PER_US = 1e3
MOST_LATE_SHARE = 0.01  # of the requests that the generator held up
MOST_DELAY_SHARE = 0.1  # of the latency that it makes; docs/LOAD.md says why
MOSTLY_BUSY = 0.9  # share of their time; where workers are busy for less, a growing queue is not due to them
LEAST_REQUESTS = 50
MOST_NAMED = 3  # reasons of failures
BLOCKS = 16
STUDENT_15 = 1.753  # 95 % quantile of Student's t with 15 degrees of freedom: one side


@dataclass(frozen=True, slots=True)
class LoadValidity:
    """Whether the percentiles of a load count: only those of a ``valid`` one do; the others have a reason."""

    status: Status
    reason: str = ""


VALID = LoadValidity("valid")


def depths(record: LoadRecord, at_ns: TimesNs) -> TimesNs:
    """Return how many requests wait at given times; one that comes or goes at that time has done so."""
    waits = record.outcomes != REJECTED
    return _depths(record.intended_ns[waits], record.left_ns[waits], at_ns)


def _depths(came_ns: TimesNs, left_ns: TimesNs, at_ns: TimesNs) -> TimesNs:
    came = np.searchsorted(came_ns, at_ns, side="right")
    return np.asarray(came - np.searchsorted(np.sort(left_ns), at_ns, side="right"))


def judge(
    records: Sequence[LoadRecord], *, is_open: bool, most_running: int, max_error_share: float = MAX_ERROR_SHARE
) -> LoadValidity:
    """Judge equal loads as one: by the share of all requests that were late or failed, and by the median load's queue.

    A service whose calls fail is ``failing``, also under a late generator: lateness makes no call fail. Otherwise a
    late generator makes a load ``invalid``, and more requests than the service can answer make it an ``overload``.

    Args:
        is_open: whether requests came by a schedule; users who wait for answers overload nothing.
        most_running: requests that the service can run at once.
    """
    errors = _errors(records, max_error_share)
    if not any(record.counts["completed"] for record in records):
        return LoadValidity(
            errors.status if errors.reason else "invalid", _listed("no request was answered", errors.reason)
        )
    growths = [_growth(record, most_running) if is_open else "" for record in records]
    late, growth = _lateness(records), sorted(growths)[len(growths) // 2]
    status = "invalid" if late and errors.status != "failing" else errors.status
    return LoadValidity("overload" if growth and status == "valid" else status, _listed(late, errors.reason, growth))


def _listed(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)


def _lateness(records: Sequence[LoadRecord]) -> str:
    """Return how the generator was late; empty where it was in time, or where that hardly shows in the latencies."""
    served = [int(record.is_served.sum()) for record in records]
    share = sum(record.late_share * count for record, count in zip(records, served, strict=True)) / max(1, sum(served))
    delay = delay_share(records)
    if share <= MOST_LATE_SHARE or delay <= MOST_DELAY_SHARE:
        return ""
    late = f"the generator held up {percent(share)} of the requests for over 1 ms, which makes {percent(delay)}"
    remedy = "" if all(record.has_priority for record in records) else "give it priority by `ulimit -r 1`, "
    return f"{late} of the latency; {remedy}stop other work on this host, or use fewer threads"


def _errors(records: Sequence[LoadRecord], max_share: float) -> LoadValidity:
    """Judge loads by the requests without an answer: those that failed, were not let in, or were not served."""
    known = sum(len(record) - int(record.is_cut.sum()) for record in records)
    errors = sum(int(record.is_error.sum()) for record in records)
    if errors <= max_share * known:
        return VALID
    failed = sum(record.counts["failed"] for record in records)
    turned_away = sum(record.counts["rejected"] + record.expired_count for record in records)
    problems = {
        f"of the requests failed ({_failures(records)})": failed,
        "of the requests found the queue full or waited beyond the timeout": turned_away,
        "of the requests still waited when the load ended": errors - failed - turned_away,
    }
    reasons = (f"{percent(count / known)} {problem}" for problem, count in problems.items() if count)
    return LoadValidity("failing" if failed > max_share * known else "overload", _listed(*reasons))


def _failures(records: Sequence[LoadRecord]) -> str:
    """Return how many requests failed for each reason, the most frequent ones first."""
    counts = sum((Counter(record.failures) for record in records), Counter[str]())
    named = [f"{count} x {reason}" for reason, count in counts.most_common(MOST_NAMED)]
    return ", ".join(named + ["others"] * (len(counts) > MOST_NAMED))


def _growth(record: LoadRecord, most_running: int) -> str:
    """Return how the queue shows that more comes than is answered; empty where it does not."""
    if not grows(record, most_running):
        return ""
    problem = "the queue grows: requests come faster than they are answered"
    busy = utilization(record, max(1, len(np.unique(record.batches.workers))))  # of those workers that served batches
    if busy >= MOSTLY_BUSY:
        return problem
    return f"{problem}, and the load test itself is the limit: workers are busy {100 * busy:.0f} % of the time"


def grows(record: LoadRecord, most_running: int) -> bool:
    """Whether the queue of a load grows; requests that were turned away are not in it."""
    waits = record.outcomes != REJECTED
    return queue_grows(record.intended_ns, record.intended_ns[waits], record.left_ns[waits], most_running)


def queue_grows(intended_ns: TimesNs, came_ns: TimesNs, left_ns: TimesNs, most_running: int) -> bool:
    """Whether a queue grows: it never empties in the second half, and its growth in sixteen blocks is no chance.

    A queue that does not grow returns to where it was: its growths add up to its last depth, which is small beside
    their scatter. So Student's t of the growths separates the two without a threshold in requests.

    Args:
        intended_ns: intended starts of all requests, in their order.
        came_ns, left_ns: when each request came to the queue and when it left.
    """
    if len(intended_ns) < LEAST_REQUESTS:
        return False
    begin_ns, end_ns = int(intended_ns[0]), int(intended_ns[-1])
    waiting = _depths(came_ns, left_ns, np.linspace(begin_ns, end_ns, BLOCKS + 1).astype(np.int64))
    growths = np.diff(waiting)
    half = intended_ns[intended_ns >= (begin_ns + end_ns) // 2]
    if waiting[-1] <= most_running or _depths(came_ns, left_ns, half).min() < 1:
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


def undelayed_us(record: LoadRecord) -> Samples:
    """Return ``record.waited_us`` as it would be if the generator had held up no batch for more than ``LATE_NS``.

    Each worker makes the same calls one after the other (Lindley 1952): a call that is ready at r and takes s ends at
    max(r, end of the call before) + s. So a delay also counts for the requests that queue behind it. A call is ready
    when the policy allows it, and not before its newest request has come: a late generator also takes requests that
    came during its delay.
    """
    batches, ends_ns = record.batches, record.batches.ended_ns.copy()
    late_ns = batches.batched_ns - batches.ready_ns
    if not (late_ns > LATE_NS).any():
        return record.waited_us
    service_ns = batches.ended_ns - batches.batched_ns + np.where(late_ns > LATE_NS, 0, late_ns)
    newest_ns = np.zeros_like(ends_ns)
    np.maximum.at(newest_ns, record.batch_indices[record.is_served], record.intended_ns[record.is_served])
    for worker in np.unique(batches.workers):
        own = np.flatnonzero(batches.workers == worker)
        free_ns = np.concatenate([[0], batches.ended_ns[own][:-1]])
        allowed_ns = np.where(batches.ready_ns[own] > free_ns, batches.ready_ns[own], 0)
        ready_ns = np.maximum(allowed_ns, newest_ns[own])
        total_ns = np.cumsum(service_ns[own])
        ends_ns[own] = total_ns + np.maximum.accumulate(ready_ns - (total_ns - service_ns[own]))
    return np.asarray((record.settled_with(ends_ns) - record.intended_ns)[record.is_waited] / 1e3)


def delay_share(records: Sequence[LoadRecord]) -> float:
    """Return the share of all latency that the generator's delays of more than ``LATE_NS`` make."""
    waited_us = sum(float(record.waited_us.sum()) for record in records)
    undelayed = sum(float(undelayed_us(record).sum()) for record in records)
    return max(0.0, 1 - undelayed / waited_us) if waited_us else 0.0


def widened(measured: Estimate, undelayed: Estimate) -> Estimate:
    """Return a figure with the lower one of two lower limits: its own, and that without the generator's delays."""
    return Estimate(measured.value, _lower(measured.low, undelayed.low), measured.high)


def widened_columns(
    measured: Mapping[str, float | None], undelayed: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Return figures by their column names, with lower limits as by :func:`widened`."""
    limits = {name: _lower(low, undelayed[name]) for name, low in measured.items() if name.endswith("_low_us")}
    return {**measured, **limits}


def _lower(one: float | None, other: float | None) -> float | None:
    return None if one is None else one if other is None else min(one, other)

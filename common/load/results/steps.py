"""A load step by step: what its service delivered at each rate, and whether that step can be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from common.load.requests.batching import NEVER_NS
from common.load.requests.load_record import LoadRecord, TimesNs
from common.load.requests.rate_profile import RateStep
from common.load.results.delays import undelayed_us
from common.load.results.load_figures import (
    NO_LATENCIES,
    LoadTest,
    counted_latencies_us,
    request_figures,
    skipped_count,
)
from common.load.results.validity import LoadValidity, utilization
from common.table_rows import LoadStepsRow

NS_PER_S = 1e9
FIGURES = [f"request_{name}{end}_us" for name in ("p50", "p90", "p99", "mean") for end in ("", "_low", "_high")]


def step_starts_ns(steps: Sequence[RateStep]) -> TimesNs:
    """Return when each step begins, and when the last one ends."""
    return np.round(np.cumsum([0.0, *(step.duration_s for step in steps)]) * NS_PER_S).astype(np.int64)


def steps_of(test: LoadTest) -> Sequence[RateStep]:
    """Return the steps of a load; where no rate was asked for, the time in which its requests came is the only one."""
    intended_ns = test.record.intended_ns
    return test.steps or (RateStep((int(intended_ns[-1]) + 1) / NS_PER_S if len(intended_ns) else 0.0),)


def step_indices(test: LoadTest) -> TimesNs:
    """Return the step in which each request was intended to start."""
    starts_ns = step_starts_ns(steps_of(test))
    return np.minimum(np.searchsorted(starts_ns[1:], test.record.intended_ns, side="right"), len(starts_ns) - 2)


def step_rows(test: LoadTest, warmup_count: int) -> list[LoadStepsRow]:
    """Return a row per step; the percentiles of a ramp are those of all its rates together.

    Args:
        warmup_count: requests at the begin of the load that no percentile counts.
    """
    steps, indices = steps_of(test), step_indices(test)
    may_end_early = test.record.is_interrupted or test.precision is not None
    starts_ns = np.minimum(step_starts_ns(steps), test.record.ended_ns if may_end_early else NEVER_NS)
    rows = []
    for index, step in enumerate(steps):
        if index and starts_ns[index] == starts_ns[index + 1]:
            break  # the load ended before
        own = replace(test, record=requests_of(test.record, indices == index))
        is_first = np.arange(len(test.record))[indices == index] < warmup_count
        rows.append(
            {
                "step_index": index,
                "step_start_us": float(starts_ns[index]) / 1e3,
                "step_duration_us": float(starts_ns[index + 1] - starts_ns[index]) / 1e3,
                "begin_requests_per_s": step.begin_hz,
                "end_requests_per_s": step.end_hz,
                **_figures(own, int(is_first.sum())),
                "answered_requests_per_s": _answered_hz(test.record, starts_ns[index], starts_ns[index + 1]),
            }
        )
    return cast("list[LoadStepsRow]", rows)


def _figures(test: LoadTest, warmup_count: int) -> dict[str, object]:
    record = test.record
    validity = test.validity if len(record) else LoadValidity("valid")  # a step without a rate
    counts, counted = record.counts, counted_latencies_us(record, warmup_count)
    undelayed = undelayed_us(record)[skipped_count(record, warmup_count) :]
    is_judged = validity.status == "valid" and len(counted) > 0
    latencies = request_figures(counted, undelayed, test.latency_factor) if is_judged else NO_LATENCIES
    return {
        "validity": validity.status,
        "validity_reason": validity.reason,
        "sent_count": len(record),
        **{f"{name}_count": counts[name] for name in ("completed", "rejected", "failed", "cancelled")},
        "utilization_share": utilization(record, test.worker_count) if len(record) else None,
        **{name: latencies[name] for name in FIGURES},
    }


def _answered_hz(record: LoadRecord, begin_ns: int, end_ns: int) -> float:
    """Return the rate of the answers that came between two times, whenever their requests were sent."""
    ended_ns = record.batches.ended_ns[record.batch_indices[record.is_completed]]
    return float(((ended_ns >= begin_ns) & (ended_ns < end_ns)).sum()) / max((end_ns - begin_ns) / NS_PER_S, 1e-9)


def requests_of(record: LoadRecord, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> LoadRecord:
    """Return the record of some of the requests; their batches keep all of their requests."""
    outcomes, batch_indices, left_ns = record.outcomes[chosen], record.batch_indices[chosen], record.left_ns[chosen]
    return replace(
        record,
        intended_ns=record.intended_ns[chosen],
        queued_ns=record.queued_ns[chosen],
        left_ns=left_ns,
        is_expired=record.is_expired[chosen],
        outcomes=outcomes,
        batch_indices=batch_indices,
        lengths=record.lengths[chosen],
        failures={},
    )

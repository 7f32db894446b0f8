"""A load step by step: what its service delivered at each rate, and whether that step can be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np

from common.load.requests.batching import NEVER_NS
from common.load.requests.load_record import LoadRecord, TimesNs
from common.load.requests.rate_profile import RateStep
from common.load.results.load_figures import LoadTest, counted_figures
from common.load.results.validity import VALID
from common.table_rows import LoadStepsRow

NS_PER_S = 1e9
FIGURES = (  # of a whole load, which a step has too
    *("validity", "validity_reason", "sent_count", "completed_count", "rejected_count", "failed_count"),
    *("cancelled_count", "utilization_share"),
    *(f"request_{name}{end}_us" for name in ("p50", "p90", "p99", "mean") for end in ("", "_low", "_high")),
)


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
    answered_ns = test.record.batches.ended_ns[test.record.batch_indices[test.record.is_completed]]
    rows = []
    for index, (step, (begin_ns, end_ns)) in enumerate(zip(steps, pairwise(starts_ns.tolist()), strict=True)):
        if index and begin_ns == end_ns:
            break  # the load ended before
        own = replace(test, record=requests_of(test.record, indices == index))
        count = int(((answered_ns >= begin_ns) & (answered_ns < end_ns)).sum())  # whenever their requests were sent
        is_first = np.arange(len(test.record))[indices == index] < warmup_count
        validity = own.validity if len(own.record) else VALID  # a step without a rate
        figures = counted_figures(own, validity, int(is_first.sum()))
        rows.append(
            {
                "step_index": index,
                "step_start_us": begin_ns / 1e3,
                "step_duration_us": (end_ns - begin_ns) / 1e3,
                "begin_requests_per_s": step.begin_hz,
                "end_requests_per_s": step.end_hz,
                **{name: figures[name] for name in FIGURES},
                "answered_requests_per_s": count / max((end_ns - begin_ns) / NS_PER_S, 1e-9),
            }
        )
    return cast("list[LoadStepsRow]", rows)


def requests_of(record: LoadRecord, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> LoadRecord:
    """Return the record of some of the requests; their batches keep all of their requests."""
    names = ("intended_ns", "queued_ns", "left_ns", "is_expired", "outcomes", "batch_indices", "lengths")
    return replace(record, failures={}, **{name: getattr(record, name)[chosen] for name in names})

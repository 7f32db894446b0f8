"""The tables of one load: requests, batches, its summary, what was delivered at each rate, and its slow calls."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pandas as pd

from common.latency.histogram_log import histogram_log
from common.latency.run import RunSeries
from common.latency.slow_runs import LEAST_RUNS
from common.load.requests.batching import NEVER_NS
from common.load.requests.load_record import LoadRecord, TimesNs
from common.load.requests.rate_profile import RateStep
from common.load.results.load_figures import LoadTest, batch_columns, counted_figures, request_columns, steady, summary
from common.load.results.standard_names import standard_metrics
from common.load.results.validity import VALID
from common.table_rows import LoadDisturbancesRow, LoadStepsRow, LoadSummaryDocument

NS_PER_S = 1e9
STEP_FIGURES = (  # of a whole load, which a step has too
    *("validity", "validity_reason", "sent_count", "completed_count", "rejected_count", "failed_count"),
    *("cancelled_count", "utilization_share"),
    *(f"request_{name}{end}_us" for name in ("p50", "p90", "p99", "mean") for end in ("", "_low", "_high")),
)


@dataclass(frozen=True, slots=True)
class LoadTables:
    requests: pd.DataFrame
    batches: pd.DataFrame
    summary: LoadSummaryDocument
    steps: list[LoadStepsRow]  # what was delivered at each rate
    histogram_log: str  # the latencies in the log format of HdrHistogram, second by second
    lacks: list[str]  # why they are incomplete; empty where they are not


def load_tables(test: LoadTest, setup: Mapping[str, object], process: Mapping[str, int | None]) -> LoadTables:
    """Return the tables of a load, from its set-up and what this process holds at its end by field of the summary."""
    record, state = test.record, steady(test.record)
    fields = {"loadgen_results": {}, "interference": {}, **summary(test, state), **setup, **process}
    document = cast("LoadSummaryDocument", {**fields, "standard_metrics": standard_metrics(record, process)})
    first = document["warmup_request_count"]
    requests = pd.DataFrame({**request_columns(record, first), "step_index": step_indices(test)})
    batches, steps = pd.DataFrame(batch_columns(test)), step_rows(test, first)
    lacks = [f"a signal ended the load after {record.ended_ns / 1e9:.3g} s"] if record.is_interrupted else []
    return LoadTables(requests, batches, document, steps, _latency_log(record), lacks)


def _latency_log(record: LoadRecord) -> str:
    """Return a histogram for each second: the latencies of all requests that were answered in it, warm-up included."""
    done = record.is_completed
    ended_ns = record.batches.ended_ns[record.batch_indices[done]]
    start_s = time.time() - (time.perf_counter() - record.start_s)
    return histogram_log(ended_ns, ended_ns - record.intended_ns[done], record.ended_ns, start_s)


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
    """Return a row per step; percentiles leave out the warm-up, and those of a ramp are of all its rates together."""
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
                **{name: figures[name] for name in STEP_FIGURES},
                "answered_requests_per_s": count / max((end_ns - begin_ns) / NS_PER_S, 1e-9),
            }
        )
    return cast("list[LoadStepsRow]", rows)


def requests_of(record: LoadRecord, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> LoadRecord:
    """Return the record of some of the requests; their batches keep all of their requests."""
    names = ("intended_ns", "queued_ns", "left_ns", "is_expired", "outcomes", "batch_indices", "lengths")
    return replace(record, failures={}, **{name: getattr(record, name)[chosen] for name in names})


def call_series(record: LoadRecord, first: int = 0) -> list[RunSeries]:
    """Return the calls as latency series in which slow ones are sought: one per worker, size and length.

    A kind with too few calls to say what is usual has none. The steady part begins with the first batch.
    """
    batches = record.batches
    kinds, inverse = np.unique(
        np.stack([batches.workers, batches.padded_sizes, batches.lengths]), axis=1, return_inverse=True
    )
    starts_s = record.start_s + batches.started_ns / 1e9
    taken_us = (batches.ended_ns - batches.started_ns) / 1e3
    is_counted = (np.arange(len(batches.sizes)) >= first) & (taken_us > 0)  # a batch that a signal cut has no end
    chosen = (np.flatnonzero((inverse == kind) & is_counted) for kind in range(kinds.shape[1]))
    return [RunSeries(False, own, starts_s[own], taken_us[own]) for own in chosen if len(own) >= LEAST_RUNS]


def slow_call_rows(record: LoadRecord, slow_calls: Iterable[Mapping[str, Any]]) -> list[LoadDisturbancesRow]:
    """Return what is known of slow calls, with the worker and the size of the batch of each."""
    batches = record.batches
    rows = []
    for row in slow_calls:
        batch = row["load_batch_index"]
        of_batch = {"worker_index": int(batches.workers[batch]), "request_count": int(batches.sizes[batch])}
        rows.append({**row, **of_batch})
    return cast("list[LoadDisturbancesRow]", rows)

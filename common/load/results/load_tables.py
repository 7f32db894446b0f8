"""The tables of one load: requests, batches, its summary, and its slow calls."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from common.latency.histogram_log import histogram_log
from common.latency.run import RunSeries
from common.latency.slow_runs import LEAST_RUNS
from common.load.requests.load_record import LoadRecord
from common.load.results.load_figures import LoadTest, batch_columns, request_columns, steady, summary
from common.load.results.standard_names import standard_metrics
from common.load.results.steps import step_indices, step_rows
from common.table_rows import LoadDisturbancesRow, LoadStepsRow, LoadSummaryDocument


@dataclass(frozen=True, slots=True)
class LoadTables:
    """The tables of one load."""

    requests: pd.DataFrame
    batches: pd.DataFrame
    summary: LoadSummaryDocument
    steps: list[LoadStepsRow]  # what was delivered at each rate
    histogram_log: str  # the latencies in the log format of HdrHistogram, second by second
    lacks: list[str]  # why they are incomplete; empty where they are not


def interruption(record: LoadRecord) -> list[str]:
    """Say that a signal ended a load, if one did."""
    return [f"a signal ended the load after {record.ended_ns / 1e9:.3g} s"] if record.is_interrupted else []


def load_tables(test: LoadTest, setup: Mapping[str, object], process: Mapping[str, int | None]) -> LoadTables:
    """Return requests, batches and summary of a load.

    Args:
        setup: how it was set up, and what else is known of it, by field of the summary.
        process: what this process holds at the end, by field of the summary.
    """
    record, state = test.record, steady(test.record)
    fields = {"loadgen_results": {}, "interference": {}, **summary(test, state), **setup, **process}
    document = cast("LoadSummaryDocument", {**fields, "standard_metrics": standard_metrics(record, process)})
    first = document["warmup_request_count"]
    requests = pd.DataFrame({**request_columns(record, first), "step_index": step_indices(test)})
    batches, steps = pd.DataFrame(batch_columns(test)), step_rows(test, first)
    return LoadTables(requests, batches, document, steps, _latency_log(record), interruption(record))


def _latency_log(record: LoadRecord) -> str:
    """Return a histogram for each second: the latencies of all requests that were answered in it, warm-up included."""
    done = record.is_completed
    ended_ns = record.batches.ended_ns[record.batch_indices[done]]
    start_s = time.time() - (time.perf_counter() - record.start_s)
    return histogram_log(ended_ns, ended_ns - record.intended_ns[done], record.ended_ns, start_s)


def call_series(record: LoadRecord, first: int = 0) -> list[RunSeries]:
    """Return the calls as latency series in which slow ones are sought: one per worker, size and length.

    A kind with too few calls to say what is usual has none.

    Args:
        first: the first batch of the steady part.
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

"""The calls of a load as latency series, in which slow ones are sought: a series per worker, size and length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from common.latency.run import RunSeries
from common.latency.slow_runs import LEAST_RUNS
from common.load.requests.load_record import LoadRecord
from common.table_rows import LoadDisturbancesRow


def call_series(record: LoadRecord, first: int = 0) -> list[RunSeries]:
    """Return the calls of each kind that has enough of them to say what is usual.

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
    rows = [
        {
            **row,
            "worker_index": int(batches.workers[row["load_batch_index"]]),
            "request_count": int(batches.sizes[row["load_batch_index"]]),
        }
        for row in slow_calls
    ]
    return cast("list[LoadDisturbancesRow]", rows)

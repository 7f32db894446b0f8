"""The latencies of a load as a log of HdrHistogram."""

from __future__ import annotations

import time

from common.latency.histogram_log import histogram_log
from common.load.requests.load_record import LoadRecord


def latency_log(record: LoadRecord) -> str:
    """Return a histogram for each second: the latencies of all requests that were answered in it, warm-up included."""
    done = record.is_completed
    ended_ns = record.batches.ended_ns[record.batch_indices[done]]
    start_s = time.time() - (time.perf_counter() - record.start_s)
    return histogram_log(ended_ns, ended_ns - record.intended_ns[done], record.ended_ns, start_s)

"""Figures of token streams, by the names of GenAI-Perf (NVIDIA, docs of genai-perf) and of MLPerf LoadGen.

The time to first token is from the intended start of a request to its first token (LoadGen: TTFT). Inter-token latency
is the time between two tokens of a stream. The time per output token of a request is the mean of its inter-token
latencies (LoadGen: TPOT).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from common.generation.streams.engine import TokenStream
from common.latency.statistics import QUANTILES, Estimate, estimate_columns, percentile
from common.load.results.validity import queue_grows
from common.table_rows import StreamRequestsRow, StreamSummaryDocument, StreamTokensRow

NS_PER_US, US_PER_S = 1e3, 1e6
STATED = ("p50", "p90", "p95", "p99")
OF_QUEUE = ("time_to_first_token", "request")  # times that include the wait to be admitted


@dataclass(frozen=True, slots=True)
class TokenBounds:
    """Bounds within which a request counts as goodput; None is no bound."""

    first_token_us: float | None = None
    inter_token_us: float | None = None

    def are_met(self, row: StreamRequestsRow) -> bool:
        first, each = row["time_to_first_token_us"], row["time_per_output_token_us"]
        is_first = self.first_token_us is None or first <= self.first_token_us
        return is_first and (self.inter_token_us is None or each is None or each <= self.inter_token_us)


def request_rows(streams: Sequence[TokenStream]) -> list[StreamRequestsRow]:
    """Return the streams in the order in which their requests came."""
    return [_request_row(stream) for stream in sorted(streams, key=lambda stream: stream.index)]


def _request_row(stream: TokenStream) -> StreamRequestsRow:
    intended, times = stream.request.intended_ns, stream.token_ns
    later = len(times) - 1
    return {
        "request_index": stream.index,
        "input_token_count": stream.request.prompt_count,
        "output_token_count": len(times),
        "intended_us": intended / NS_PER_US,
        "admitted_us": stream.admitted_ns / NS_PER_US,
        "time_to_first_token_us": (times[0] - intended) / NS_PER_US,
        "time_per_output_token_us": (times[-1] - times[0]) / NS_PER_US / later if later else None,
        "request_latency_us": (times[-1] - intended) / NS_PER_US,
    }


def token_rows(streams: Sequence[TokenStream]) -> list[StreamTokensRow]:
    return [
        {"request_index": stream.index, "token_index": index, "ended_us": time_ns / NS_PER_US}
        for stream in sorted(streams, key=lambda stream: stream.index)
        for index, time_ns in enumerate(stream.token_ns)
    ]


def stream_summary(
    streams: Sequence[TokenStream], offered_per_s: float | None, bounds: TokenBounds, setup: Mapping[str, Any]
) -> StreamSummaryDocument:
    """Return rates over the time to the last token, and percentiles of three series with their limits.

    In an overload, the times that count from the intended start grow with the duration of the load, so they have no
    percentiles; the time between two tokens of a stream has.

    Args:
        offered_per_s: requests per second of the schedule; None for a single request.
        setup: columns that say how the service was set up.
    """
    rows = request_rows(streams)
    end_us = max(stream.token_ns[-1] for stream in streams) / NS_PER_US
    ordered = sorted(streams, key=lambda stream: stream.index)
    gaps_us = np.concatenate([np.diff(stream.token_ns) for stream in ordered]) / NS_PER_US
    series = {
        "time_to_first_token": np.array([row["time_to_first_token_us"] for row in rows]),
        "inter_token": gaps_us,
        "request": np.array([row["request_latency_us"] for row in rows]),
    }
    met, seconds = sum(map(bounds.are_met, rows)), end_us / US_PER_S
    served_ns = sum(stream.token_ns[-1] - stream.admitted_ns for stream in streams)
    figures = {
        **setup,
        "completed_count": len(rows),
        "input_tokens_per_s": sum(row["input_token_count"] for row in rows) / seconds,
        "output_tokens_per_s": sum(row["output_token_count"] for row in rows) / seconds,
        "offered_requests_per_s": offered_per_s,
        "answered_requests_per_s": len(rows) / seconds,
        "goodput_requests_per_s": met / seconds,
        "first_token_bound_us": bounds.first_token_us,
        "inter_token_bound_us": bounds.inter_token_us,
        "streams_in_flight_count": served_ns / NS_PER_US / end_us,  # the mean over the load
    }
    reason = overload(ordered, int(setup["most_in_flight_count"]))
    figures |= {"validity": "overload" if reason else "valid", "validity_reason": reason or None}
    for name, samples in series.items():
        is_known = samples.size > 0 and not (reason and name in OF_QUEUE)
        for quantile in STATED:
            estimate = percentile(samples, QUANTILES[quantile]) if is_known else Estimate()
            figures |= estimate_columns(f"{name}_{quantile}", estimate)
    return cast("StreamSummaryDocument", figures)


def overload(ordered: Sequence[TokenStream], most: int) -> str:
    """Return why a load is an overload, by the requests that wait to be admitted; empty where they do not grow.

    Args:
        ordered: streams in the order of their requests.
        most: streams that may be in flight.
    """
    came_ns = np.array([stream.request.intended_ns for stream in ordered], np.int64)
    left_ns = np.array([stream.admitted_ns for stream in ordered], np.int64)
    grows = queue_grows(came_ns, came_ns, left_ns, most)
    return "the queue grows: requests come faster than their tokens" if grows else ""


def broken_goodput(summary: StreamSummaryDocument, least_per_s: float | None) -> list[str]:
    """Return what a load breaks of a least goodput; nothing where none was asked for."""
    if least_per_s is None or (found := summary["goodput_requests_per_s"] or 0.0) >= least_per_s:
        return []
    return [f"{found:.4g} requests/s were answered within both bounds; <min_goodput> is {least_per_s:.4g}"]

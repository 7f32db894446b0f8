"""A load of token streams as text: rates, and the times of tokens with their limits."""

from __future__ import annotations

from collections.abc import Mapping

from common.table_rows import StreamSummaryDocument
from common.view.tables import table_of_cells
from common.view.text import duration, significant

SERIES = {
    "time_to_first_token": "time to first token",
    "inter_token": "inter-token latency",
    "request": "request latency",
}
QUANTILES = ("p50", "p90", "p95", "p99")
TIMES = table_of_cells("", *QUANTILES, "p99 at most", left=(0,))


def stream_report(summary: StreamSummaryDocument) -> str:
    figures: Mapping[str, object] = summary  # the names of the columns are data
    cells = [
        (
            text,
            *(_time(figures[f"{name}_{quantile}_us"]) for quantile in QUANTILES),
            _time(figures[f"{name}_p99_high_us"]),
        )
        for name, text in SERIES.items()
    ]
    each = "one call gives all streams a token" if summary["is_batched"] else "each stream has calls of its own"
    output, answered, good = (
        significant(summary[name] or 0.0)
        for name in ("output_tokens_per_s", "answered_requests_per_s", "goodput_requests_per_s")
    )
    rates = (
        f"{output} tokens/s, {answered} requests/s of {summary['completed_count']} requests; goodput {good} requests/s"
    )
    served = (
        f"{summary['batching_policy']} batching, at most {summary['most_in_flight_count']} streams in flight, "
        f"{significant(summary['streams_in_flight_count'])} on average; {each}"
    )
    worth = [] if summary["validity"] == "valid" else [f"{summary['validity']}: {summary['validity_reason']}"]
    return "\n".join([rates, served, *worth, TIMES.text(cells)])


def _time(value: object) -> str:
    return duration(value) if isinstance(value, float) else ""

"""Two services alone and together as text: latency and rate of each, and how much they slow each other down."""

from __future__ import annotations

from collections.abc import Sequence

from common.table_rows import LoadInterferenceRow
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, duration, significant

LEGEND = "x: together over alone, with 95 % limits"


def interference_report(rows: Sequence[LoadInterferenceRow]) -> str:
    """Return a line per service and state, and why one has no latency."""
    doubts = {
        f"{row['served_model']} {row['load_state']}: {row['validity']}: {row['validity_reason']}; no latency is given"
        for row in rows
        if row["validity"] != "valid"
    }
    lacks_p99 = not doubts and any(row["request_p99_us"] is None for row in rows)
    few = ["too few requests for p99; give a longer <duration>"] if lacks_p99 else []
    return "\n".join([SERVICES.text(rows), LEGEND, *sorted(doubts), *few])


def _factor(row: LoadInterferenceRow, value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return MISSING if row["load_state"] == "together" else ""
    return f"{value:.3g}" if low is None or high is None else f"{value:.3g} ({low:.3g} to {high:.3g})"


def _p50_slowdown(row: LoadInterferenceRow) -> str:
    ends = row["request_p50_slowdown_low_factor"], row["request_p50_slowdown_high_factor"]
    return _factor(row, row["request_p50_slowdown_factor"], *ends)


def _p99_slowdown(row: LoadInterferenceRow) -> str:
    ends = row["request_p99_slowdown_low_factor"], row["request_p99_slowdown_high_factor"]
    return _factor(row, row["request_p99_slowdown_factor"], *ends)


def _rate_factor(row: LoadInterferenceRow) -> str:
    ends = row["answered_rate_low_factor"], row["answered_rate_high_factor"]
    return _factor(row, row["answered_rate_factor"], *ends)


SERVICES: Table[LoadInterferenceRow] = Table(
    TableColumn("model", lambda row: row["served_model"].removesuffix(".onnx")),
    TableColumn("runs", lambda row: row["load_state"]),
    TableColumn("answers/s", lambda row: significant(row["answered_requests_per_s"])),
    TableColumn("p50", lambda row: duration(row["request_p50_us"])),
    TableColumn("p99", lambda row: duration(row["request_p99_us"])),
    TableColumn("p50 x", _p50_slowdown),
    TableColumn("p99 x", _p99_slowdown),
    TableColumn("rate x", _rate_factor),
)

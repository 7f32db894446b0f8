"""A load step by step: the rate that was asked for, what was answered, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.table_rows import LoadStepsRow
from common.view.tables import Table, TableColumn
from common.view.text import duration, percent, significant

if TYPE_CHECKING:
    from collections.abc import Sequence


def asked_rate(row: LoadStepsRow) -> str:
    """Return the rate of a step, or both ends of a ramp."""
    begin_hz, end_hz = row["begin_requests_per_s"], row["end_requests_per_s"]
    if begin_hz is None or end_hz is None:
        return "–"
    return significant(begin_hz) if begin_hz == end_hz else f"{significant(begin_hz)} to {significant(end_hz)}"


STEPS: Table[LoadStepsRow] = Table(
    TableColumn("step", lambda row: str(row["step_index"])),
    TableColumn("begins", lambda row: duration(row["step_start_us"])),
    TableColumn("lasts", lambda row: duration(row["step_duration_us"])),
    TableColumn("requests/s", asked_rate),
    TableColumn("answered/s", lambda row: significant(row["answered_requests_per_s"])),
    TableColumn("busy", lambda row: percent(row["utilization_share"])),
    TableColumn("p50", lambda row: duration(row["request_p50_us"])),
    TableColumn("p99", lambda row: duration(row["request_p99_us"])),
    TableColumn("validity", lambda row: row["validity"]),
)


def steps_report(rows: Sequence[LoadStepsRow]) -> str:
    """Return a row per step; nothing for a load of one step, whose figures its summary has."""
    return STEPS.text(rows) if len(rows) > 1 else ""

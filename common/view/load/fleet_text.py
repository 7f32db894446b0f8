"""Load tests of many models as a table: what each model delivers, and on which host."""

from __future__ import annotations

from pathlib import Path

from common.table_rows import LoadFleetRow
from common.view.load.search_text import setup_label
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, duration, significant


def _rate(row: LoadFleetRow, requests_per_s: float | None) -> str:
    return MISSING if requests_per_s is None or not row["sent_count"] else significant(requests_per_s)


def _end(row: LoadFleetRow) -> str:
    if not row["sent_count"]:
        return row["validity_reason"] or "no request came"
    return setup_label(row) if row["validity"] == "valid" else f"{row['validity']}: {row['validity_reason']}"


FLEET: Table[LoadFleetRow] = Table(
    TableColumn("model", lambda row: Path(row["model_file"]).name),
    TableColumn("host", lambda row: row["hostname"]),
    TableColumn("requests/s", lambda row: _rate(row, row["offered_requests_per_s"])),
    TableColumn("answered", lambda row: _rate(row, row["answered_requests_per_s"])),
    TableColumn("p50", lambda row: duration(row["request_p50_us"])),
    TableColumn("p99", lambda row: duration(row["request_p99_us"])),
    TableColumn("set up as, or what is wrong", _end),
)

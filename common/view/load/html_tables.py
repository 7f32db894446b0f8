"""Load tests as a part of the report: the run, the search, the long load and the providers, where they are."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from common.table_rows import Documents, LoadFleetRow, LoadSearchRow, Tables
from common.view.load.endurance_text import endurance_report
from common.view.load.fleet_text import FLEET
from common.view.load.interference_text import interference_report
from common.view.load.load_text import load_report, steps_report
from common.view.load.search_text import PROVIDERS, search_report, setup_label
from common.view.tables import Table, TableColumn
from common.view.text import duration, percent, significant

if TYPE_CHECKING:
    from collections.abc import Sequence


MOST_ROWS = 60
CURVE: Table[LoadSearchRow] = Table(
    TableColumn("requests/s", lambda row: significant(row["offered_requests_per_s"] or 0.0)),
    TableColumn("p50", lambda row: row["validity"] if (p50_us := row["request_p50_us"]) is None else duration(p50_us)),
    TableColumn("predicted", lambda row: duration(row["predicted_p50_us"])),
    TableColumn("p99", lambda row: duration(row["request_p99_us"])),
    TableColumn("predicted", lambda row: duration(row["predicted_p99_us"])),
    TableColumn("utilization", lambda row: percent(row["predicted_utilization_share"])),
    TableColumn("why they differ", lambda row: row["prediction_doubt"]),
)


def load_section(tables: Tables, documents: Documents) -> str:
    parts = []
    if "load_summary" in documents:
        parts.append(_text(load_report(documents["load_summary"])))
    if "load_steps" in tables and (steps := steps_report(tables["load_steps"])):
        parts.append(_text(steps))
    if "load_best" in documents and "load_batch_times" in tables:
        parts.append(_text(search_report(documents["load_best"], tables["load_batch_times"])))
    if "load_search" in tables:
        parts.append(_curve(tables["load_search"]))
    if "endurance_summary" in documents:
        parts.append(_text(endurance_report(documents["endurance_summary"])))
    if "load_interference" in tables:
        parts.append(_text(interference_report(tables["load_interference"])))
    if "load_fleet" in tables:
        parts.append(_fleet(tables["load_fleet"]))
    if "provider_comparison" in tables:
        parts.append(PROVIDERS.html(tables["provider_comparison"][:MOST_ROWS]))
    return "\n".join(filter(None, parts))


def _text(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _curve(trials: Sequence[LoadSearchRow]) -> str:
    """Return a row per rate of the best configuration, measured and predicted."""
    curve = [row for row in trials if row["trial_kind"] == "curve"]
    curve.sort(key=lambda row: row["offered_requests_per_s"] or 0.0)
    return CURVE.html(curve, f"the best: {setup_label(curve[0])}") if curve else ""


def _fleet(models: Sequence[LoadFleetRow]) -> str:
    left_out = len(models) - MOST_ROWS
    return FLEET.html(models[:MOST_ROWS], f"{left_out} more in load_fleet.csv" if left_out > 0 else "")

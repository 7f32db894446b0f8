"""Load tests as a part of the report: the run, the search, the long load and the providers, where they are."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from common.view.html import html_table
from common.view.load.endurance_text import endurance_report
from common.view.load.fleet_text import FLEET_HEAD, fleet_line
from common.view.load.interference_text import interference_report
from common.view.load.load_text import load_report
from common.view.load.search_text import search_report, setup_label
from common.view.text import MISSING, duration, percent, significant

MOST_ROWS = 60


def load_section(tables: Mapping[str, pd.DataFrame], documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the tables of load tests that are there."""
    parts = []
    if "load_summary" in documents:
        parts.append(_text(load_report(documents["load_summary"])))
    if "load_best" in documents and "load_batch_times" in tables:
        rows = _rows(tables["load_batch_times"])
        parts.append(_text(search_report(documents["load_best"], rows)))
    if "load_search" in tables:
        parts.append(curve_table(tables["load_search"]))
    if "endurance_summary" in documents:
        parts.append(_text(endurance_report(documents["endurance_summary"])))
    if "load_interference" in tables:
        parts.append(_text(interference_report(_rows(tables["load_interference"]))))
    if "load_fleet" in tables:
        parts.append(fleet_table(tables["load_fleet"]))
    if "provider_comparison" in tables:
        parts.append(provider_table(tables["provider_comparison"]))
    return "\n".join(filter(None, parts))


def _text(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows in which an empty cell is None."""
    return [
        {str(name): None if pd.isna(value) else value for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def curve_table(trials: pd.DataFrame) -> str:
    """Return a row per rate of the best configuration, measured and predicted."""
    curve = trials[trials["trial_kind"] == "curve"].sort_values("offered_requests_per_s")
    rows = [
        [
            significant(row["offered_requests_per_s"]),
            duration(row["request_p50_us"]) if row["request_p50_us"] is not None else row["validity"],
            duration(row["predicted_p50_us"]),
            duration(row["request_p99_us"]),
            duration(row["predicted_p99_us"]),
            percent(row["predicted_utilization_share"]),
            row["prediction_doubt"] or "",
        ]
        for row in _rows(curve)
    ]
    if not rows:
        return ""
    head = ("requests/s", "p50", "predicted", "p99", "predicted", "utilization", "why they differ")
    return html_table(head, rows, f"the best: {setup_label(_rows(curve)[0])}")


def fleet_table(models: pd.DataFrame) -> str:
    """Return a row per model, with the host that measured it."""
    rows = [fleet_line(row) for row in _rows(models.head(MOST_ROWS))]
    left_out = len(models) - len(rows)
    return html_table(FLEET_HEAD, rows, f"{left_out} more in load_fleet.csv" if left_out else "")


def provider_table(matrix: pd.DataFrame) -> str:
    """Return a row per provider and output."""
    rows = [
        [
            row["compared_provider"],
            row["output_name"] or MISSING,
            duration(row["call_us"]),
            *(
                MISSING if row[name] is None else f"{row[name]:.3g}"
                for name in ("max_abs_error", "max_rel_error", "cosine_error")
            ),
            row["provider_problem"] or "",
        ]
        for row in _rows(matrix.head(MOST_ROWS))
    ]
    return html_table(("provider", "output", "one call", "abs. error", "rel. error", "cosine error", "problem"), rows)

"""Bottlenecks as a table of the report, with the figures that they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common.names import printable
from common.view.findings import Findings
from common.view.html import html_table
from common.view.text import duration, significant
from common.view.trace.bottleneck_text import interval, spoken, subject

MOST_ROWS = 40


def bottleneck_table(bottlenecks: pd.DataFrame, findings: Findings) -> str:
    """Return a row for each finding, those that gain most first."""
    labels, marks = findings.labels(), findings.marks()
    rows = [
        [
            printable(subject(row, labels)),
            spoken(row["finding"]),
            duration(row["gain_us"]),
            interval(row),
            duration(row["span_gain_us"]),
            evidence_text(row["evidence"]),
            row["remedy"],
            row["hazard"],
        ]
        for row in bottlenecks.head(MOST_ROWS).to_dict("records")
    ]
    about = [marks.of(names) for names in bottlenecks["executed_nodes"].head(MOST_ROWS)]
    header = ("where", "finding", "gains at most", "interval", "of the span", "evidence", "remedy", "hazard")
    aside = "A gain is the most that mending can take off one inference, by the critical path evaluated again. "
    more = (
        f"{len(rows)} of {len(bottlenecks)} rows; all of them in bottlenecks.csv"
        if len(bottlenecks) > len(rows)
        else ""
    )
    return html_table(header, rows, f"{aside}Gains overlap and do not add up. {more}", about)


def evidence_text(evidence: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures of a finding, by the table that they stand in."""
    return "; ".join(
        f"{table}: {', '.join(f'{name} {_value(value)}' for name, value in figures.items())}"
        for table, figures in evidence.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} x{count}" for name, count in value.items())
    return significant(value) if isinstance(value, float) else str(value)

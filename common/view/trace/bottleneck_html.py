"""Bottlenecks as a table of the report, with the figures that they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from common.view.findings import Findings
from common.view.tables import Table, TableColumn
from common.view.text import duration, significant
from common.view.trace.bottleneck_text import FINDING, GAIN, INTERVAL, subject_column

if TYPE_CHECKING:
    from common.table_rows import BottlenecksRow

MOST_ROWS = 40


def bottleneck_table(findings: Findings, bottlenecks: Sequence[BottlenecksRow]) -> str:
    """Return a row for each finding, those that gain most first."""
    columns: Table[BottlenecksRow] = Table(
        subject_column("where", findings.labels()),
        FINDING,
        GAIN.called("gains at most"),
        INTERVAL,
        TableColumn("of the span", lambda row: duration(row["span_gain_us"])),
        TableColumn("evidence", lambda row: evidence_text(row["evidence"])),
        TableColumn("remedy", lambda row: row["remedy"]),
        TableColumn("hazard", lambda row: row["hazard"]),
    )
    shown, marks = bottlenecks[:MOST_ROWS], findings.marks()
    aside = "A gain is the most that mending can take off one inference, by the critical path evaluated again. "
    more = f"{len(shown)} of {len(bottlenecks)} rows; all of them in bottlenecks.csv" * (len(bottlenecks) > len(shown))
    about = [marks.of(row["executed_nodes"]) for row in shown]
    return columns.html(shown, f"{aside}Gains overlap and do not add up. {more}", about)


def evidence_text(evidence: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures of a finding, by their table."""
    return "; ".join(
        f"{table}: {', '.join(f'{name} {_value(value)}' for name, value in figures.items())}"
        for table, figures in evidence.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} x{count}" for name, count in value.items())
    return significant(value) if isinstance(value, float) else str(value)

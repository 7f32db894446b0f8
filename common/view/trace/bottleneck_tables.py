"""Bottlenecks: text has the first findings with a remedy for each kind, the report has all with their evidence."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from common.messages.names import printable
from common.table_rows import BottlenecksRow
from common.view.marks import Marks
from common.view.tables import Table, TableColumn, rows_left_out
from common.view.text import MISSING, WIDTH, duration, percent, significant

MOST_IN_TEXT, MOST_NEAR_MISSES, MOST_IN_REPORT = 8, 3, 40
SCALE = "Gains are of one inference, and overlap. An interval from 0 is that of a rule whose remedy was not measured."
ON_DISTURBED_HOST = "No gain is shown, because the times decide nothing"


def bottleneck_report(
    rows: Sequence[BottlenecksRow],
    median_us: float | None = None,
    labels: Mapping[str, str] | None = None,
    file: str = "bottlenecks.csv",
    trial: str = "",
) -> str:
    """Return the findings that gain most with the remedy of each kind among them, and near misses.

    Args:
        median_us: median of the unprofiled runs; None for the profile of an NPU.
        file: that holds all findings.
        trial: a command that mends one of them; often there is none.
    """
    found, near = ([row for row in rows if row["is_near_miss"] == is_near] for is_near in (False, True))
    first, columns = found[:MOST_IN_TEXT], _columns(median_us, labels or {})
    lines = [columns.text(first) if found else "No bottleneck found by the rules."]
    if len(found) > len(first):
        lines.append(f"{len(found) - len(first)} more in {file}, with evidence, hazard and source")
    if near:
        shown = near[:MOST_NEAR_MISSES]
        lines += ["", "Near misses: a figure fails its rule by little.", columns.text(shown)]
    if doubts := [*dict.fromkeys(doubt for row in rows for doubt in row["doubts"])]:
        lines.append(textwrap.fill(printable(f"{ON_DISTURBED_HOST}: {'; '.join(doubts)}"), WIDTH))
    elif rows:
        lines.append(textwrap.fill(SCALE, WIDTH))
    to_try = ["", "To mend and measure a finding:", f"    {trial}"] if trial else []
    return "\n".join([*lines, *([""] if first else []), *_remedies(first), *to_try])


def _columns(median_us: float | None, labels: Mapping[str, str]) -> Table[BottlenecksRow]:
    def of_median(row: BottlenecksRow) -> str:
        gain_us = _told(row, row["gain_us"])
        return percent(gain_us / median_us if median_us and gain_us is not None else None)

    return Table(subject_column("bottleneck", labels), FINDING, GAIN, INTERVAL, TableColumn("of median", of_median))


def _told(row: BottlenecksRow, gain_us: float | None) -> float | None:
    """Return a gain; None on a disturbed host."""
    return None if row["doubts"] else gain_us


def subject_column(header: str, labels: Mapping[str, str]) -> TableColumn[BottlenecksRow]:
    """Return the column with what a finding is about: the label of its node, or of the first of its nodes."""

    def subject(row: BottlenecksRow) -> str:
        name, nodes = row["finding_subject"], row["executed_nodes"]
        if name in labels or not nodes or nodes[0] not in labels:
            return labels.get(name, name)
        return f"{len(nodes)} nodes from {labels[nodes[0]]}"

    return TableColumn(header, subject)


def _spoken(finding: str) -> str:
    return finding.replace("_", " ")


def _interval(row: BottlenecksRow) -> str:
    low_us, high_us = _told(row, row["gain_low_us"]), row["gain_high_us"]
    return MISSING if low_us is None else f"{duration(low_us, 2)} to {duration(high_us, 2)}"


FINDING: TableColumn[BottlenecksRow] = TableColumn("finding", lambda row: _spoken(row["finding"]), is_left=True)
GAIN: TableColumn[BottlenecksRow] = TableColumn("gain", lambda row: duration(_told(row, row["gain_us"])))
INTERVAL: TableColumn[BottlenecksRow] = TableColumn("interval", _interval)


def _remedies(rows: Sequence[BottlenecksRow]) -> list[str]:
    """Return what to do about each kind of finding, once."""
    by_finding = {row["finding"]: row["remedy"] for row in rows}
    return [
        textwrap.fill(printable(f"{_spoken(finding)}: {remedy}"), WIDTH, subsequent_indent="  ")
        for finding, remedy in by_finding.items()
    ]


def bottleneck_table(bottlenecks: Sequence[BottlenecksRow], labels: Mapping[str, str], marks: Marks) -> str:
    """Return a row for each finding, those that gain most first, and for each near miss."""
    columns: Table[BottlenecksRow] = Table(
        subject_column("where", labels),
        FINDING,
        TableColumn("near miss", lambda row: "yes" if row["is_near_miss"] else ""),
        GAIN.called("gains"),
        INTERVAL,
        TableColumn("of the span at most", lambda row: duration(_told(row, row["span_gain_us"]))),
        TableColumn("evidence", lambda row: evidence_text(row["evidence"])),
        TableColumn("remedy", lambda row: row["remedy"]),
        TableColumn("hazard", lambda row: row["hazard"]),
    )
    shown = bottlenecks[:MOST_IN_REPORT]
    doubts = [*dict.fromkeys(doubt for row in shown for doubt in row["doubts"])]
    aside = f"{ON_DISTURBED_HOST}: {'; '.join(doubts)}." if doubts else SCALE
    more = rows_left_out(shown, bottlenecks, "bottlenecks.csv")
    about = [marks.of(row["executed_nodes"]) for row in shown]
    return columns.html(shown, f"{aside} {more}", about)


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

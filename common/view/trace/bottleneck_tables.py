"""Bottlenecks: the first findings with a remedy for each kind, all with their evidence, and what mends gained."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from common.messages.names import printable
from common.table_rows import BottlenecksRow, MendTrialsRow
from common.view.marks import Marks
from common.view.tables import Table, TableColumn, rows_left_out
from common.view.text import MISSING, WIDTH, duration, percent, significant, span

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

    ``median_us`` is of the unprofiled runs; None for the profile of an NPU. ``file`` holds all findings. ``trial`` is a
    command that mends one of them; often there is none.
    """
    found, near = ([row for row in rows if row["is_near_miss"] == is_near] for is_near in (False, True))
    first = found[:MOST_IN_TEXT]

    def of_median(row: BottlenecksRow) -> str:
        gain_us = _told(row, row["gain_us"])
        return percent(gain_us / median_us if median_us and gain_us is not None else None)

    subject, share = subject_column("bottleneck", labels or {}), TableColumn("of median", of_median)
    columns = Table(subject, FINDING, GAIN, INTERVAL, share)
    lines = [columns.text(first) if found else "No bottleneck found by the rules."]
    if len(found) > len(first):
        lines.append(f"{len(found) - len(first)} more in {file}, with evidence, hazard and source")
    if near:
        shown = near[:MOST_NEAR_MISSES]
        lines += ["", "Near misses: a figure fails its rule by little.", columns.text(shown)]
    if doubts := _doubts(rows):
        lines.append(textwrap.fill(printable(f"{ON_DISTURBED_HOST}: {doubts}"), WIDTH))
    elif rows:
        lines.append(textwrap.fill(SCALE, WIDTH))
    to_try = ["", "To mend and measure a finding:", f"    {trial}"] if trial else []
    by_finding = {row["finding"]: f"{_spoken(row['finding'])}: {row['remedy']}" for row in first}
    remedies = [textwrap.fill(printable(text), WIDTH, subsequent_indent="  ") for text in by_finding.values()]
    return "\n".join([*lines, *([""] if first else []), *remedies, *to_try])


def _told(row: BottlenecksRow | MendTrialsRow, gain_us: float | None) -> float | None:
    """Return a gain; None on a disturbed host."""
    return None if row["doubts"] else gain_us


def _doubts(rows: Sequence[BottlenecksRow] | Sequence[MendTrialsRow]) -> str:
    return "; ".join(dict.fromkeys(doubt for row in rows for doubt in row["doubts"]))


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
    return span(_told(row, row["gain_low_us"]), row["gain_high_us"], partial(duration, digits=2))


FINDING: TableColumn[BottlenecksRow] = TableColumn("finding", lambda row: _spoken(row["finding"]), is_left=True)
GAIN: TableColumn[BottlenecksRow] = TableColumn("gain", lambda row: duration(_told(row, row["gain_us"])))
INTERVAL: TableColumn[BottlenecksRow] = TableColumn("interval", _interval)


def bottleneck_table(bottlenecks: Sequence[BottlenecksRow], labels: Mapping[str, str], marks: Marks) -> str:
    """Return a row for each finding, those that gain most first, and for each near miss."""
    columns: Table[BottlenecksRow] = Table(
        subject_column("where", labels),
        FINDING,
        TableColumn("near miss", lambda row: "yes" if row["is_near_miss"] else ""),
        GAIN.called("gains"),
        INTERVAL,
        TableColumn("of the span at most", lambda row: duration(_told(row, row["span_gain_us"]))),
        TableColumn("evidence", lambda row: _evidence(row["evidence"])),
        TableColumn("remedy", lambda row: row["remedy"]),
        TableColumn("hazard", lambda row: row["hazard"]),
    )
    shown = bottlenecks[:MOST_IN_REPORT]
    aside = f"{ON_DISTURBED_HOST}: {doubts}." if (doubts := _doubts(shown)) else SCALE
    more = rows_left_out(shown, bottlenecks, "bottlenecks.csv")
    about = [marks.of(row["executed_nodes"]) for row in shown]
    return columns.html(shown, f"{aside} {more}", about)


def _evidence(evidence: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures of a finding, by their table."""
    return "; ".join(
        f"{table}: {', '.join(f'{name} {_value(value)}' for name, value in figures.items())}"
        for table, figures in evidence.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} x{count}" for name, count in value.items())
    return significant(value) if isinstance(value, float) else str(value)


def _signed(value_us: float | None) -> str:
    """Return a gain; one below 0 with a minus."""
    return MISSING if value_us is None else f"{'-' if value_us < 0 else ''}{duration(abs(value_us), 2)}"


TRIALS: Table[MendTrialsRow] = Table(
    TableColumn("finding", lambda row: _spoken(row["finding"]), is_left=True),
    TableColumn("predicted", lambda row: _signed(_told(row, row["gain_us"]))),
    TableColumn("interval", lambda row: span(_told(row, row["gain_low_us"]), row["gain_high_us"], _signed)),
    TableColumn("measured", lambda row: _signed(row["measured_gain_us"])),
    TableColumn("interval", lambda row: span(row["measured_gain_low_us"], row["measured_gain_high_us"], _signed)),
    TableColumn("mending it", lambda row: row["mend_outcome"], is_left=True),
)


def mend_report(rows: Sequence[MendTrialsRow]) -> str:
    """Return the trials, what each rewrite did, and why some did nothing."""
    if not rows:
        return "No finding has a rewrite that a program can make."
    lines = [TRIALS.text(rows)]
    if doubts := _doubts(rows):
        text = f"No predicted gain is shown, because the times of the findings decide nothing: {doubts}"
        lines.append(textwrap.fill(printable(text), WIDTH))
    for row in rows:
        done = ", ".join(map(_spoken, row["mends"]))
        if said := "; ".join(filter(None, (done, row["mend_problem"]))):
            text = f"{_spoken(row['finding'])}: {said}"
            lines.append(textwrap.fill(printable(text), WIDTH, subsequent_indent="  "))
    return "\n".join(lines)

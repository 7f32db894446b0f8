"""Bottlenecks as text: the first findings with what they gain at most, and what to do about each kind."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from common.names import printable
from common.view.text import MISSING, WIDTH, duration, percent, table

MOST_ROWS = 8
MOST_OF_A_KIND = 3
Row = Mapping[Any, Any]


def bottleneck_report(
    rows: Sequence[Row],
    median_us: float | None = None,
    labels: Mapping[str, str] | None = None,
    doubts: Sequence[str] = (),
    file: str = "bottlenecks.csv",
) -> str:
    """Return the findings that gain most, and the remedy of each kind among them.

    Args:
        rows: rows of bottlenecks.
        median_us: median of the unprofiled runs; None for the profile of an NPU.
        labels: of executed nodes.
        doubts: why the times of the host decide nothing.
        file: that holds all findings.
    """
    if not rows:
        return "No bottleneck found by the rules."
    first = _first(rows)
    cells = [
        (
            subject(row, labels or {}),
            spoken(row["finding"]),
            duration(row["gain_us"]),
            interval(row),
            percent(row["gain_us"] / median_us if median_us and row["gain_us"] is not None else None),
        )
        for row in first
    ]
    lines = [table(("bottleneck", "finding", "gain", "interval", "of median"), cells, left=(0, 1))]
    if len(rows) > len(first):
        lines.append(f"{len(rows) - len(first)} more in {file}, with evidence, hazard and source")
    lines.append("A gain is the most that mending can take off one inference; gains overlap.")
    if doubts:
        lines.append(textwrap.fill(printable(f"Rely on no gain yet: {'; '.join(doubts)}"), WIDTH))
    return "\n".join([*lines, "", *_remedies(first)])


def _first(rows: Sequence[Row]) -> list[Row]:
    """Return the findings that gain most, few of each kind."""
    shown: list[Row] = []
    for row in rows:
        alike = sum(row["finding"] == other["finding"] for other in shown)
        if alike < MOST_OF_A_KIND and len(shown) < MOST_ROWS:
            shown.append(row)
    return shown


def subject(row: Row, labels: Mapping[str, str]) -> str:
    """Return what a finding is about, with the label of its node or of the first of its nodes."""
    name, nodes = row["finding_subject"], row["executed_nodes"]
    if name in labels or not nodes or nodes[0] not in labels:
        return labels.get(name, name)
    return f"{len(nodes)} nodes from {labels[nodes[0]]}"


def spoken(finding: str) -> str:
    """Return the name of a rule as words."""
    return finding.replace("_", " ")


def interval(row: Row) -> str:
    """Return the interval of a gain."""
    if pd.isna(row["gain_low_us"]):
        return MISSING
    return f"{duration(row['gain_low_us'], 2)} to {duration(row['gain_high_us'], 2)}"


def _remedies(rows: Sequence[Row]) -> list[str]:
    """Return what to do about each kind of finding, once."""
    by_finding = {row["finding"]: row["remedy"] for row in rows}
    return [
        textwrap.fill(printable(f"{spoken(finding)}: {remedy}"), WIDTH, subsequent_indent="  ")
        for finding, remedy in by_finding.items()
    ]

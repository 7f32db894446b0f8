"""A comparison as a page: what differs between the measurements first, then every figure and every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from common.names import printable
from common.view.comparison.comparison_text import (
    change_text,
    changed_nodes,
    figure_text,
    interval_text,
    node_count_line,
    node_text,
    value_text,
    verdict_line,
    verdict_text,
    whole,
)
from common.view.html import bullet_list, html_table, page, section
from common.view.text import percent

Row = Mapping[str, Any]
HEADER = ("before", "after", "change", "interval", "noise floor", "of latency", "verdict", "reason")


def comparison_page(
    parts: Sequence[tuple[Sequence[Row], Sequence[str]]], labels: Mapping[str, str], baseline: str
) -> str:
    """Return the page.

    Args:
        parts: rows of comparison of each folder, with doubts and what differs besides the figures.
        labels: of executed nodes of the baseline.
        baseline: its name.
    """
    body = [f"<h1>Compared with {escape(printable(baseline))}</h1>"]
    for number, (rows, conditions) in enumerate(parts):
        folder = rows[0]["compared_folder"] if rows else ""
        body.append(f"<p><strong>{escape(printable(folder))}: {escape(printable(verdict_line(rows)))}</strong></p>")
        body.append(section(f"conditions-{number}", "Read this first", bullet_list(map(printable, conditions))))
        figures = html_table(("figure", *HEADER), [(figure_text(row), *_cells(row)) for row in whole(rows)])
        body.append(section(f"figures-{number}", "Figures of the whole", figures))
        body.append(section(f"changed-{number}", "Nodes that changed", _nodes(changed_nodes(rows), labels)))
        nodes = [row for row in rows if row["compared_kind"] == "node"]
        body.append(section(f"nodes-{number}", "All nodes", _nodes(nodes, labels, node_count_line(rows))))
    return page("Comparison", body)


def difference_table(rows: pd.DataFrame) -> str:
    """Return the figures of the whole and the nodes that changed, as the report shows them."""
    listed: list[Row] = rows.astype(object).where(rows.notna(), None).to_dict("records")  # type: ignore[assignment]
    shown = [*whole(listed), *changed_nodes(listed)]
    cells = [(row["compared_folder"], figure_text(row), *_cells(row)) for row in shown]
    return html_table(("folder", "figure", *HEADER), cells, "every node: comparison.csv and comparison.html")


def _nodes(rows: Sequence[Row], labels: Mapping[str, str], aside: str = "") -> str:
    return html_table(("node", *HEADER), [(printable(node_text(row, labels)), *_cells(row)) for row in rows], aside)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        value_text(row, "baseline_value"),
        value_text(row, "candidate_value"),
        change_text(row),
        interval_text(row),
        percent(row["noise_floor_share"]),
        percent(row["latency_change_share"]),
        verdict_text(row),
        printable(row["verdict_reason"]),
    )

"""A comparison as a page: what differs between the measurements first, then every figure and every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from common.names import printable
from common.view.comparison.comparison_text import (
    AFTER,
    BEFORE,
    CHANGE,
    FIGURE,
    INTERVAL,
    NOISE_FLOOR,
    OF_LATENCY,
    REASON,
    VERDICT_WITH_RUNS,
    changed_nodes,
    node_column,
    node_count_line,
    verdict_line,
    whole,
)
from common.view.html import bullet_list, page, section
from common.view.tables import Table, TableColumn

if TYPE_CHECKING:
    from common.table_rows import ComparisonRow

FOLDER: TableColumn[ComparisonRow] = TableColumn("folder", lambda row: row["compared_folder"])
DETAILS = (BEFORE, AFTER, CHANGE, INTERVAL, NOISE_FLOOR, OF_LATENCY, VERDICT_WITH_RUNS, REASON)
FIGURES: Table[ComparisonRow] = Table(FIGURE, *DETAILS)
DIFFERENCES: Table[ComparisonRow] = Table(FOLDER, FIGURE, *DETAILS)


def comparison_page(
    parts: Sequence[tuple[Sequence[ComparisonRow], Sequence[str]]], labels: Mapping[str, str], baseline: str
) -> str:
    """Return the page.

    Args:
        parts: rows of comparison of each folder, with doubts and what differs besides the figures.
        labels: of executed nodes of the baseline.
        baseline: its name.
    """
    nodes: Table[ComparisonRow] = Table(node_column("node", labels), *DETAILS)
    body = [f"<h1>Compared with {escape(printable(baseline))}</h1>"]
    for number, (rows, conditions) in enumerate(parts):
        folder = rows[0]["compared_folder"] if rows else ""
        body.append(f"<p><strong>{escape(printable(folder))}: {escape(printable(verdict_line(rows)))}</strong></p>")
        body.append(section(f"conditions-{number}", "Read this first", bullet_list(map(printable, conditions))))
        body.append(section(f"figures-{number}", "Figures of the whole", FIGURES.html(whole(rows))))
        body.append(section(f"changed-{number}", "Nodes that changed", nodes.html(changed_nodes(rows))))
        every = [row for row in rows if row["compared_kind"] == "node"]
        body.append(section(f"nodes-{number}", "All nodes", nodes.html(every, node_count_line(rows))))
    return page("Comparison", body)


def difference_table(rows: Sequence[ComparisonRow]) -> str:
    """Return the figures of the whole and the nodes that changed, as the report shows them."""
    return DIFFERENCES.html([*whole(rows), *changed_nodes(rows)], "every node: comparison.csv and comparison.html")

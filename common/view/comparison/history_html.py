"""A history as a page, and as the report shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import pandas as pd

from common.names import printable
from common.view.comparison.comparison_text import whole
from common.view.comparison.history_text import (
    CHANGE_HEADER,
    HEADER,
    Row,
    causes,
    change_cells,
    changed_levels,
    changes_line,
    commit_text,
    history_line,
    moved_nodes,
    trend_cells,
)
from common.view.html import bullet_list, html_table, page, section

RUN_HEADER = ("run", "recorded", "commit", "doubt")


def history_page(values: Sequence[Row], trends: Sequence[Row], name: str) -> str:
    """Return the page; the arguments are those of :func:`common.view.comparison.history_text.history_report`."""
    nodes = [row for row in trends if row["compared_kind"] == "node"]
    body = [
        f"<h1>History in {escape(printable(name))}</h1>",
        f"<p><strong>{escape(printable(history_line(values, trends)))}</strong></p>",
        section("figures", "Figures of the whole", _trends(whole(trends))),
        section("changes", "Changed levels", _changes(values)),
        section("moved", "Nodes that left their level", _trends(moved_nodes(trends))),
        section("nodes", "All nodes", _trends(nodes)),
        section("runs", "Runs", _runs(values)),
    ]
    return page("History", body)


def history_section(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the figures of the whole and the changes, as the report shows them; nothing without a history."""
    if "run_history" not in tables or "history_trends" not in tables:
        return ""
    values, trends = plain_rows(tables["run_history"]), plain_rows(tables["history_trends"])
    moved = [*whole(trends), *moved_nodes(trends)]
    line = f"<p><strong>{escape(printable(history_line(values, trends)))}</strong></p>"
    return "\n".join([line, _trends(moved), _changes(values)])


def plain_rows(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table, with None for what is unknown."""
    return table.astype(object).where(table.notna(), None).to_dict("records")  # type: ignore[return-value]


def _trends(rows: Sequence[Row]) -> str:
    cells = [(*map(printable, trend_cells(row)), printable(row["verdict_reason"] or "")) for row in rows]
    return html_table((*HEADER, "reason"), cells)


def _changes(values: Sequence[Row]) -> str:
    changed = changed_levels(values)
    cells = [tuple(map(printable, change_cells(row))) for row in changed]
    also = bullet_list(map(printable, causes(changed)))
    return html_table(CHANGE_HEADER, cells, changes_line(values)) + also if cells else f"<p>{changes_line(values)}</p>"


def _runs(values: Sequence[Row]) -> str:
    runs = {row["history_run"]: row for row in sorted(values, key=lambda row: bool(row["run_doubt"]))}
    cells = [(str(run), row["recorded_at"], commit_text(row), row["run_doubt"] or "") for run, row in runs.items()]
    return html_table(RUN_HEADER, [tuple(map(printable, one)) for one in sorted(cells, key=lambda one: int(one[0]))])

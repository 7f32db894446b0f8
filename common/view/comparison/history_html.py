"""A history as a page, and as the report shows it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from common.names import printable
from common.view.comparison.comparison_text import REASON, changed_nodes, whole
from common.view.comparison.history_text import (
    CHANGES,
    TRENDS,
    causes,
    changed_levels,
    changes_line,
    commit_text,
    history_line,
)
from common.view.html import bullet_list, page, section
from common.view.tables import Table, TableColumn

if TYPE_CHECKING:
    from common.table_rows import HistoryTrendsRow, RunHistoryRow, Tables

TRENDS_WITH_REASONS: Table[HistoryTrendsRow] = Table(*TRENDS.columns, REASON)
RUNS: Table[RunHistoryRow] = Table(
    TableColumn("run", lambda row: str(row["history_run"])),
    TableColumn("recorded", lambda row: row["recorded_at"]),
    TableColumn("commit", commit_text),
    TableColumn("doubt", lambda row: row["run_doubt"]),
)


def history_page(values: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow], name: str) -> str:
    """Return the page; the arguments are those of :func:`common.view.comparison.history_text.history_report`."""
    nodes = [row for row in trends if row["compared_kind"] == "node"]
    body = [
        f"<h1>History in {escape(printable(name))}</h1>",
        f"<p><strong>{escape(printable(history_line(values, trends)))}</strong></p>",
        section("figures", "Figures of the whole", TRENDS_WITH_REASONS.html(whole(trends))),
        section("changes", "Changed levels", _changes(values)),
        section("moved", "Nodes that left their level", TRENDS_WITH_REASONS.html(changed_nodes(trends))),
        section("nodes", "All nodes", TRENDS_WITH_REASONS.html(nodes)),
        section("runs", "Runs", _runs(values)),
    ]
    return page("History", body)


def history_section(tables: Tables) -> str:
    """Return the figures of the whole and the changes, as the report shows them; nothing without a history."""
    values, trends = tables.get("run_history"), tables.get("history_trends")
    if values is None or trends is None:
        return ""
    moved = [*whole(trends), *changed_nodes(trends)]
    line = f"<p><strong>{escape(printable(history_line(values, trends)))}</strong></p>"
    return "\n".join([line, TRENDS_WITH_REASONS.html(moved), _changes(values)])


def _changes(values: Sequence[RunHistoryRow]) -> str:
    line, changed = changes_line(values), changed_levels(values)
    if not changed:
        return f"<p>{line}</p>"
    return CHANGES.html(changed, line) + bullet_list(map(printable, causes(changed)))


def _runs(values: Sequence[RunHistoryRow]) -> str:
    by_run = {row["history_run"]: row for row in sorted(values, key=lambda row: bool(row["run_doubt"]))}
    return RUNS.html([by_run[run] for run in sorted(by_run)])

"""A history as text, Markdown and a page: how the last record changed each figure, and commits that changed levels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from common.messages.names import listed, printable, shorten
from common.table_rows import HistoryTrendsRow, RunHistoryRow, Tables
from common.view.comparison.comparison_tables import (
    CHANGE,
    FIGURE,
    INTERVAL,
    MOST_NODES,
    REASON,
    VERDICT,
    change_text,
    changed_nodes,
    figure_text,
    value_text,
    whole,
)
from common.view.html import bullet_list, page, section
from common.view.tables import Table, TableColumn, escaped
from common.view.text import percent

SHORT_COMMIT = 10  # characters of its hash
MOST_CHARACTERS = 16  # of a name
FULL_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
UNKNOWN = "unknown"


def history_report(values: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow], name: str) -> str:
    lines = [printable(f"{history_line(values, trends)} (history: {name})"), *map(printable, reasons(trends)), ""]
    lines.append(TRENDS.text(whole(trends)))
    if moved := changed_nodes(trends):
        lines += ["", MOVED.text(moved[:MOST_NODES])]
    if changed := changed_levels(values)[:MOST_NODES]:
        lines += ["", CHANGES.text(changed)]
    return "\n".join([*lines, "", changes_line(values), *map(printable, causes(changed))])


def history_markdown(values: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow], name: str) -> str:
    """Return a history as Markdown; the arguments are those of :func:`history_report`."""
    lines = [f"## History in {escaped(name)}", "", f"**{escaped(history_line(values, trends))}**", ""]
    lines += [*(f"- {escaped(text)}" for text in reasons(trends)), ""] if reasons(trends) else []
    lines.append(TRENDS.markdown(whole(trends)))
    if moved := changed_nodes(trends):
        lines += ["", MOVED.markdown(moved[: 2 * MOST_NODES])]
    if changed := changed_levels(values)[: 2 * MOST_NODES]:
        lines += ["", CHANGES.markdown(changed)]
    lines += ["", f"{changes_line(values)}.", "", *(f"- {escaped(text)}" for text in causes(changed))]
    return "\n".join(lines).rstrip() + "\n"


def history_line(values: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow]) -> str:
    """Return what the last record did to the latency."""
    last = max(values, key=lambda row: row["history_run"])
    record = f"record {last['history_run']} of commit {commit_text(last)}"
    latency = next((row for row in trends if row["compared_kind"] == "end_to_end"), None)
    if latency is None:
        return f"{record} has no latency"
    return f"latency {latency['comparison_verdict']}: {change_text(latency)} in {record}"


def commit_text(row: RunHistoryRow) -> str:
    """Return the commit of a record in short; a plus says that files differed from it."""
    return commit_name(row["commit_name"], is_dirty=bool(row["is_dirty_tree"]))


def commit_name(commit: str, *, is_dirty: bool) -> str:
    """Return a commit in short, with a plus where tracked files differed."""
    return f"{_short(commit)}{'+' if is_dirty else ''}"


def _short(commit: str) -> str:
    """Return a hash of git by its begin, as git does; of a long name that was given both ends stay."""
    return commit[:SHORT_COMMIT] if FULL_HASH.fullmatch(commit) else shorten(commit, MOST_CHARACTERS)


def reasons(trends: Sequence[HistoryTrendsRow]) -> list[str]:
    """Return why figures of the whole are undecided, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for row in whole(trends):
        if row["comparison_verdict"] == "undecided" and row["verdict_reason"]:
            by_reason.setdefault(row["verdict_reason"], []).append(figure_text(row))
    return [f"undecided: {listed(figures, 3)}: {reason}" for reason, figures in by_reason.items()]


def changed_levels(values: Sequence[RunHistoryRow]) -> list[RunHistoryRow]:
    """Return the first record of each new level: of the whole first, then of nodes, the newest first."""
    changed = [row for row in values if row["is_change_point"]]
    return sorted(changed, key=lambda row: (row["compared_kind"] == "node", -row["history_run"]))


def changes_line(values: Sequence[RunHistoryRow]) -> str:
    """Return how many levels changed, over how many records."""
    records, count = len({row["history_run"] for row in values}), len(changed_levels(values))
    doubted = len({row["history_run"] for row in values if row["run_doubt"]})
    excluded = f"; {doubted} record{'s' * (doubted > 1)} of a disturbed host count{'s' * (doubted == 1)} for no time"
    aside = excluded if doubted else ""
    levels = f"{count or 'no'} changed level{'' if count == 1 else 's'}"
    return f"{levels} in {records} records{aside}; all values in run_history.csv"


def causes(changed: Sequence[RunHistoryRow]) -> list[str]:
    """Return what else changed with the levels, each first record once."""
    of_record = {row["history_run"]: row["changed_conditions"] for row in changed if row["changed_conditions"]}
    return [f"differs since record {record}: {text}" for record, texts in of_record.items() for text in texts]


def commits_text(row: RunHistoryRow) -> str:
    """Return the range of commits in which a level changed, as git takes it."""
    before, after = _short(row["commit_before"] or UNKNOWN), commit_text(row)
    return after if before == _short(row["commit_name"]) else f"{before}..{after}"


def _level_before(row: RunHistoryRow) -> str:
    level, share = row["level_value"], row["level_change_share"]
    return value_text(row, None if share is None or level is None else level / (1 + share))


def _level_change(row: RunHistoryRow) -> str:
    share = row["level_change_share"]
    return percent(share) if share is None or share < 0 else f"+{percent(share)}"


TRENDS: Table[HistoryTrendsRow] = Table(
    FIGURE,
    TableColumn("level before", lambda row: value_text(row, row["level_value"])),
    TableColumn("last record", lambda row: value_text(row, row["figure_value"])),
    CHANGE,
    INTERVAL,
    TableColumn("records", lambda row: str(row["level_run_count"])),
    VERDICT,
)
MOVED: Table[HistoryTrendsRow] = Table(FIGURE.called("nodes that moved"), *TRENDS.columns[1:])
CHANGES: Table[RunHistoryRow] = Table(
    FIGURE.called("changed level"),
    TableColumn("before", _level_before),
    TableColumn("after", lambda row: value_text(row, row["level_value"])),
    TableColumn("change", _level_change),
    TableColumn("first record", lambda row: str(row["history_run"])),
    TableColumn("commits", commits_text, is_left=True),
)
TRENDS_WITH_REASONS: Table[HistoryTrendsRow] = Table(*TRENDS.columns, REASON)
RECORDS: Table[RunHistoryRow] = Table(
    TableColumn("record", lambda row: str(row["history_run"])),
    TableColumn("recorded", lambda row: row["recorded_at"]),
    TableColumn("commit", commit_text),
    TableColumn("doubt", lambda row: row["run_doubt"]),
)


def history_page(values: Sequence[RunHistoryRow], trends: Sequence[HistoryTrendsRow], name: str) -> str:
    """Return the page; the arguments are those of :func:`common.view.comparison.history_tables.history_report`."""
    nodes = [row for row in trends if row["compared_kind"] == "node"]
    by_number = {row["history_run"]: row for row in sorted(values, key=lambda row: bool(row["run_doubt"]))}
    body = [
        f"<h1>History in {escape(printable(name))}</h1>",
        f"<p><strong>{escape(printable(history_line(values, trends)))}</strong></p>",
        section("figures", "Figures of the whole", TRENDS_WITH_REASONS.html(whole(trends))),
        section("changes", "Changed levels", _changes(values)),
        section("moved", "Nodes that left their level", TRENDS_WITH_REASONS.html(changed_nodes(trends))),
        section("nodes", "All nodes", TRENDS_WITH_REASONS.html(nodes)),
        section("records", "Records", RECORDS.html(by_number[number] for number in sorted(by_number))),
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

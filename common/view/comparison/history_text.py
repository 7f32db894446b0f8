"""A history as text: what the last run did to each figure, and which commits changed a level."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from common.names import listed, printable, shorten
from common.view.comparison.comparison_text import (
    LOUD,
    MOST_NODES,
    change_text,
    escaped,
    figure_text,
    interval_text,
    markdown_table,
    value_text,
    whole,
)
from common.view.text import percent, table

SHORT_COMMIT = 10  # characters of its hash
MOST_CHARACTERS = 16  # of a name
FULL_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
UNKNOWN = "unknown"
HEADER = ("figure", "level before", "last run", "change", "interval", "runs", "verdict")
CHANGE_HEADER = ("changed level", "before", "after", "change", "first run", "commits")
Row = Mapping[str, Any]


def history_report(values: Sequence[Row], trends: Sequence[Row], name: str) -> str:
    """Return a history for the terminal.

    Args:
        values: rows of run_history.
        trends: rows of history_trends.
        name: of the file.
    """
    lines = [printable(f"{history_line(values, trends)} (history: {name})"), *map(printable, reasons(trends)), ""]
    lines.append(table(HEADER, map(trend_cells, whole(trends)), left=(0, 6)))
    if moved := moved_nodes(trends):
        lines += ["", table(("nodes that moved", *HEADER[1:]), map(trend_cells, moved[:MOST_NODES]), left=(0, 6))]
    changed = changed_levels(values)
    if changed:
        lines += ["", table(CHANGE_HEADER, map(change_cells, changed[:MOST_NODES]), left=(0, 5))]
    return "\n".join([*lines, "", changes_line(values), *map(printable, causes(changed[:MOST_NODES]))])


def history_markdown(values: Sequence[Row], trends: Sequence[Row], name: str) -> str:
    """Return a history as Markdown; the arguments are those of :func:`history_report`."""
    lines = [f"## History in {escaped(name)}", "", f"**{escaped(history_line(values, trends))}**", ""]
    lines += [*(f"- {escaped(text)}" for text in reasons(trends)), ""] if reasons(trends) else []
    lines += markdown_table(HEADER, map(trend_cells, whole(trends)))
    if moved := moved_nodes(trends):
        lines += ["", *markdown_table(("nodes that moved", *HEADER[1:]), map(trend_cells, moved[: 2 * MOST_NODES]))]
    changed = changed_levels(values)
    if changed:
        lines += ["", *markdown_table(CHANGE_HEADER, map(change_cells, changed[: 2 * MOST_NODES]))]
    lines += ["", f"{changes_line(values)}.", "", *(f"- {escaped(text)}" for text in causes(changed[: 2 * MOST_NODES]))]
    return "\n".join(lines).rstrip() + "\n"


def history_line(values: Sequence[Row], trends: Sequence[Row]) -> str:
    """Return what the last run did to the latency."""
    last = max(values, key=lambda row: row["history_run"])
    run = f"run {last['history_run']} of commit {commit_text(last)}"
    latency = next((row for row in trends if row["compared_kind"] == "end_to_end"), None)
    if latency is None:
        return f"{run} has no latency"
    return f"latency {latency['comparison_verdict']}: {change_text(latency)} in {run}"


def commit_text(row: Row) -> str:
    """Return the commit of a run in short; a plus says that files differed from it."""
    return commit_name(row["commit_name"], is_dirty=bool(row["is_dirty_tree"]))


def commit_name(commit: str, *, is_dirty: bool) -> str:
    """Return a commit in short, with a plus where tracked files differed."""
    return f"{_short(commit)}{'+' if is_dirty else ''}"


def _short(commit: str) -> str:
    """Return a hash of git by its begin, as git does; of a long name that was given both ends stay."""
    return commit[:SHORT_COMMIT] if FULL_HASH.fullmatch(commit) else shorten(commit, MOST_CHARACTERS)


def reasons(trends: Sequence[Row]) -> list[str]:
    """Return why figures of the whole are undecided, each reason once."""
    undecided = [row for row in whole(trends) if row["comparison_verdict"] == "undecided" and row["verdict_reason"]]
    of = {reason: [row for row in undecided if row["verdict_reason"] == reason] for reason in _of(undecided)}
    return [f"undecided: {listed(map(figure_text, rows), 3)}: {reason}" for reason, rows in of.items()]


def _of(rows: Sequence[Row]) -> dict[str, None]:
    return dict.fromkeys(row["verdict_reason"] for row in rows)


def moved_nodes(trends: Sequence[Row]) -> list[Row]:
    """Return the nodes that left their level in the last run, those that move the latency most first."""
    moved = [row for row in trends if row["compared_kind"] == "node" and row["comparison_verdict"] in LOUD]
    return sorted(moved, key=lambda row: -abs(row["latency_change_share"] or 0.0))


def changed_levels(values: Sequence[Row]) -> list[Row]:
    """Return the first run of each new level: of the whole first, then of nodes, the newest first."""
    changed = [row for row in values if row["is_change_point"]]
    return sorted(changed, key=lambda row: (row["compared_kind"] == "node", -row["history_run"]))


def changes_line(values: Sequence[Row]) -> str:
    """Return how many levels changed, over how many runs."""
    runs, count = len({row["history_run"] for row in values}), len(changed_levels(values))
    doubted = len({row["history_run"] for row in values if row["run_doubt"]})
    excluded = f"; {doubted} run{'s' * (doubted > 1)} of a disturbed host count{'s' * (doubted == 1)} for no time"
    aside = excluded if doubted else ""
    return (
        f"{count or 'no'} changed level{'' if count == 1 else 's'} in {runs} runs{aside}; all values in run_history.csv"
    )


def causes(changed: Sequence[Row]) -> list[str]:
    """Return what else changed with the levels, each first run once."""
    of_run = {row["history_run"]: row["changed_conditions"] for row in changed if row["changed_conditions"]}
    return [f"differs since run {run}: {text}" for run, texts in of_run.items() for text in texts]


def trend_cells(row: Row) -> tuple[str, ...]:
    """Return the cells of what the last run did to a figure."""
    values = (value_text(row, "level_value"), value_text(row, "figure_value"))
    runs = str(row["level_run_count"])
    return (figure_text(row), *values, change_text(row), interval_text(row), runs, row["comparison_verdict"])


def change_cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a change of level: how large it is, and the commits that it lies between."""
    share = row["level_change_share"]
    before = None if share is None else row["level_value"] / (1 + share)
    values = (value_text({**row, "before": before}, "before"), value_text(row, "level_value"))
    change = percent(share) if share is None or share < 0 else f"+{percent(share)}"
    return (figure_text(row), *values, change, str(row["history_run"]), commits_text(row))


def commits_text(row: Row) -> str:
    """Return the range of commits in which a level changed, as git takes it."""
    before, after = _short(row["commit_before"] or UNKNOWN), commit_text(row)
    return after if before == _short(row["commit_name"]) else f"{before}..{after}"

"""A comparison as text: what differs between the measurements, the figures of the whole, and the nodes that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from common.names import printable
from common.view.text import MISSING, duration, percent, quantity, significant, table

MOST_NODES = 10
LOUD = ("regressed", "improved")
Row = Mapping[str, Any]


def comparison_report(rows: Sequence[Row], conditions: Sequence[str], labels: Mapping[str, str], baseline: str) -> str:
    """Return the comparison of one folder for the terminal.

    Args:
        rows: rows of comparison.
        conditions: doubts, and what differs besides the figures.
        labels: of executed nodes of the baseline.
        baseline: its name.
    """
    head = f"{verdict_line(rows)} (baseline: {baseline})"
    lines = [printable(head), *map(printable, conditions), ""]
    if figures := whole(rows):
        lines += [table(HEADER, map(_short_cells, figures), left=(0, 5)), ""]
    if changed := changed_nodes(rows):
        cells = [_node_cells(row, labels) for row in changed[:MOST_NODES]]
        header = ("changed nodes", "before", "after", "change", "of latency", "verdict")
        lines += [table(header, cells, left=(0, 5)), ""]
    lines.append(node_count_line(rows))
    return "\n".join(lines)


HEADER = ("figure", "before", "after", "change", "interval", "verdict")
MARKDOWN_HEADER = ("figure", "before", "after", "change", "interval", "noise floor", "verdict")


def verdict_line(rows: Sequence[Row]) -> str:
    """Return what the end-to-end latency did, and the first node that explains it."""
    latency = next((row for row in rows if row["compared_kind"] == "end_to_end"), None)
    changed = changed_nodes(rows)
    named = f"; {len(changed)} of its nodes changed" if changed else ""
    if latency is None:
        return f"no latency to compare{named}"
    return f"latency {latency['comparison_verdict']}: {change_text(latency)}{named}"


def whole(rows: Sequence[Row]) -> list[Row]:
    """Return the figures that are not about a node."""
    return [row for row in rows if row["compared_kind"] != "node"]


def changed_nodes(rows: Sequence[Row]) -> list[Row]:
    """Return nodes that regressed or improved, those that move the latency most first."""
    changed = [row for row in rows if row["compared_kind"] == "node" and row["comparison_verdict"] in LOUD]
    return sorted(changed, key=lambda row: -abs(row["latency_change_share"] or 0.0))


def node_count_line(rows: Sequence[Row]) -> str:
    """Return how many nodes are compared, by verdict, and why some are undecided if there is one reason."""
    nodes = [row for row in rows if row["compared_kind"] == "node"]
    if not nodes:
        return "no nodes were compared: the measurements share too few, or have no times of nodes"
    verdicts, reasons = [row["comparison_verdict"] for row in nodes], undecided_reasons(nodes)
    why = {"undecided": f" ({reasons[0]})"} if len(reasons) == 1 else {}
    counts = ", ".join(f"{verdicts.count(name)} {name}{why.get(name, '')}" for name in dict.fromkeys(verdicts))
    return f"{len(nodes)} groups of nodes: {counts}; all of them in comparison.csv"


def undecided_reasons(rows: Sequence[Row]) -> list[str]:
    """Return why rows are undecided, each reason once."""
    undecided = [row["verdict_reason"] for row in rows if row["comparison_verdict"] == "undecided"]
    return [*filter(None, dict.fromkeys(undecided))]


def change_text(row: Row) -> str:
    """Return the difference as a signed percentage."""
    return MISSING if row["difference_share"] is None else f"{100 * row['difference_share']:+.1f} %"


def interval_text(row: Row) -> str:
    """Return the interval of the difference."""
    if row["difference_low_share"] is None:
        return MISSING
    return f"{100 * row['difference_low_share']:+.1f} to {100 * row['difference_high_share']:+.1f} %"


def value_text(row: Row, name: str) -> str:
    """Return a value in the unit of its figure."""
    value, figure = row[name], row["compared_figure"]
    if figure.endswith("_us"):
        return duration(value)
    for suffix, unit, scale in UNITS:
        if figure.endswith(suffix):
            return quantity(None if value is None else value * scale, unit)
    return MISSING if value is None else f"{significant(value)}{' USD' if figure.endswith('_usd') else ''}"


SPOKEN = {"likely": "", "node_latency_us": "", "used_count": "used"}
UNITS = (
    ("requests_per_s", "/s", 1.0),
    ("flop_per_s", "FLOP/s", 1.0),
    ("op_per_s", "OP/s", 1.0),
    ("bytes_per_s", "B/s", 1.0),
    ("_bytes", "B", 1.0),
    ("_uj", "J", 1e-6),
    ("_j", "J", 1.0),
    ("_w", "W", 1.0),
)


def verdict_text(row: Row) -> str:
    """Return the verdict, and for an undecided one the runs that would decide it."""
    needed = row["runs_needed_count"]
    return f"{row['comparison_verdict']}{f' ({needed:,} runs)' if needed else ''}"


def figure_text(row: Row) -> str:
    """Return the name of a figure, with what it is about; where that says it all, it stands alone."""
    name = SPOKEN.get(row["compared_figure"], row["compared_figure"])
    return f"{row['compared_subject']} {name}".strip()


def _short_cells(row: Row) -> tuple[str, ...]:
    values = (value_text(row, "baseline_value"), value_text(row, "candidate_value"))
    return (figure_text(row), *values, change_text(row), interval_text(row), verdict_text(row))


def _node_cells(row: Row, labels: Mapping[str, str]) -> tuple[str, ...]:
    values = (value_text(row, "baseline_value"), value_text(row, "candidate_value"))
    return (
        node_text(row, labels),
        *values,
        change_text(row),
        percent(row["latency_change_share"]),
        row["comparison_verdict"],
    )


def node_text(row: Row, labels: Mapping[str, str]) -> str:
    """Return the label of a group of nodes, and how many others belong to it."""
    name = labels.get(row["compared_subject"], row["compared_subject"])
    others = max(len(row["baseline_nodes"]), len(row["candidate_nodes"])) - 1
    return f"{name} +{others}" if others > 0 else name


def comparison_markdown(
    rows: Sequence[Row], conditions: Sequence[str], labels: Mapping[str, str], baseline: str
) -> str:
    """Return the comparison of one folder as Markdown; the arguments are those of :func:`comparison_report`."""
    lines = [f"## {rows[0]['compared_folder'] if rows else 'Comparison'} against {escaped(baseline)}", ""]
    if conditions:
        lines += ["**Read this first:**", ""]
        lines += [*(f"- {escaped(text)}" for text in conditions), ""]
    lines += [f"**{escaped(verdict_line(rows))}**", ""]
    if figures := whole(rows):
        lines += [*markdown_table(MARKDOWN_HEADER, map(_long_cells, figures)), ""]
    if changed := changed_nodes(rows):
        header = ("changed nodes", "before", "after", "change", "interval", "of latency", "verdict")
        cells = [(*_node_cells(row, labels)[:4], interval_text(row), *_node_cells(row, labels)[4:]) for row in changed]
        lines += [*markdown_table(header, cells[: 2 * MOST_NODES]), ""]
    lines += [*(f"Undecided: {escaped(reason)}." for reason in undecided_reasons(figures)), node_count_line(rows) + "."]
    return "\n".join(lines) + "\n"


def _long_cells(row: Row) -> tuple[str, ...]:
    *cells, verdict = _short_cells(row)
    return (*cells, percent(row["noise_floor_share"]), verdict)


def markdown_table(header: Sequence[str], rows: Any) -> list[str]:
    """Return the lines of a table in Markdown; numbers stand right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 2) + ["---"], *rows]
    return [f"| {' | '.join(map(escaped, cells))} |" for cells in lines]


def escaped(text: str) -> str:
    """Return a text that stays in its cell, and is no HTML."""
    safe = printable(str(text)).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return safe.replace("`", "\\`").replace("*", "\\*").replace("_", "\\_") if safe.strip("-:") else safe

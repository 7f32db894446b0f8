"""A comparison as text, Markdown and a page: differences beside the figures, the whole, and nodes that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TypedDict, TypeVar

from common.messages.names import printable
from common.table_rows import ComparisonRow
from common.view.html import bullet_list, page, section
from common.view.tables import Table, TableColumn, escaped
from common.view.text import MISSING, duration, percent, quantity, significant

MOST_NODES = 10
LOUD = ("regressed", "improved")
SPOKEN = {  # figures whose names say too little, or too much, without their units
    "likely": "",
    "node_latency_us": "",
    "used_count": "used",
    "p99_9_us": "p99.9",
    "peak_flop_per_s": "compute ceiling",
    "int8_op_per_s": "int8 ceiling",
    "memory_bytes_per_s": "memory ceiling",
    "plan_latency_likely_us": "plan",
    "kernel_power_likely_w": "kernel power",
    "answered_requests_per_s": "answered rate",
    "sustained_requests_per_s": "sustained rate",
    "million_requests_usd": "million requests",
    "instructions_per_cycle": "IPC",
}
UNITS = (
    *(("requests_per_s", "/s", 1.0), ("flop_per_s", "FLOP/s", 1.0), ("op_per_s", "OP/s", 1.0)),
    *(("bytes_per_s", "B/s", 1.0), ("_bytes", "B", 1.0), ("_uj", "J", 1e-6), ("_j", "J", 1.0), ("_w", "W", 1.0)),
)


class FigureRow(TypedDict):
    compared_kind: str
    compared_figure: str
    compared_subject: str


class DifferenceRow(FigureRow):
    comparison_verdict: str
    difference_share: float | None
    difference_low_share: float | None
    difference_high_share: float | None
    noise_floor_share: float | None
    latency_change_share: float | None
    verdict_reason: str


Difference = TypeVar("Difference", bound=DifferenceRow)


def verdict_line(rows: Sequence[ComparisonRow]) -> str:
    """Return what the end-to-end latency did, and the first node that explains it."""
    latency = next((row for row in rows if row["compared_kind"] == "end_to_end"), None)
    changed = changed_nodes(rows)
    named = f"; {len(changed)} of its nodes changed" if changed else ""
    if latency is None:
        return f"no latency to compare{named}"
    return f"latency {latency['comparison_verdict']}: {change_text(latency)}{named}"


def whole(rows: Sequence[Difference]) -> list[Difference]:
    """Return the figures that are not about a node."""
    return [row for row in rows if row["compared_kind"] != "node"]


def changed_nodes(rows: Sequence[Difference]) -> list[Difference]:
    """Return nodes that regressed or improved, those that move the latency most first."""
    changed = [row for row in rows if row["compared_kind"] == "node" and row["comparison_verdict"] in LOUD]
    return sorted(changed, key=lambda row: -abs(row["latency_change_share"] or 0.0))


def node_count_line(rows: Sequence[ComparisonRow]) -> str:
    """Return how many nodes are compared, by verdict, and why some are undecided if there is one reason."""
    nodes = [row for row in rows if row["compared_kind"] == "node"]
    if not nodes:
        return "no nodes were compared"
    verdicts, reasons = [row["comparison_verdict"] for row in nodes], undecided_reasons(nodes)
    why = {"undecided": f" ({reasons[0]})"} if len(reasons) == 1 else {}
    counts = ", ".join(f"{verdicts.count(name)} {name}{why.get(name, '')}" for name in dict.fromkeys(verdicts))
    return f"{len(nodes)} groups of nodes: {counts}; all of them in comparison.csv"


def undecided_reasons(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return why rows are undecided, each reason once."""
    undecided = [row["verdict_reason"] for row in rows if row["comparison_verdict"] == "undecided"]
    return [*filter(None, dict.fromkeys(undecided))]


def change_text(row: DifferenceRow) -> str:
    return MISSING if row["difference_share"] is None else f"{100 * row['difference_share']:+.1f} %"


def interval_text(row: DifferenceRow) -> str:
    low, high = row["difference_low_share"], row["difference_high_share"]
    return MISSING if low is None or high is None else f"{100 * low:+.1f} to {100 * high:+.1f} %"


def value_text(row: FigureRow, value: float | None) -> str:
    """Write a value of the figure of a row."""
    figure = row["compared_figure"]
    if figure.endswith("_us"):
        return duration(value)
    for suffix, unit, scale in UNITS:
        if figure.endswith(suffix):
            return quantity(None if value is None else value * scale, unit)
    return MISSING if value is None else f"{significant(value)}{' USD' if figure.endswith('_usd') else ''}"


def figure_text(row: FigureRow) -> str:
    """Return what a figure is about and its name, without the unit; where the first says it all, it is alone."""
    figure = row["compared_figure"]
    unit = next((suffix for suffix in ("_us", *(suffix for suffix, _, _ in UNITS)) if figure.endswith(suffix)), "")
    name = SPOKEN.get(figure, figure.removesuffix(unit).replace("_", " "))
    return f"{row['compared_subject']} {name}".strip()


def _verdict_text(row: ComparisonRow) -> str:
    """Return the verdict, and for an undecided one the runs that would decide it."""
    needed = row["runs_needed_count"]
    return f"{row['comparison_verdict']}{f' ({needed:,} runs)' if needed else ''}"


def node_column(header: str, labels: Mapping[str, str]) -> TableColumn[ComparisonRow]:
    """Return the column with the label of a group of nodes, and how many others belong to it."""

    def node_text(row: ComparisonRow) -> str:
        name = labels.get(row["compared_subject"], row["compared_subject"])
        others = max(len(row["baseline_nodes"]), len(row["candidate_nodes"])) - 1
        return f"{name} +{others}" if others > 0 else name

    return TableColumn(header, node_text)


FIGURE: TableColumn[FigureRow] = TableColumn("figure", figure_text)
CHANGE: TableColumn[DifferenceRow] = TableColumn("change", change_text)
INTERVAL: TableColumn[DifferenceRow] = TableColumn("interval", interval_text)
NOISE_FLOOR: TableColumn[DifferenceRow] = TableColumn("noise floor", lambda row: percent(row["noise_floor_share"]))
OF_LATENCY: TableColumn[DifferenceRow] = TableColumn("of latency", lambda row: percent(row["latency_change_share"]))
VERDICT: TableColumn[DifferenceRow] = TableColumn("verdict", lambda row: row["comparison_verdict"], is_left=True)
REASON: TableColumn[DifferenceRow] = TableColumn("reason", lambda row: row["verdict_reason"])
BEFORE: TableColumn[ComparisonRow] = TableColumn("before", lambda row: value_text(row, row["baseline_value"]))
AFTER: TableColumn[ComparisonRow] = TableColumn("after", lambda row: value_text(row, row["candidate_value"]))
VERDICT_WITH_RUNS: TableColumn[ComparisonRow] = TableColumn("verdict", _verdict_text, is_left=True)
FIGURES: Table[ComparisonRow] = Table(FIGURE, BEFORE, AFTER, CHANGE, INTERVAL, VERDICT)
FIGURES_WITH_FLOOR: Table[ComparisonRow] = Table(
    FIGURE, BEFORE, AFTER, CHANGE, INTERVAL, NOISE_FLOOR, VERDICT_WITH_RUNS
)
FOLDER: TableColumn[ComparisonRow] = TableColumn("folder", lambda row: row["compared_folder"])
DETAILS = (BEFORE, AFTER, CHANGE, INTERVAL, NOISE_FLOOR, OF_LATENCY, VERDICT_WITH_RUNS, REASON)
DETAILED_FIGURES: Table[ComparisonRow] = Table(FIGURE, *DETAILS)
DIFFERENCES: Table[ComparisonRow] = Table(FOLDER, FIGURE, *DETAILS)


def comparison_report(
    rows: Sequence[ComparisonRow], conditions: Sequence[str], labels: Mapping[str, str], baseline: str
) -> str:
    """Return the comparison of one folder for the terminal.

    ``conditions`` are doubts, and what differs besides the figures; ``labels`` those of executed nodes of the baseline.
    """
    head = f"{verdict_line(rows)} (baseline: {baseline})"
    lines = [printable(head), *map(printable, conditions), ""]
    if figures := whole(rows):
        needed = [f"{figure_text(row)} {row['runs_needed_count']:,}" for row in figures if row["runs_needed_count"]]
        decide = [f"runs that would decide: {', '.join(needed)}"] if needed else []
        lines += [FIGURES.text(figures), *decide, ""]
    if changed := changed_nodes(rows):
        node = node_column("changed nodes", labels)
        nodes: Table[ComparisonRow] = Table(node, BEFORE, AFTER, CHANGE, OF_LATENCY, VERDICT)
        lines += [nodes.text(changed[:MOST_NODES]), ""]
    lines.append(node_count_line(rows))
    return "\n".join(lines)


def comparison_markdown(
    rows: Sequence[ComparisonRow], conditions: Sequence[str], labels: Mapping[str, str], baseline: str
) -> str:
    """Return the comparison of one folder as Markdown; the arguments are those of :func:`comparison_report`."""
    lines = [f"## {rows[0]['compared_folder'] if rows else 'Comparison'} against {escaped(baseline)}", ""]
    if conditions:
        lines += ["**Read this first:**", "", *(f"- {escaped(text)}" for text in conditions), ""]
    lines += [f"**{escaped(verdict_line(rows))}**", ""]
    if figures := whole(rows):
        lines += [FIGURES_WITH_FLOOR.markdown(figures), ""]
    if changed := changed_nodes(rows):
        node = node_column("changed nodes", labels)
        nodes: Table[ComparisonRow] = Table(node, BEFORE, AFTER, CHANGE, INTERVAL, OF_LATENCY, VERDICT)
        lines += [nodes.markdown(changed[: 2 * MOST_NODES]), ""]
    lines += [*(f"Undecided: {escaped(reason)}." for reason in undecided_reasons(figures)), node_count_line(rows) + "."]
    return "\n".join(lines) + "\n"


def comparison_page(
    parts: Sequence[tuple[Sequence[ComparisonRow], Sequence[str]]], labels: Mapping[str, str], baseline: str
) -> str:
    """Return the page; ``parts`` are the rows and the conditions of each folder, as of :func:`comparison_report`."""
    nodes: Table[ComparisonRow] = Table(node_column("node", labels), *DETAILS)
    body = [f"<h1>Compared with {escape(printable(baseline))}</h1>"]
    for number, (rows, conditions) in enumerate(parts):
        folder = rows[0]["compared_folder"] if rows else ""
        body.append(f"<p><strong>{escape(printable(folder))}: {escape(printable(verdict_line(rows)))}</strong></p>")
        body.append(section(f"conditions-{number}", "Read this first", bullet_list(map(printable, conditions))))
        body.append(section(f"figures-{number}", "Figures of the whole", DETAILED_FIGURES.html(whole(rows))))
        body.append(section(f"changed-{number}", "Nodes that changed", nodes.html(changed_nodes(rows))))
        every = [row for row in rows if row["compared_kind"] == "node"]
        body.append(section(f"nodes-{number}", "All nodes", nodes.html(every, node_count_line(rows))))
    return page("Comparison", body)


def difference_table(rows: Sequence[ComparisonRow]) -> str:
    """Return the figures of the whole and the nodes that changed, as the report shows them."""
    return DIFFERENCES.html([*whole(rows), *changed_nodes(rows)], "every node: comparison.csv and comparison.html")

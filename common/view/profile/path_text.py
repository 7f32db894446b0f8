"""The critical path as text: span, work, parallelism and makespan, the largest nodes, and the what-if table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.graphs.sums import ratio
from common.table_rows import CriticalPathRow
from common.view.tables import Table, TableColumn
from common.view.text import MISSING, duration, percent, significant

TOP = 10


@dataclass(frozen=True, slots=True)
class PathTotals:
    """Totals of an executed graph: span and parallelism by its dependencies, work and makespan in sequence."""

    span_us: float
    work_us: float
    parallelism: float | None
    gap_us: float | None
    node_count: int

    @property
    def makespan_us(self) -> float:
        """Time that the sequential executor takes: all nodes, and the gap between them where it is known."""
        return self.work_us + (self.gap_us or 0.0)


def path_report(
    totals: PathTotals,
    path: Sequence[CriticalPathRow],
    unranked: Collection[str],
    cases: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
) -> str:
    """Return the totals, the largest nodes of the critical path, and the what-if table if there are cases.

    ``unranked`` are nodes whose time the profiler's own cost dominates. A case has ``name``, ``factor``,
    ``node_count``, ``span_us`` and ``sequential_us``.
    """
    gap = f"work + gap of {duration(totals.gap_us)}" if totals.gap_us is not None else "work; the gap is unknown"
    rows = (
        ("span", duration(totals.span_us), "longest chain of dependent nodes: no executor is faster"),
        ("work", duration(totals.work_us), f"sum of all {totals.node_count} nodes"),
        ("parallelism", _ratio(totals.parallelism), "work / span: what running nodes in parallel gains at most"),
        ("makespan", duration(totals.makespan_us), f"{gap}: ONNX Runtime's sequential executor"),
    )
    lines = "\n".join(f"{label:<12} {value:>8}  {meaning}" for label, value, meaning in rows)
    parts = [lines, path_table(totals, path, unranked, labels), *([what_if_table(totals, cases)] if cases else [])]
    return "\n\n".join(parts)


def path_table(
    totals: PathTotals, path: Sequence[CriticalPathRow], unranked: Collection[str], labels: Mapping[str, str]
) -> str:
    """Return the largest nodes in path order; nodes that profiling dominates are summed up and not ranked."""
    columns: Table[CriticalPathRow] = Table(
        TableColumn("node", lambda row: labels[row["executed_node"]]),
        TableColumn("op", lambda row: row["op_type"], is_left=True),
        TableColumn("latency", lambda row: duration(row["node_latency_us"])),
        TableColumn("of span", lambda row: percent(row["span_share"])),
        TableColumn("finish", lambda row: duration(row["cumulative_us"])),
    )
    ranked = [row for row in path if row["executed_node"] not in unranked]
    ranked.sort(key=lambda row: -row["node_latency_us"])
    dominated = [row for row in path if row["executed_node"] in unranked]
    last = [*_sums("more", ranked[TOP:]), *_sums("unranked: within the cost of profiling", dominated)]
    title = f"critical path: {len(path)} of {totals.node_count} nodes"
    shown = sorted(ranked[:TOP], key=lambda row: row["position_index"])
    return f"{title}\n{columns.text(shown, last=last)}"


def _sums(label: str, rows: Sequence[CriticalPathRow]) -> list[list[str]]:
    """Return the cells of some nodes together; none for no nodes."""
    if not rows:
        return []
    shares = [share for row in rows if (share := row["span_share"]) is not None]
    time = duration(sum(row["node_latency_us"] for row in rows))
    return [[f"({len(rows)} {label})", "", time, percent(sum(shares) if shares else None), ""]]


def what_if_table(totals: PathTotals, cases: Sequence[Mapping[str, Any]]) -> str:
    """Return span and makespan of each what-if case, with their gains."""
    columns: Table[Mapping[str, Any]] = Table(
        TableColumn("what if", lambda case: f"{case['name']} {case['factor']:g}x faster"),
        TableColumn("nodes", lambda case: str(case["node_count"])),
        TableColumn("span", lambda case: duration(case["span_us"])),
        TableColumn("gain", lambda case: _ratio(ratio(totals.span_us, case["span_us"]))),
        TableColumn("makespan", lambda case: duration(case["sequential_us"])),
        TableColumn("gain", lambda case: _ratio(ratio(totals.makespan_us, case["sequential_us"]))),
    )
    return columns.text(cases)


def _ratio(value: float | None) -> str:
    return MISSING if value is None else f"{significant(value)}x"

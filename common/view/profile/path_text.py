"""The critical path as text: span, work, parallelism and makespan, the largest nodes, and the what-if table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from common.view.text import MISSING, duration, percent, significant, table

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
    path: pd.DataFrame,
    unranked: Collection[str],
    cases: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
) -> str:
    """Return the totals, the largest nodes of the critical path, and the what-if table if there are cases.

    Args:
        totals: the figures of the whole graph.
        path: critical_path.
        unranked: nodes whose time the profiler's own cost dominates.
        cases: ``name``, ``factor``, ``node_count``, ``span_us`` and ``sequential_us`` of each what-if.
        labels: of every executed node.
    """
    parts = [totals_lines(totals), path_table(totals, path, unranked, labels)]
    if cases:
        parts.append(what_if_table(totals, cases))
    return "\n\n".join(parts)


def totals_lines(totals: PathTotals) -> str:
    """Return each total with its meaning."""
    gap = f"work + gap of {duration(totals.gap_us)}" if totals.gap_us is not None else "work; the gap is unknown"
    rows = (
        ("span", duration(totals.span_us), "longest chain of dependent nodes: no executor is faster"),
        ("work", duration(totals.work_us), f"sum of all {totals.node_count} nodes"),
        ("parallelism", _ratio(totals.parallelism), "work / span: what running nodes in parallel gains at most"),
        ("makespan", duration(totals.makespan_us), f"{gap}: ONNX Runtime's sequential executor"),
    )
    return "\n".join(f"{label:<12} {value:>8}  {meaning}" for label, value, meaning in rows)


def path_table(totals: PathTotals, path: pd.DataFrame, unranked: Collection[str], labels: Mapping[str, str]) -> str:
    """Return the largest nodes in path order; nodes that profiling dominates are summed up and not ranked."""
    is_unranked = path["executed_node"].isin(list(unranked))
    ranked = path[~is_unranked].sort_values("node_latency_us", ascending=False, kind="stable")
    rows = [
        [labels[row["executed_node"]], row["op_type"], *_times(row), duration(row["cumulative_us"])]
        for row in ranked.head(TOP).sort_values("position_index").to_dict("records")
    ]
    for label, rest in (("more", ranked.iloc[TOP:]), ("unranked: within the cost of profiling", path[is_unranked])):
        if len(rest):
            sums = rest[["node_latency_us", "span_share"]].sum(min_count=1)
            rows.append([f"({len(rest)} {label})", "", *_times(sums.to_dict()), ""])
    title = f"critical path: {len(path)} of {totals.node_count} nodes"
    return f"{title}\n{table(('node', 'op', 'latency', 'of span', 'finish'), rows, left=(0, 1))}"


def what_if_table(totals: PathTotals, cases: Sequence[Mapping[str, Any]]) -> str:
    """Return span and makespan of each what-if case, with their gains."""
    rows = [
        [
            f"{case['name']} {case['factor']:g}x faster",
            str(case["node_count"]),
            duration(case["span_us"]),
            _gain(totals.span_us, case["span_us"]),
            duration(case["sequential_us"]),
            _gain(totals.makespan_us, case["sequential_us"]),
        ]
        for case in cases
    ]
    return table(("what if", "nodes", "span", "gain", "makespan", "gain"), rows)


def _times(row: Mapping[Any, Any]) -> tuple[str, str]:
    return duration(row["node_latency_us"]), percent(row["span_share"])


def _gain(before_us: float, after_us: float | None) -> str:
    return _ratio(before_us / after_us if after_us else None)


def _ratio(value: float | None) -> str:
    return MISSING if value is None else f"{significant(value)}x"

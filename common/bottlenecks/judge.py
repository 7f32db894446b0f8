"""Findings: rules applied to all measured tables, and the most that a remedy would gain.

The gain comes from the critical path with faster nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.bottlenecks.executed_nodes import ExecutedGraph, interval_us
from common.bottlenecks.rules import Facts, Rule, figure, meets, number
from common.bottlenecks.subjects import Judged, Measured, measured, subjects
from common.dag import Dag, build_dag, to_us

if TYPE_CHECKING:
    from common.table_rows import BottlenecksRow, LatencySummaryDocument, Tables

LEAST_US = 1e-9  # rounds to nothing in whole picoseconds


@dataclass(frozen=True, slots=True)
class Gain:
    """The most that a remedy would gain: of the sequential makespan, and of the span; None is unknown."""

    gain_us: float | None = None
    gain_low_us: float | None = None
    gain_high_us: float | None = None
    span_gain_us: float | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """The least time that a node would still take: a share of its time, and no less than its work takes."""

    share: float = 0.0
    least_us: float = 0.0

    def of(self, time_us: float) -> float:
        """Return what remains of a time: at most all of it, and more than 0, so that one can divide by it."""
        return min(max(self.share * time_us, self.least_us, LEAST_US), time_us)


@dataclass(frozen=True, slots=True)
class WhatIfs:
    """The graph at the low, the likely and the high times of its nodes."""

    low: Dag
    likely: Dag
    high: Dag

    def gain(self, kept: Mapping[str, Kept], freed_gap_us: float = 0.0) -> Gain:
        likely, low, high = (
            to_us(_work_ps(dag) - _work_ps(_mended(dag, kept))) + freed_gap_us
            for dag in (self.likely, self.low, self.high)
        )
        return Gain(likely, low, high, to_us(self.likely.span_ps - _mended(self.likely, kept).span_ps))


def _work_ps(dag: Dag) -> int:
    return sum(dag.latency_ps.values())


def _mended(dag: Dag, kept: Mapping[str, Kept]) -> Dag:
    times = {node: (to_us(dag.latency_ps[node]), part) for node, part in kept.items()}
    return dag.with_faster({node: time_us / part.of(time_us) for node, (time_us, part) in times.items() if time_us})


def what_ifs(graph: ExecutedGraph) -> WhatIfs:
    pairs = [(producer, consumer) for producer, consumer, _ in graph.tensors]
    intervals = {name: interval_us(node) for name, node in graph.nodes.items()}
    sources = {"nodes_from": "op_roofline.csv", "edges_from": "executed_edges.csv"}
    low, likely, high = (
        build_dag({name: ends[point] for name, ends in intervals.items()}, pairs, **sources) for point in range(3)
    )
    return WhatIfs(low, likely, high)


@dataclass(frozen=True, slots=True)
class Finding:
    rule: Rule
    subject: Judged
    gain: Gain


def bottleneck_rows(
    rules: Iterable[Rule],
    tables: Tables,
    summary: LatencySummaryDocument | None = None,
    npu_summary: Mapping[str, object] | None = None,
) -> list[BottlenecksRow]:
    """Return a row per finding of the rules in the tables of a measurement, or in those of an NPU's profile."""
    return [*finding_rows(findings(rules, measured(tables, summary, npu_summary)))]


def findings(rules: Iterable[Rule], held: Measured) -> list[Finding]:
    """Return all findings; those that gain most come first, those of unknown gain last, in the order of the rules."""
    graphs = what_ifs(held.graph)
    unsorted = [
        Finding(rule, subject, _gain(rule, subject, held, graphs))
        for rule in rules
        for subject in subjects(rule, held)
        if meets(subject.facts, rule.when)
    ]
    return sorted(unsorted, key=lambda finding: -(finding.gain.gain_us or 0.0))


def _gain(rule: Rule, subject: Judged, held: Measured, graphs: WhatIfs) -> Gain:
    if rule.gain_from:
        ends = (number(subject.facts, f"{rule.gain_from}{end}_us") for end in ("", "_low", "_high"))
        return Gain(*ends)
    kept = {node: _kept(rule, subject.facts, held.graph.nodes[node].facts) for node in subject.nodes}
    known = {node: part for node, part in kept.items() if part is not None}
    return graphs.gain(known, number(subject.facts, "freed_gap_us") or 0.0) if known else Gain()


def _kept(rule: Rule, subject: Facts, node: Facts) -> Kept | None:
    """Return the time that a node would still take, by a figure of the node or the subject; None if it is unknown."""
    if not isinstance(rule.kept, str):
        return None if rule.kept is None else Kept(rule.kept)
    value = number(node, rule.kept)
    value = number(subject, rule.kept) if value is None else value
    if value is None:
        return None
    return Kept(least_us=value) if rule.kept.endswith("_us") else Kept(value)


def finding_rows(sorted_findings: Iterable[Finding]) -> Iterator[BottlenecksRow]:
    for index, finding in enumerate(sorted_findings):
        rule, subject = finding.rule, finding.subject
        yield {
            "finding_index": index,
            "finding": rule.name,
            "finding_subject": subject.name,
            "executed_nodes": [] if rule.about == "run" else list(subject.nodes),
            "gain_us": finding.gain.gain_us,
            "gain_low_us": finding.gain.gain_low_us,
            "gain_high_us": finding.gain.gain_high_us,
            "span_gain_us": finding.gain.span_gain_us,
            "conditions": [str(condition) for condition in (*rule.select, *rule.when)],
            "evidence": _evidence(rule, subject.facts),
            "hazard": rule.hazard,
            "remedy": rule.remedy,
            "rule_source": rule.source,
        }


def _evidence(rule: Rule, facts: Facts) -> dict[str, dict[str, object]]:
    shown: dict[str, dict[str, object]] = {}
    for name in rule.facts:
        table = next((table for table, row in facts.items() if name in row), None)
        if table is not None and (value := figure(facts, name)) is not None:
            shown.setdefault(table, {})[name] = value
    return shown

"""Findings: rules applied to all measured tables, and what a remedy gains.

The greatest possible gain comes from the critical path with faster nodes. Mends that were measured say which share of
it a remedy gains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import astuple, dataclass, replace

from common.bottlenecks.executed_nodes import ExecutedGraph, interval_us
from common.bottlenecks.rules import GAIN_SHARE, Facts, Rule, figure, meets, number
from common.bottlenecks.subjects import Measured, RuleSubject, measured, subjects
from common.dag import Dag, build_dag, to_us
from common.files.configuration import Constant, IntervalPoint
from common.messages.host_doubts import recorded_doubts
from common.table_rows import BottlenecksRow, LatencySummaryDocument, Tables

LEAST_US = 1e-9  # rounds to nothing in whole picoseconds
ALL = Constant(1.0, 1.0, 1.0, "", "")
POINTS: tuple[IntervalPoint, ...] = ("low", "likely", "high")
WhatIfs = Mapping[IntervalPoint, Dag]


@dataclass(frozen=True, slots=True)
class Gain:
    """What a remedy gains, and its interval; of the span, the most that it can gain. None is unknown."""

    gain_us: float | None = None
    gain_low_us: float | None = None
    gain_high_us: float | None = None
    span_gain_us: float | None = None

    def at_most(self, whole_us: float) -> Gain:
        """Return the gain with no end above the whole latency; a latency of 0 is unknown."""
        return Gain(*(None if end is None else min(end, whole_us or math.inf) for end in astuple(self)))


@dataclass(frozen=True, slots=True)
class Kept:
    """The least time that a node would still take: a share of its time, and no less than its work takes."""

    share: float = 0.0
    least_us: float = 0.0

    def of(self, time_us: float) -> float:
        """Return what remains of a time: at most all of it, and more than 0, so that one can divide by it."""
        return min(max(self.share * time_us, self.least_us, LEAST_US), time_us)


def what_ifs(graph: ExecutedGraph) -> WhatIfs:
    """Return the graph at the low, the likely and the high times of its nodes."""
    pairs = [(producer, consumer) for producer, consumer, _ in graph.tensors]
    intervals = {name: interval_us(node) for name, node in graph.nodes.items()}
    sources = {"nodes_from": "op_roofline.csv", "edges_from": "executed_edges.csv"}
    return {
        point: build_dag({name: ends[place] for name, ends in intervals.items()}, pairs, **sources)
        for place, point in enumerate(POINTS)
    }


def mending_gain(
    graphs: WhatIfs, kept: Mapping[str, Kept], freed_gap_us: float = 0.0, realized: Constant = ALL
) -> Gain:
    """Return the gain; ``realized`` is the share of the greatest possible one that mending gains."""
    mended = {point: _mended(dag, kept) for point, dag in graphs.items()}
    low, likely, high = (
        realized.at(point) * (to_us(_work_ps(graphs[point]) - _work_ps(mended[point])) + freed_gap_us)
        for point in POINTS
    )
    return Gain(likely, low, high, to_us(graphs["likely"].span_ps - mended["likely"].span_ps))


def _work_ps(dag: Dag) -> int:
    return sum(dag.latency_ps.values())


def _mended(dag: Dag, kept: Mapping[str, Kept]) -> Dag:
    times = {node: (to_us(dag.latency_ps[node]), part) for node, part in kept.items()}
    return dag.with_faster({node: time_us / part.of(time_us) for node, (time_us, part) in times.items() if time_us})


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found."""

    rule: Rule
    subject: RuleSubject
    gain: Gain
    is_near_miss: bool = False  # whether it fulfils the rule only up to the second thresholds of its conditions
    also_found_by: tuple[str, ...] = ()  # other rules that found the same cause, with less to gain


def run_bottlenecks(
    rules: Iterable[Rule],
    tables: Tables,
    summary: LatencySummaryDocument,
    notes: Iterable[str],
    processor_count: int | None,
) -> list[BottlenecksRow]:
    """Return a row per finding in the tables of measured runs; ``notes`` are those of the measurement."""
    doubts = recorded_doubts(summary, tables.get("op_roofline", ()), tables["op_latency"], notes)
    return bottleneck_rows(rules, measured(tables, summary, processor_count=processor_count), doubts)


def findings(rules: Iterable[Rule], measurement: Measured) -> list[Finding]:
    """Return all findings and near misses: those that gain most come first, those of unknown gain last.

    Of several rules that found the same nodes, the one with most to gain stays: one cause is one finding. A mended
    pattern leaves some of its nodes. A finding about these alone has the cause of the pattern, too: a convolution whose
    weights are inputs is outside the blocked layout, and is not fused either.
    """
    graphs, unsorted = what_ifs(measurement.graph), list[Finding]()
    for rule in rules:
        found = [*_found(rule, measurement, graphs)]
        unsorted += found
        if rule.relaxed != rule:
            nodes = frozenset(node for finding in found for node in finding.subject.nodes)
            near_misses = _found(rule.relaxed, measurement, graphs, nodes)
            unsorted += [replace(finding, is_near_miss=True) for finding in near_misses]
    return _by_cause(sorted(unsorted, key=lambda finding: (finding.is_near_miss, -(finding.gain.gain_us or 0.0))))


def _found(rule: Rule, measurement: Measured, graphs: WhatIfs, without: Set[str] = frozenset()) -> Iterator[Finding]:
    """Yield the findings of a rule; the gain is computed last, because that takes longest."""
    of_gain = tuple(condition for condition in rule.when if condition.fact == GAIN_SHARE)
    others = tuple(condition for condition in rule.when if condition.fact != GAIN_SHARE)
    for subject in subjects(rule, measurement, without):
        if not meets(subject.facts, others):
            continue
        gain = _gain(rule, subject, measurement, graphs)
        whole_us = measurement.graph.whole_us
        share = gain.gain_us / whole_us if whole_us and gain.gain_us is not None else None
        if meets({"bottlenecks": {GAIN_SHARE: share}}, of_gain):
            yield Finding(rule, subject, gain)


def _by_cause(found: Iterable[Finding]) -> list[Finding]:
    """Join the findings that are about the same nodes; nothing is known of the causes of those that have none."""
    joined, places = list[Finding](), dict[frozenset[str], int]()
    for finding in found:
        causes = _causes(finding)
        place = next((places[cause] for cause in causes if cause in places), len(joined))
        for cause in causes:
            places.setdefault(cause, place)
        if place == len(joined):
            joined.append(finding)
        elif not finding.is_near_miss:
            joined[place] = _joined(joined[place], finding)
    return joined


def _causes(finding: Finding) -> list[frozenset[str]]:
    """Return sets of nodes; another finding about one of them has the same cause."""
    if finding.rule.about == "run":
        return []
    staying = finding.subject.staying if finding.rule.about == "pattern" else ()
    return [frozenset(nodes) for nodes in (finding.subject.nodes, staying) if nodes]


def _joined(first: Finding, other: Finding) -> Finding:
    """Return a finding that another rule confirms, about the nodes of both."""
    subject = first.subject
    more = [node for node in (*other.subject.nodes, *other.subject.staying) if node not in subject.nodes]
    staying = tuple(dict.fromkeys((*subject.staying, *more)))
    return replace(
        first, subject=replace(subject, staying=staying), also_found_by=(*first.also_found_by, other.rule.name)
    )


def _gain(rule: Rule, subject: RuleSubject, measurement: Measured, graphs: WhatIfs) -> Gain:
    """Return what mending a subject gains, at most the latency of the runs that it is of."""
    if rule.gain_from:
        ends = (number(subject.facts, f"{rule.gain_from}{end}_us") for end in ("", "_low", "_high"))
        of_npu = number(subject.facts, "qnn_execute_us") if rule.about == "npu_run" else None
        return Gain(*ends).at_most(of_npu or measurement.graph.whole_us)
    kept = {node: _kept(rule, subject.facts, measurement.graph.nodes[node].facts) for node in subject.nodes}
    for node in subject.staying:
        kept[node] = _as_kept(rule.stays_kept, number(measurement.graph.nodes[node].facts, rule.stays_kept))
    known = {node: part for node, part in kept.items() if part is not None}
    freed_us = number(subject.facts, "freed_gap_us") or 0.0
    if not known:
        return Gain()
    return mending_gain(graphs, known, freed_us, rule.realized).at_most(measurement.graph.whole_us)


def _kept(rule: Rule, subject: Facts, node: Facts) -> Kept | None:
    """Return the time that a node would still take, by a figure of the node or the subject; None if it is unknown."""
    if not isinstance(rule.kept, str):
        return None if rule.kept is None else Kept(rule.kept)
    value = number(node, rule.kept)
    return _as_kept(rule.kept, number(subject, rule.kept) if value is None else value)


def _as_kept(figure_name: str, value: float | None) -> Kept | None:
    if value is None:
        return None
    return Kept(least_us=value) if figure_name.endswith("_us") else Kept(value)


def bottleneck_rows(rules: Iterable[Rule], measurement: Measured, doubts: Sequence[str] = ()) -> list[BottlenecksRow]:
    """Return a row per finding of the rules in the tables of a measurement, or in those of an NPU's profile.

    ``doubts`` say why the times of the host decide nothing.
    """
    return [
        {
            "finding_index": index,
            "finding": finding.rule.name,
            "is_near_miss": finding.is_near_miss,
            "also_found_by": list(finding.also_found_by),
            "finding_subject": finding.subject.name,
            "executed_nodes": [*finding.subject.nodes, *finding.subject.staying] if finding.rule.about != "run" else [],
            "gain_us": finding.gain.gain_us,
            "gain_low_us": finding.gain.gain_low_us,
            "gain_high_us": finding.gain.gain_high_us,
            "span_gain_us": finding.gain.span_gain_us,
            "doubts": list(doubts),
            "conditions": [str(condition) for condition in (*finding.rule.select, *finding.rule.when)],
            "evidence": _evidence(finding.rule, finding.subject.facts),
            "hazard": finding.rule.hazard,
            "remedy": finding.rule.remedy,
            "rule_source": finding.rule.source,
        }
        for index, finding in enumerate(findings(rules, measurement))
    ]


def _evidence(rule: Rule, facts: Facts) -> dict[str, dict[str, object]]:
    shown: dict[str, dict[str, object]] = {}
    for name in rule.facts:
        table = next((table for table, row in facts.items() if name in row), None)
        if table is not None and (value := figure(facts, name)) is not None:
            shown.setdefault(table, {})[name] = value
    return shown

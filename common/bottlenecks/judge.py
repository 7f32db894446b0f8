"""Findings: rules held against everything that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common.bottlenecks.gains import Gain, Kept, WhatIfs, what_ifs
from common.bottlenecks.rules import Facts, Rule, figure, meets, number
from common.bottlenecks.subjects import Judged, Measured, subjects

if TYPE_CHECKING:
    from common.table_rows import BottlenecksRow


@dataclass(frozen=True, slots=True)
class Finding:
    rule: Rule
    subject: Judged
    gain: Gain


def findings(rules: Iterable[Rule], measured: Measured) -> list[Finding]:
    """Return all findings; those that gain most come first, those of unknown gain last, in the order of the rules."""
    graphs = what_ifs(measured.graph)
    found = [
        Finding(rule, subject, _gain(rule, subject, measured, graphs))
        for rule in rules
        for subject in subjects(rule, measured)
        if meets(subject.facts, rule.when)
    ]
    return sorted(found, key=lambda finding: -(finding.gain.gain_us or 0.0))


def _gain(rule: Rule, subject: Judged, measured: Measured, graphs: WhatIfs) -> Gain:
    if rule.gain_from:
        ends = (number(subject.facts, f"{rule.gain_from}{end}_us") for end in ("", "_low", "_high"))
        return Gain(*ends)
    kept = {node: _kept(rule, subject.facts, measured.graph.nodes[node]) for node in subject.nodes}
    known = {node: part for node, part in kept.items() if part is not None}
    return graphs.gain(known, number(subject.facts, "freed_gap_us") or 0.0) if known else Gain()


def _kept(rule: Rule, subject: Facts, node: Facts) -> Kept | None:
    """Return what a node would keep, by a figure of its own or of the subject; None where that is unknown."""
    if not isinstance(rule.kept, str):
        return None if rule.kept is None else Kept(rule.kept)
    value = number(node, rule.kept)
    value = number(subject, rule.kept) if value is None else value
    if value is None:
        return None
    return Kept(least_us=value) if rule.kept.endswith("_us") else Kept(value)


def finding_rows(found: Iterable[Finding]) -> Iterator[BottlenecksRow]:
    for index, finding in enumerate(found):
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


def _evidence(rule: Rule, facts: Facts) -> dict[str, dict[str, Any]]:
    shown: dict[str, dict[str, Any]] = {}
    for name in rule.facts:
        table = next((table for table, row in facts.items() if name in row), None)
        if table is not None and (value := figure(facts, name)) is not None:
            shown.setdefault(table, {})[name] = value
    return shown

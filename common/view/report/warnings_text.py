"""Reasons to doubt the figures, ranked by their effect on the verdict on the plan, from tables and notes of stages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from common.messages.host_doubts import EXPECTED_GAP_SHARE, NOT_JUDGED
from common.messages.note_kinds import ENDANGERED, first_of_each, kind_of, usual_kind
from common.table_rows import HostCeilingsDocument, LatencySummaryDocument, OpRooflineRow
from common.view.executed_nodes import gap_share, leading_gap
from common.view.findings import Findings
from common.view.node_labels import with_labels
from common.view.roofline.roofline_text import REASONS
from common.view.text import percent

PASSED_ON = re.compile(r": incomplete \((made from .*?: )*(?P<reason>.+)\)$")  # a table may be made from others
MAX_OVERHEAD = 0.10  # of the unprofiled median: above it, node times are more correction than measurement
MAX_HALVES_DIFFERENCE = 0.05
MAX_DOMINATED = 0.01  # of the latency
MOST_IN_SUMMARY = 5
# The effect of a doubt on the verdict. Doubts of all other kinds leave it as it is.
VOIDS, MOVES, MOVES_ENERGY, LEAVES = "void the answer", "move the answer", "move its energy", "leave it as it is"
EFFECTS = {
    **dict.fromkeys(("everything", "every time"), VOIDS),
    **dict.fromkeys(("plan", "times", "work"), MOVES),
    "energy": MOVES_ENERGY,
}
TITLES = {
    "everything": "Every figure: tables that are stale, foreign or damaged",
    "every time": "Every time",
    "times": "Times of runs and nodes",
    "work": "Work and traffic of nodes",
    "roofs": "Roofs, and shares of them",
    "chain": "The critical path",
    "energy": "Energy",
    "plan": "The offload plan",
    "design": "The design space",
    "NPU": "The NPU's profile and bottlenecks",
    "load": "The load test",
    "generation": "Tokens of a decoder",
    "accuracy": "Number formats",
    "comparison": "The comparison",
    "dashboard": "The dashboard's run",
    "tails": "Percentiles of the latency",
    "single runs": "Single runs: what made them slow",
    "what is absent": "What is absent",
}


def first_warnings(by_kind: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the few warnings that come first, by what they endanger."""
    kept = {*first_of_each(by_kind)[:MOST_IN_SUMMARY]}
    return {name: [line for line in lines if line in kept] for name, lines in by_kind.items()}


def by_effect(kinds: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return warnings by their effect on the verdict, the worst first; effects without a warning are left out."""
    lines: dict[str, list[str]] = {}
    for name, of_kind in kinds.items():
        if of_kind:
            lines.setdefault(EFFECTS.get(name, LEAVES), []).extend(of_kind)
    return lines


def sorted_warnings(findings: Findings, plain: Callable[[str], str] = str) -> dict[str, list[str]]:
    """Return the warnings by what they endanger, in the order of ``ENDANGERED``; a stage's notes begin with its number.

    ``plain`` spells out the names in angle brackets; the stages' notes have none any more.
    """
    documents, roofline, labels = findings.documents, findings.tables.get("op_roofline"), findings.labels()
    said = {note for stage in findings.stages for note in stage.notes}
    by_kind: dict[str, list[str]] = {endangered: [] for endangered in ENDANGERED}
    for note in findings.notes:
        if not _is_passed_on(note, said):
            by_kind[kind_of(note, "everything")].append(note)
    for stage in findings.stages:
        usual = usual_kind(stage.writes)
        for note in stage.notes:
            if not _is_passed_on(note, said) and not note.startswith(NOT_JUDGED):  # the answer says so
                by_kind[kind_of(note, usual)].append(f"[{stage.script[:2]}] {with_labels(note, labels)}")
    by_kind["times"] += map(plain, _latency_warnings(documents.get("latency_summary")))
    if roofline is not None:
        by_kind["times" if leading_gap(roofline) is None else "every time"] += map(plain, _gap_warnings(roofline))
    by_kind["roofs"] += map(plain, _ceiling_warnings(documents.get("host_ceilings")))
    by_kind["roofs"] += [] if roofline is None else map(plain, _node_warnings(roofline))
    return _once(by_kind)


def _is_passed_on(note: str, said: AbstractSet[str]) -> bool:
    """Whether a note only passes on that a table is incomplete, for the reason that its own stage noted."""
    given = PASSED_ON.search(note)
    return given is not None and any(f": {reason}".endswith(f": {given['reason']}") for reason in said - {note})


def _once(by_kind: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    seen: set[str] = set()
    kept: dict[str, list[str]] = {}
    for name, lines in by_kind.items():
        kept[name] = [line for line in dict.fromkeys(lines) if line not in seen]
        seen.update(lines)
    return kept


def _ceiling_warnings(ceilings: HostCeilingsDocument | None) -> list[str]:
    if ceilings is None or ceilings["stable"]:
        return []
    shares = {
        "between two halves of compute": ceilings["peak_halves_difference_share"],
        "between two halves of int8": ceilings["int8_halves_difference_share"],
        "between two halves of memory": ceilings["memory_halves_difference_share"],
        "between all threads and one": ceilings["lost_to_threads_share"],
    }
    large = [f"{name} {percent(share)}" for name, share in shares.items() if share and share > MAX_HALVES_DIFFERENCE]
    return [
        f"the ceilings are unstable (differences {', '.join(large)}), so shares of the roof are as uncertain; stop "
        "other work on the host, and rerun <host_ceilings> and <op_roofline>"
    ]


def _latency_warnings(summary: LatencySummaryDocument | None) -> list[str]:
    overhead = summary["profiling_overhead_fraction"] if summary else None
    if overhead is None or overhead <= MAX_OVERHEAD:
        return []
    return [
        f"profiling adds {percent(overhead)} to a run; node times depend on the correction: compare groups of "
        "nodes, not single short ones"
    ]


def _gap_warnings(roofline: Sequence[OpRooflineRow]) -> list[str]:
    (low, high), share = EXPECTED_GAP_SHARE, gap_share(roofline)
    if not any(row["row_kind"] == "gap" for row in roofline) or low <= share <= high:
        return []
    return [
        f"the gap between nodes is {percent(share)} of the latency, not {percent(low, 0)} to {percent(high, 0)}: "
        "the profiled and the unprofiled runs differ by more than the correction explains; rerun <op_latency> on "
        "an idle host"
    ]


def _node_warnings(roofline: Sequence[OpRooflineRow]) -> list[str]:
    nodes = [row for row in roofline if row["row_kind"] != "gap"]
    lines = []
    dominated = [row for row in nodes if row["is_correction_dominated"]]  # the profile has a note with their number
    if sum(row["latency_share"] for row in dominated) > MAX_DOMINATED:
        lines.append(f"dominated by the profiler's correction: {_count(dominated, nodes)}; drawn hollow and not ranked")
    above: dict[str, list[OpRooflineRow]] = {}
    for row in nodes:
        if row["is_above_roof"]:
            above.setdefault(REASONS[row["roof_share_reason"]], []).append(row)
    lines += [f"above the roof: {_count(rows, nodes)}: {why}; rerun <host_ceilings>" for why, rows in above.items()]
    return lines


def _count(flagged: Sequence[OpRooflineRow], nodes: Sequence[OpRooflineRow]) -> str:
    share = percent(sum(row["latency_share"] for row in flagged))
    return f"{len(flagged)} of {len(nodes)} nodes, {share} of the latency"

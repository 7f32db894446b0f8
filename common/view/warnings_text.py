"""Reasons to doubt the figures: what the tables show, and what the stages noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from common.host_doubts import BUSY, EXPECTED_GAP_SHARE, NOT_JUDGED
from common.view.findings import Findings
from common.view.groups import gap_share, leading_gap
from common.view.node_labels import with_labels
from common.view.text import percent

MAX_OVERHEAD = 0.10  # of the unprofiled median: above it, node times are more correction than measurement
MAX_HALVES_DIFFERENCE = 0.05
MAX_DOMINATED = 0.01  # of the latency
FIRST = (BUSY, NOT_JUDGED)  # how the notes begin that come before any figure
# What a doubt endangers, the most first, each resting on those before; and a table of each stage whose notes do.
ENDANGERED = {
    "everything": (),
    "every time": (),
    "times": ("op_latency",),
    "work": ("op_metrics", "op_roofline"),
    "roofs": ("host_ceilings",),
    "chain": ("op_schedule",),
    "energy": ("ops_profile",),
    "plan": ("offload_plan", "kernels"),
    "design": ("design_points",),
    "NPU": ("npu_summary",),
    "load": ("load_summary",),
    "what is absent": (),
}


def warnings(findings: Findings, plain: Callable[[str], str] = str) -> list[str]:
    """Return the warnings, a line each, ordered by what they endanger."""
    return list(dict.fromkeys(line for lines in sorted_warnings(findings, plain).values() for line in lines))


def sorted_warnings(findings: Findings, plain: Callable[[str], str] = str) -> dict[str, list[str]]:
    """Return the warnings by what they endanger, in the order of ``ENDANGERED``; a stage's notes begin with its number.

    Args:
        findings: tables, documents and records of the stages.
        plain: spells out the names in angle brackets; the stages' notes have none any more.
    """
    documents, roofline, labels = findings.documents, findings.tables.get("op_roofline"), findings.labels()
    found: dict[str, list[str]] = {endangered: [] for endangered in ENDANGERED}
    for note in findings.notes:
        found["what is absent" if note.startswith("absent: ") else "everything"].append(note)
    found["times"] += map(plain, _latency_warnings(documents.get("latency_summary")))
    if roofline is not None:
        found["times" if leading_gap(roofline) is None else "every time"] += map(plain, _gap_warnings(roofline))
    found["roofs"] += map(plain, _ceiling_warnings(documents.get("host_ceilings")))
    found["roofs"] += [] if roofline is None else map(plain, _node_warnings(roofline))
    for stage in findings.stages:
        number = f"[{stage.script[:2]}]"
        found["every time"] += [f"{number} {note}" for note in stage.notes if note.startswith(FIRST)]
        notes = [f"{number} {with_labels(note, labels)}" for note in stage.notes if not note.startswith(FIRST)]
        endangered = next(name for name, tables in ENDANGERED.items() if set(tables) & set(stage.writes))
        found[endangered] = [*notes, *found[endangered]]
    found["every time"].sort(key=lambda line: NOT_JUDGED not in line)
    return found


def _ceiling_warnings(ceilings: Mapping[str, Any] | None) -> list[str]:
    if ceilings is None or ceilings["stable"]:
        return []
    kinds = {"compute": "peak", "int8": "int8", "memory": "memory"}
    shares = {f"between two halves of {kind}": f"{name}_halves_difference_share" for kind, name in kinds.items()}
    shares["between all threads and one"] = "lost_to_threads_share"
    shown = [
        f"{difference} {percent(ceilings[name])}" for difference, name in shares.items() if _is_large(ceilings[name])
    ]
    return [
        f"the ceilings are unstable (differences {', '.join(shown)}), so shares of the roof are as uncertain; stop "
        "other work on the host, and rerun <host_ceilings> and <op_roofline>"
    ]


def _is_large(share: float | None) -> bool:
    return share is not None and share > MAX_HALVES_DIFFERENCE


def _latency_warnings(summary: Mapping[str, Any] | None) -> list[str]:
    if summary is None:
        return []
    lines = []
    overhead = summary["profiling_overhead_fraction"]
    if overhead is not None and overhead > MAX_OVERHEAD:
        lines.append(
            f"profiling adds {percent(overhead)} to a run; node times depend on the correction: compare groups of "
            "nodes, not single short ones"
        )
    return lines


def _gap_warnings(roofline: pd.DataFrame) -> list[str]:
    (low, high), share = EXPECTED_GAP_SHARE, gap_share(roofline)
    if not (roofline["row_kind"] == "gap").any() or low <= share <= high:
        return []
    return [
        f"the gap between nodes is {percent(share)} of the latency, not {percent(low, 0)} to {percent(high, 0)}: "
        "the profiled and the unprofiled runs differ by more than the correction explains; rerun <op_latency> on "
        "an idle host"
    ]


def _node_warnings(roofline: pd.DataFrame) -> list[str]:
    nodes = roofline[roofline["row_kind"] != "gap"]
    lines = []
    dominated = nodes[nodes["is_correction_dominated"]]
    if dominated["latency_share"].sum() > MAX_DOMINATED:  # a note of the profiling stage has their number in any case
        lines.append(f"dominated by the profiler's correction: {_count(dominated, nodes)}; drawn hollow and not ranked")
    if len(above := nodes[nodes["is_above_roof"]]):
        lines.append(
            f"above the roof: {_count(above, nodes)}; operands came from a cache, or the ceilings are too low (then "
            "rerun <host_ceilings>)"
        )
    return lines


def _count(flagged: pd.DataFrame, nodes: pd.DataFrame) -> str:
    return f"{len(flagged)} of {len(nodes)} nodes, {percent(float(flagged['latency_share'].sum()))} of the latency"

"""A side of a comparison from the tables of one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from common.comparison.alignment import Executed
from common.comparison.latency_family import LEAST_SESSIONS
from common.comparison.measured import MeasuredSide, Statement, changed_conditions
from common.latency.dependence import Samples
from common.messages.errors import UpstreamError
from common.messages.host_doubts import BUSY, instabilities
from common.table_rows import Documents, OffloadPlanRow, OpLatencyRow, Tables

DOCUMENTS = ("latency_summary", "host_ceilings", "energy_summary", "load_summary", "load_best", "hardware_counters")
WHOLE_BOARD = "board"  # the row of board_resources that has what all regions and the engines across them take
PLAN_TABLES = ("offload_verdict", "offload_comparison", "offload_plan", "board_resources")
NODE_TABLES = ("op_latency", "op_metrics", "op_edges", "node_map", "op_roofline")
TIME_TABLES = ("run_latency", "session_latency", *NODE_TABLES, "host_samples")  # the others may be left out
SETTINGS = ("runs", "duration", "sessions", "warmup", "dim", "input", "seed")
CONDITIONS = {  # what a figure depends on, by the document that says it
    "latency_summary": ("provider", "graph_optimization", "threads", "steady_state"),
    "host_ceilings": ("peak_flop_per_s", "memory_bytes_per_s"),
    "energy_summary": ("energy_source",),
    "load_summary": ("arrivals", "offered_requests_per_s", "batch_max_count", "batch_wait_us", "session_count"),
    "load_best": ("bound_us",),
}
NOT_JUDGED = "not judged"  # how the verdict on a plan begins where its times decide nothing, or not for its host


class MeasuredFolder(Protocol):
    root: Path

    def has(self, name: str) -> bool: ...

    def rows_by_name(self, name: str) -> list[Any]: ...

    def document_by_name(self, name: str) -> Any: ...

    def provenance(self, name: str) -> Any:
        """Return the sidecar of an artifact that has been read."""


def read_side(folder: MeasuredFolder, nodes_us: Mapping[str, Samples]) -> tuple[MeasuredSide, list[str]]:
    """Return one measurement as its tables give it, and a note on each table that is older than its times.

    Args:
        nodes_us: times of each executed node, run by run; empty where there is no trace.

    Raises:
        UpstreamError: run_latency or latency_summary cannot be used, or another table that the times need.
    """
    tables = {name: folder.rows_by_name(name) for name in TIME_TABLES if name == "run_latency" or folder.has(name)}
    documents: dict[str, Any] = {}
    notes = []
    for name in (name for name in (*DOCUMENTS, *PLAN_TABLES) if folder.has(name)):
        try:
            if name in DOCUMENTS:
                documents[name] = folder.document_by_name(name)
            else:
                tables[name] = folder.rows_by_name(name)
        except UpstreamError as error:
            if name == "latency_summary":
                raise
            notes.append(f"left out: {error}")
    origin = asdict(folder.provenance("run_latency"))
    read = (cast("Documents", documents), cast("Tables", tables))
    return recorded_side(str(folder.root), origin, *read, nodes_us), notes


def recorded_side(
    name: str, origin: Mapping[str, Any], documents: Documents, tables: Tables, nodes_us: Mapping[str, Samples]
) -> MeasuredSide:
    """Return one measurement from the tables of a folder.

    Args:
        origin: fields of the sidecar of run_latency.
        documents: those of ``DOCUMENTS`` that are there.
        tables: rows of run_latency, and of other tables where they are there.
        nodes_us: as of :func:`read_side`.
    """
    summary = documents.get("latency_summary", {})
    busy = [note.partition(";")[0] for note in origin["notes"] if note.startswith(BUSY)]
    unsettled = instabilities(summary) if summary.get("p50_us") else ()
    sessions = _sessions(tables)
    return MeasuredSide(
        name,
        origin["model_id"],
        origin["dimensions"],
        np.concatenate(sessions),
        nodes_us or _typical_times(tables.get("op_latency", ())),
        _executed(tables),
        {row["executed_node"]: row["op_type"] for row in tables.get("op_latency", ())},
        tables.get("op_metrics", ()),
        tables.get("op_edges", ()),
        _stated(documents, tables),
        _conditions(origin, documents, tables),
        (*busy, *unsettled),
        _plan_doubts(tables),
        tuple(map(len, sessions)),
        {name: setting["value"] for name, setting in origin["settings"].items()},
    )


def differences(baseline: MeasuredSide, candidate: MeasuredSide) -> list[str]:
    return [f"differs: {text}" for text in changed_conditions(baseline.conditions, candidate.conditions)]


def unknown_sessions(baselines: Sequence[MeasuredSide], candidate: MeasuredSide, paired: str) -> list[str]:
    """Return what two sessions cannot say, and the command that can; nothing where there are more of them."""
    counts = (sum(len(side.sessions_us) for side in baselines), len(candidate.sessions_us))
    if not all(counts) or sum(counts) >= LEAST_SESSIONS:
        return []
    return [
        f"between sessions: {counts[0]} against {counts[1]} do not show how far sessions of one model differ, "
        f"which is often a percent or more; run {paired}, or measure both sides with <sessions> 3"
    ]


def doubts(sides: Sequence[MeasuredSide]) -> list[str]:
    """Return why times decide nothing, and why a plan has no verdict and is not compared: each reason once."""
    pairs = [(doubt, side.name) for side in sides for doubt in side.doubts]
    pairs += [(doubt, f"the plan of {side.name}") for side in sides for doubt in side.plan_doubts]
    of_reason: dict[str, list[str]] = {}
    for doubt, name in pairs:
        of_reason.setdefault(doubt, []).append(name)
    return [f"not judged: {', '.join(names)}: {doubt}" for doubt, names in of_reason.items()]


def _plan_doubts(tables: Tables) -> tuple[str, ...]:
    """Return why a plan has no verdict: then its speedup and its latency are not compared."""
    rows = (row for row in tables.get("offload_verdict", ()) if row["verdict"].startswith(NOT_JUDGED))
    return tuple(dict.fromkeys(doubt for row in rows for doubt in row["doubts"]))


def _sessions(tables: Tables) -> list[Samples]:
    """Return the runs of each session that the figures of the measurement count; before its steady part is warm-up."""
    plain = [row["latency_us"] for row in tables["run_latency"] if not row["is_profiled"] and not row["is_warmup"]]
    more: dict[int, list[float]] = {}
    for row in (row for row in tables.get("session_latency", ()) if not row["is_warmup"]):
        more.setdefault(row["session_index"], []).append(row["latency_us"])
    return [np.array(latencies_us) for latencies_us in (plain, *more.values())]


def _typical_times(rows: Sequence[OpLatencyRow]) -> dict[str, Samples]:
    """Return the median of each node as its only value, or its mean, where a profile has no more."""
    typical_us = {}
    for row in rows:
        times_us = (row["corrected_median_us"], row["raw_median_us"], row["corrected_mean_us"], row["raw_mean_us"])
        typical_us[row["executed_node"]] = [time_us for time_us in times_us if time_us is not None][:1]
    return {node: np.array(times_us) for node, times_us in typical_us.items() if times_us}


def _executed(tables: Tables) -> Executed:
    """Return which source nodes each executed node computes; without node_map each node computes itself."""
    sources: dict[str, list[str]] = {row["executed_node"]: [] for row in tables.get("op_latency", ())}
    if "node_map" not in tables:
        return Executed({name: [name] for name in sources}, is_mapped=False)
    for row in tables["node_map"]:
        if row["executed_node"] in sources:
            sources[row["executed_node"]] += [row["source_node"]]
    return Executed(sources, {row["executed_node"]: row["layout_of"] for row in tables.get("op_roofline", ())})


def _stated(documents: Documents, tables: Tables) -> dict[str, dict[str, Statement]]:
    """Return what documents and the tables of a plan state, by table and by what a row is about."""
    best = documents.get("load_best", {}).get("best_by", {})
    statements: dict[str, dict[str, Statement]] = {
        name: {"": row} for name, row in cast("Mapping[str, Statement]", documents).items() if name != "load_best"
    }
    statements["load_best"] = {"": best["rate"]} if "rate" in best else {}
    whole = [row for row in tables.get("board_resources", ()) if row["region"] == WHOLE_BOARD]
    powers = [row["kernel_power_likely_w"] for row in tables.get("offload_plan", ())]
    verdicts = [row for row in tables.get("offload_verdict", ()) if not row["verdict"].startswith(NOT_JUDGED)]
    is_judged = len(verdicts) == len(tables.get("offload_verdict", ()))
    plan = [row for row in tables.get("offload_comparison", ()) if row["alternative"] == "plan" and is_judged]
    return {
        **statements,
        "offload_verdict": {f"speedup in {row['objective']}": row for row in verdicts},
        "offload_comparison": {"": plan[0]} if plan else {},
        "offload_plan": {"": {"kernel_power_likely_w": sum(powers)}} if powers and None not in powers else {},
        "board_resources": {row["resource"]: {"used_count": row["used_count"]} for row in whole},
    }


def _conditions(origin: Mapping[str, Any], documents: Documents, tables: Tables) -> dict[str, Any]:
    """Return what a measurement depends on besides the model: host, clock, ceilings, settings and versions."""
    samples = tables.get("host_samples", ())
    clocks = [row["value"] for row in samples if row["quantity"] == "cpu_frequency_mhz" and row["phase"] == "run"]
    imported = {name: value for name, value in origin["imported"].items() if value is not None}
    given = {name: setting.get("value") for name, setting in origin["settings"].items()}
    prefixes = {"load_summary": "load_", "load_best": "load_"}
    return {
        **origin["host"],
        "clock_mhz": float(np.mean(clocks)) if clocks else None,
        **{
            prefixes.get(document, "") + name: cast("Mapping[str, Statement]", documents)[document].get(name)
            for document, names in CONDITIONS.items()
            for name in names
            if document in documents
        },
        **_plan_conditions(tables.get("offload_plan", ())),
        **{name: str(given[name]) for name in SETTINGS if given.get(name) is not None},
        **{f"{name}_version": version for name, version in origin["tools"].items()},
        "recorded_elsewhere": ", ".join(f"{name} {value}" for name, value in imported.items()) or "no",
    }


def _plan_conditions(rows: Sequence[OffloadPlanRow]) -> dict[str, str]:
    if not rows:
        return {}
    engines = [f"{row['engine']} for {row['group_count']} groups" for row in rows]
    boards = [f"{row['board']} in {row['precision']} at {row['clock_mhz']:g} MHz" for row in rows]
    return {"plan_board": ", ".join(dict.fromkeys(boards)), "plan_engines": ", ".join(engines)}

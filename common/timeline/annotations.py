"""What is written at the nodes of the model's graph: counted work, and the time and energy of their execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from common.timeline.main_sources import main_sources

Row = Mapping[str, Any]
Texts = dict[str, str]
COUNTED = ("macs", "flops", "bytes")
ADDED = ("node_latency_us", "latency_share", "energy_uj")
OF_ONE = ("bound", "roof_share", "is_above_roof", "work_source")


def node_texts(nodes: Sequence[Row], metrics: Sequence[Row], profile: Sequence[Row]) -> dict[str, Texts]:
    """Return names and texts for each source node.

    Work is the node's own. The time of an executed node stands once, at the source node that does most of its work, so
    that the times of all nodes add up. The others say with which node they were computed.

    Args:
        nodes: rows of op_roofline.
        metrics: rows of op_metrics.
        profile: rows of ops_profile, if there are any.
    """
    energy = {row["executed_node"]: {"energy_uj": row["energy_uj"]} for row in profile}
    texts: dict[str, Texts] = {row["source_node"]: _texts(row, COUNTED) for row in metrics}
    worker = main_sources(nodes, metrics)
    executed: dict[str, list[Row]] = {}
    for row in nodes:
        name = row["executed_node"]
        for source in row["source_nodes"]:
            is_worker = source == worker[name]
            texts.setdefault(source, {}).update({} if is_worker else {"computed_with": worker[name]})
        if name in worker:
            executed.setdefault(worker[name], []).append({**row, **energy.get(name, {})})
    for source, rows in executed.items():
        texts[source] |= _executed_texts(rows)
    return texts


def _executed_texts(rows: Sequence[Row]) -> Texts:
    """Return what execution tells of a source node; the times of several executed nodes are added."""
    added = {name: sum(row[name] for row in rows) for name in ADDED if all(row.get(name) is not None for row in rows)}
    names = {"executed_node": ", ".join(row["executed_node"] for row in rows)}
    return names | _texts(added, ADDED) | (_texts(rows[0], OF_ONE) if len(rows) == 1 else {})


def model_texts(nodes: Sequence[Row]) -> Texts:
    """Return the time that no node of the model's graph has: that of inserted nodes, and the gap."""
    kinds = {"inserted_nodes_latency_us": "inserted", "gap_us": "gap"}
    sums = {name: _sum(row for row in nodes if row["row_kind"] == kind) for name, kind in kinds.items()}
    return _texts(sums, sums)


def _sum(rows: Iterable[Row]) -> float:
    return float(sum(row["node_latency_us"] or 0.0 for row in rows))


def _texts(row: Row, names: Iterable[str]) -> Texts:
    return {name: _text(row[name]) for name in names if row.get(name) is not None}


def _text(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)

"""Annotations of the nodes of the model's graph: counted work, and the time and energy of their execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from common.table_rows import OpMetricsRow, OpRooflineRow, OpsProfileRow
from common.timeline.chrome_trace import known_facts

Texts = dict[str, str]
COUNTED = ("macs", "flops", "bytes")
OF_ONE = ("bound", "roof_share", "is_above_roof", "work_source")


def node_texts(
    nodes: Sequence[OpRooflineRow], metrics: Sequence[OpMetricsRow], profile: Sequence[OpsProfileRow]
) -> dict[str, Texts]:
    """Return names and texts for each source node.

    Work is the node's own. The time of an executed node is given once, at the source node that does most of its work,
    so that the times of all nodes add up. The others say with which node they were computed.
    """
    energy_uj = {row["executed_node"]: row["energy_uj"] for row in profile}
    texts: dict[str, Texts] = {row["source_node"]: _texts(row, COUNTED) for row in metrics}
    worker = main_sources(nodes, metrics)
    executed: dict[str, list[OpRooflineRow]] = {}
    for row in nodes:
        name = row["executed_node"]
        for source in row["source_nodes"]:
            is_worker = source == worker[name]
            texts.setdefault(source, {}).update({} if is_worker else {"computed_with": worker[name]})
        if name in worker:
            executed.setdefault(worker[name], []).append(row)
    for source, rows in executed.items():
        texts[source] |= _executed_texts(rows, energy_uj)
    return texts


def _executed_texts(rows: Sequence[OpRooflineRow], energy_uj: Mapping[str, float | None]) -> Texts:
    """Return what execution adds to a source node; the times of several executed nodes are added."""
    parts: dict[str, list[float | None]] = {
        "node_latency_us": [row["node_latency_us"] for row in rows],
        "latency_share": [row["latency_share"] for row in rows],
        "energy_uj": [energy_uj.get(row["executed_node"]) for row in rows],
    }
    known = {name: [value for value in values if value is not None] for name, values in parts.items()}
    added = {name: sum(values) for name, values in known.items() if len(values) == len(rows)}
    names = {"executed_node": ", ".join(row["executed_node"] for row in rows)}
    return names | _texts(added, added) | (_texts(rows[0], OF_ONE) if len(rows) == 1 else {})


def model_texts(nodes: Sequence[OpRooflineRow]) -> Texts:
    """Return the time that no node of the model's graph has: that of inserted nodes, and the gap."""
    names = {"inserted": "inserted_nodes_latency_us", "gap": "gap_us"}
    sums = dict.fromkeys(names.values(), 0.0)
    for row in nodes:
        if row["row_kind"] in names:
            sums[names[row["row_kind"]]] += row["node_latency_us"] or 0.0
    return _texts(sums, sums)


def _texts(row: Mapping[str, object], names: Iterable[str]) -> Texts:
    facts = known_facts(row, names)
    return {name: f"{value:.9g}" if isinstance(value, float) else str(value) for name, value in facts.items()}


def main_sources(nodes: Iterable[OpRooflineRow], metrics: Iterable[OpMetricsRow]) -> dict[str, str]:
    """Return the source node of most MACs, then most FLOPs, then most bytes, by executed node; the first of equals."""
    work = {row["source_node"]: (row["macs"] or 0, row["flops"] or 0, row["bytes"] or 0) for row in metrics}
    owned = ((row["executed_node"], row["source_nodes"]) for row in nodes if row["source_nodes"])
    return {name: max(sources, key=lambda source: work.get(source, ())) for name, sources in owned}

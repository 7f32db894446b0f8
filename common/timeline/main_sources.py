"""Which source node stands for an executed node where a time can stand at one source node only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def main_sources(nodes: Iterable[Row], metrics: Iterable[Row]) -> dict[str, str]:
    """Return the source node of most MACs, then most FLOPs, then most bytes, by executed node; the first of equals.

    Args:
        nodes: rows of op_roofline; what the runtime inserted has no source node, and is left out.
        metrics: rows of op_metrics.
    """
    work = {row["source_node"]: tuple(row[name] or 0 for name in ("macs", "flops", "bytes")) for row in metrics}
    owned = ((row["executed_node"], row["source_nodes"]) for row in nodes if row["source_nodes"])
    return {name: max(sources, key=lambda source: work.get(source, ())) for name, sources in owned}

"""Which source node stands for an executed node where a time can stand at one source node only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.table_rows import OpMetricsRow, OpRooflineRow


def main_sources(nodes: Iterable[OpRooflineRow], metrics: Iterable[OpMetricsRow]) -> dict[str, str]:
    """Return the source node of most MACs, then most FLOPs, then most bytes, by executed node; the first of equals."""
    work = {row["source_node"]: (row["macs"] or 0, row["flops"] or 0, row["bytes"] or 0) for row in metrics}
    owned = ((row["executed_node"], row["source_nodes"]) for row in nodes if row["source_nodes"])
    return {name: max(sources, key=lambda source: work.get(source, ())) for name, sources in owned}

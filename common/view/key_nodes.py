"""The slowest nodes, with the same number and label in every picture and table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

COUNT = 10


@dataclass(frozen=True, slots=True)
class KeyNode:
    """One of the slowest nodes; ``number`` is its rank and its mark in the pictures."""

    number: int
    name: str
    label: str
    latency_us: float


def rank_nodes(nodes: pd.DataFrame, labels: Mapping[str, str], count: int = COUNT) -> tuple[KeyNode, ...]:
    """Rank the slowest nodes; the gap and nodes that the profiler's correction dominates are left out.

    Args:
        nodes: a table of executed nodes with their latencies.
        labels: of every executed node.
        count: most nodes to rank.
    """
    ranked = nodes
    if "row_kind" in nodes:
        ranked = ranked[ranked["row_kind"] != "gap"]
    if "is_correction_dominated" in nodes:
        ranked = ranked[~ranked["is_correction_dominated"]]
    ranked = ranked.nlargest(count, "node_latency_us", keep="first")
    return tuple(
        KeyNode(number, row["executed_node"], labels[row["executed_node"]], float(row["node_latency_us"]))
        for number, row in enumerate(ranked.to_dict("records"), start=1)
    )

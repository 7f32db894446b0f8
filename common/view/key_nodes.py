"""The slowest nodes, with the same number and label in every picture and table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, cast

COUNT = 10


class RankedRow(TypedDict):
    """Columns of every table of executed nodes with times; some mark the gap and what the correction dominates."""

    executed_node: str
    node_latency_us: float


@dataclass(frozen=True, slots=True)
class KeyNode:
    """One of the slowest nodes; ``number`` is its rank and its mark in the pictures."""

    number: int
    name: str
    label: str
    latency_us: float


def rank_nodes(nodes: Iterable[RankedRow], labels: Mapping[str, str], count: int = COUNT) -> tuple[KeyNode, ...]:
    """Rank the slowest nodes; the gap and nodes that the profiler's correction dominates are left out.

    Args:
        labels: of every executed node.
    """
    slowest_first = sorted(filter(_is_ranked, nodes), key=lambda row: -row["node_latency_us"])
    return tuple(
        KeyNode(number, row["executed_node"], labels[row["executed_node"]], row["node_latency_us"])
        for number, row in enumerate(slowest_first[:count], start=1)
    )


def _is_ranked(row: RankedRow) -> bool:
    cells = cast("Mapping[str, Any]", row)  # tables differ in what they say of a node
    return cells.get("row_kind") != "gap" and not cells.get("is_correction_dominated", False)

"""Executed nodes: the slowest ones, with one number and label in every picture, and groups by operator type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, TypedDict, cast

from common.messages.host_doubts import EXPECTED_GAP_SHARE
from common.table_rows import OpRooflineRow
from common.view.text import percent

COUNT = 10  # of the slowest nodes


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


class TimedRow(RankedRow):
    """The common columns of executed nodes and their gap."""

    op_type: str
    row_kind: str
    latency_share: float


@dataclass(frozen=True, slots=True)
class OperatorTypeTotals:
    """Sums over the executed nodes of one operator type.

    ``roof_share`` is the time at the roof divided by the time taken; ``bound`` is the one with most of the time, and
    ``bounds`` are all. Rates and the share hold for all nodes: they are None where the work of a node is unknown, or
    where the profiler's correction dominates every node.
    """

    name: str
    node_count: int
    latency_us: float
    latency_share: float
    flops: float | None
    attained_flop_per_s: float | None
    attained_bytes_per_s: float | None
    roof_share: float | None
    bound: str
    bounds: tuple[str, ...]


def rank_nodes(nodes: Iterable[RankedRow], labels: Mapping[str, str], count: int = COUNT) -> tuple[KeyNode, ...]:
    """Rank the slowest nodes; the gap and nodes that the profiler's correction dominates are left out."""
    rows = cast("Iterable[Mapping[str, Any]]", nodes)  # tables differ in what they say of a node
    ranked = [row for row in rows if row.get("row_kind") != "gap" and not row.get("is_correction_dominated")]
    slowest_first = sorted(ranked, key=lambda row: -row["node_latency_us"])
    return tuple(
        KeyNode(number, row["executed_node"], labels[row["executed_node"]], row["node_latency_us"])
        for number, row in enumerate(slowest_first[:count], start=1)
    )


def by_op_type(roofline: Iterable[OpRooflineRow]) -> list[OperatorTypeTotals]:
    """Return the totals of each operator type, the slowest first; the gap is left out."""
    nodes = sorted((row for row in roofline if row["row_kind"] != "gap"), key=itemgetter("op_type"))
    totals = [_totals(op_type, [*rows]) for op_type, rows in groupby(nodes, itemgetter("op_type"))]
    return sorted(totals, key=lambda total: -total.latency_us)


def _totals(name: str, rows: Sequence[OpRooflineRow]) -> OperatorTypeTotals:
    latency_us = sum(row["node_latency_us"] for row in rows)
    flops = [row["flops"] for row in rows if row["flops"] is not None]
    moved = [row["bytes"] for row in rows if row["bytes"] is not None]
    is_known = len(flops) == len(moved) == len(rows) and not all(row["is_correction_dominated"] for row in rows)
    per_s = 1e6 / latency_us if is_known and latency_us > 0 else None
    known = [(share, row["node_latency_us"]) for row in rows if (share := row["roof_share"]) is not None]
    reached_us, known_us = sum(share * time_us for share, time_us in known), sum(time_us for _, time_us in known)
    return OperatorTypeTotals(
        name=name,
        node_count=len(rows),
        latency_us=latency_us,
        latency_share=sum(row["latency_share"] for row in rows),
        flops=float(sum(flops)) if flops else None,
        attained_flop_per_s=per_s and sum(flops) * per_s,
        attained_bytes_per_s=per_s and sum(moved) * per_s,
        roof_share=reached_us / known_us if per_s and known_us > 0 else None,
        bound=main_bound(rows),
        bounds=tuple(sorted({row["bound"] for row in rows if row["bound"]})),
    )


def main_bound(rows: Iterable[OpRooflineRow]) -> str:
    """Return the bound that most of the time has; empty where none is known."""
    times_us: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        times_us[row["bound"]] += row["node_latency_us"]
    return max(sorted({*times_us} - {""}), key=lambda bound: times_us[bound], default="")


def gap_share(nodes: Iterable[TimedRow]) -> float:
    """Return the gap's share of the latency; 0 where the table has no gap."""
    return sum(row["latency_share"] for row in nodes if row["row_kind"] == "gap")


def leading_gap(nodes: Sequence[TimedRow]) -> float | None:
    """Return the gap's share of the latency where it comes before any operator; None where it does not.

    It does if it takes more than any operator type. It also does if the node times exceed the latency, which is then
    no whole that they are parts of.
    """
    gap, of_type = gap_share(nodes), defaultdict[str, float](float)
    for row in nodes:
        if row["row_kind"] != "gap":
            of_type[row["op_type"]] += row["latency_share"]
    return gap if gap < EXPECTED_GAP_SHARE[0] or gap > max(of_type.values(), default=0.0) else None


def gap_text(gap: float) -> str:
    """Return what a gap of this share of the latency says."""
    if gap < 0:
        return f"Node times exceed the unprofiled median by {percent(-gap, 0)}"
    return f"The gap between nodes takes {percent(gap, 0)} of the latency"

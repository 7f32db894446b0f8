"""What the tables tell of each executed node, and the graph that the nodes form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from common.bottlenecks.rules import Facts
from common.names import quoted

if TYPE_CHECKING:
    from common.table_rows import ExecutedEdgesRow, LatencySummaryDocument, OpLatencyRow, OpRooflineRow

CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class ExecutedGraph:
    """The executed nodes with their figures, and the tensors between them.

    Attributes:
        nodes: figures of each node by table, in execution order.
        returning: nodes with a result that the model returns.
        tensors: (producer, consumer, bytes) of each tensor between two nodes.
        median_us: median of the unprofiled runs; None where no table tells it.
    """

    nodes: Mapping[str, Facts]
    readers: Mapping[str, Sequence[str]]
    writers: Mapping[str, Sequence[str]]
    returning: frozenset[str] = frozenset()
    tensors: Sequence[tuple[str, str, int | None]] = ()
    median_us: float | None = None
    gap_us: float = 0.0

    @cached_property
    def types(self) -> Mapping[str, str]:
        return {name: facts["op_roofline"]["op_type"] for name, facts in self.nodes.items()}


def executed_graph(
    roofline: Iterable[OpRooflineRow],
    latencies: Iterable[OpLatencyRow],
    edges: Iterable[ExecutedEdgesRow],
    summary: LatencySummaryDocument | None,
) -> ExecutedGraph:
    rows = list(roofline)
    timed = {row["executed_node"]: row for row in latencies}
    nodes = {
        row["executed_node"]: _facts(row, timed.get(row["executed_node"]), summary)
        for row in sorted(
            (row for row in rows if row["row_kind"] != "gap"), key=lambda row: row["execution_index"] or 0
        )
    }
    inner = [edge for edge in edges if edge["producer"] in nodes]
    tensors = [
        (edge["producer"], edge["consumer"], edge["tensor_bytes"]) for edge in inner if edge["consumer"] in nodes
    ]
    readers: dict[str, list[str]] = {name: [] for name in nodes}
    writers: dict[str, list[str]] = {name: [] for name in nodes}
    for producer, consumer, _ in tensors:
        readers[producer].append(consumer)
        writers[consumer].append(producer)
    return ExecutedGraph(
        nodes,
        readers,
        writers,
        frozenset(edge["producer"] for edge in inner if edge["consumer"] not in nodes),
        tensors,
        summary["p50_us"] if summary else None,
        next((row["node_latency_us"] for row in rows if row["row_kind"] == "gap"), 0.0),
    )


def _facts(row: OpRooflineRow, timed: OpLatencyRow | None, summary: LatencySummaryDocument | None) -> Facts:
    provider, threads = (summary["provider"], summary["threads"]) if summary else ("", None)
    shapes = (timed["output_shapes"] if timed else None) or [None]
    return {
        "op_roofline": {**row, "unpadded_share": _ratio(row["macs"], row["executed_macs"]), "roof_us": _at_roof(row)},
        "op_latency": {
            **(dict(timed) if timed else {}),
            "fastest_share": _ratio(timed["corrected_min_us"], timed["corrected_median_us"]) if timed else None,
            "is_fallback": timed is not None and timed["provider"] == CPU and provider not in ("", CPU),
            "result_axis_count": None if shapes[0] is None else len(shapes[0]),
        },
        "latency_summary": {"threads": threads, "one_thread_share": 1 / threads if threads else None},
    }


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _at_roof(row: OpRooflineRow) -> float | None:
    share = row["roof_share"]
    return None if share is None else row["node_latency_us"] * min(share, 1.0)


def interval_us(facts: Facts) -> tuple[float, float, float]:
    """Return the interval of a node's time and its median: low, likely, high.

    Half its width is that of the 95 % interval of a median of n normal samples, 1.96 · sqrt(π / 2n) of their standard
    deviation (Kenney, Keeping 1962, Mathematics of Statistics, part 1), and the quartiles of the correction. It ends
    at the fastest run and the 95th percentile: no median lies beyond them. A profile from elsewhere with one figure per
    node tells of no interval.
    """
    likely = facts["op_roofline"]["node_latency_us"]
    row = facts["op_latency"]
    if row.get("corrected_min_us") is None:
        return likely, likely, likely
    count, deviation = row["sample_count"], row["corrected_std_us"]
    half = 1.96 * math.sqrt(math.pi / (2 * count)) * deviation if deviation is not None and count else math.inf
    correction, least, most = (row[f"correction{end}_us"] or 0.0 for end in ("", "_low", "_high"))
    low = max(min(row["corrected_min_us"], likely), likely - half - max(0.0, most - correction), 0.0)
    high = min(max(row["corrected_p95_us"], likely), likely + half + max(0.0, correction - least))
    return low, likely, high


def label(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes from {quoted(nodes[0])}"

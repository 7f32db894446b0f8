"""The figures of each executed node in the tables, and the graph that the nodes form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from common.bottlenecks.rules import Facts
from common.graphs.operators import CONVOLUTIONS, DEQUANTIZE, NCHWC
from common.graphs.sums import ratio
from common.messages.names import quoted
from common.table_rows import LatencySummaryDocument, OpLatencyRow, OpRooflineRow, Tables

CPU = "CPUExecutionProvider"
NORM = "BatchNormalization"
FLOAT_CONVOLUTIONS = ("Conv", "FusedConv")
BLOCK = 16  # channels of the blocked layout's larger block, which suits both widths of vectors
MAP_AXES = 4  # of maps: images, channels, rows, columns


@dataclass(frozen=True, slots=True)
class ExecutedNode:
    """An executed node: its rows, and the figures that follow from them, by table."""

    row: OpRooflineRow
    timed: OpLatencyRow | None
    facts: Facts


@dataclass(frozen=True)
class ExecutedGraph:
    """The executed nodes with their figures, in execution order, and the tensors between them."""

    nodes: Mapping[str, ExecutedNode]
    readers: Mapping[str, Sequence[str]]
    writers: Mapping[str, Sequence[str]]
    returning: frozenset[str] = frozenset()  # nodes with a result that the model returns
    tensors: Sequence[tuple[str, str, int | None]] = ()  # (producer, consumer, bytes) of each tensor between two nodes
    median_us: float | None = None  # median of the unprofiled runs; None where no table has it
    gap_us: float = 0.0

    @property
    def whole_us(self) -> float:
        """The latency that no gain exceeds: the median, or where no table has it, the times of all nodes."""
        return self.median_us or sum(node.row["node_latency_us"] for node in self.nodes.values())

    @cached_property
    def types(self) -> Mapping[str, str]:
        return {name: node.row["op_type"] for name, node in self.nodes.items()}


def executed_graph(tables: Tables, summary: LatencySummaryDocument | None) -> ExecutedGraph:
    rows = tables.get("op_roofline", [])
    timed = {row["executed_node"]: row for row in tables.get("op_latency", ())}
    executed = sorted((row for row in rows if row["row_kind"] != "gap"), key=lambda row: row["execution_index"] or 0)
    names = {row["executed_node"]: row["op_type"] for row in executed}
    inner = [edge for edge in tables.get("executed_edges", ()) if edge["producer"] in names]
    tensors = [
        (edge["producer"], edge["consumer"], edge["tensor_bytes"]) for edge in inner if edge["consumer"] in names
    ]
    returning = frozenset(edge["producer"] for edge in inner if edge["consumer"] not in names)
    between = {consumer for _, consumer, _ in tensors} - returning
    dequantized = {consumer for producer, consumer, _ in tensors if names[producer] == DEQUANTIZE}
    nodes = {
        (name := row["executed_node"]): _node(row, timed.get(name), summary, name not in between, name in dequantized)
        for row in executed
    }
    readers: dict[str, list[str]] = {name: [] for name in nodes}
    writers: dict[str, list[str]] = {name: [] for name in nodes}
    for producer, consumer, _ in tensors:
        readers[producer].append(consumer)
        writers[consumer].append(producer)
    return ExecutedGraph(
        nodes,
        readers,
        writers,
        returning,
        tensors,
        summary["p50_us"] if summary else None,
        next((row["node_latency_us"] for row in rows if row["row_kind"] == "gap"), 0.0),
    )


def _node(
    row: OpRooflineRow,
    timed: OpLatencyRow | None,
    summary: LatencySummaryDocument | None,
    is_at_border: bool,
    is_dequantized: bool,
) -> ExecutedNode:
    """Return a node with its figures; it is at a border if it reads no other node, or the model returns its result.

    ``is_dequantized``: it reads integers that were dequantized; no mend of a layout helps such a convolution.
    """
    provider, threads = (summary["provider"], summary["threads"]) if summary else ("", None)
    channels = _channels_read(timed)
    is_in_plain_fp32 = row["domain"] != NCHWC and row["dtype"] == "float32" and not is_dequantized
    is_unblocked = channels is not None and is_in_plain_fp32
    share = row["roof_share"]
    roof_us = None if share is None else row["node_latency_us"] * min(share, 1.0)
    facts: Facts = {
        "op_roofline": {
            **row,
            "unpadded_share": ratio(row["macs"] or None, row["executed_macs"]),
            "roof_us": roof_us,
            "unblocked_roof_us": roof_us if is_unblocked else None,
            "wide_roof_us": roof_us if row["dtype"] == "float64" else None,
            "whole_block_us": _in_whole_blocks(roof_us, channels) if is_unblocked else None,
            "is_normalization": row["op_type"] in CONVOLUTIONS and not row["macs"] and NORM in row["op_types"],
        },
        "op_latency": {
            **(dict(timed) if timed else {}),
            "fastest_share": ratio(timed["corrected_min_us"], timed["corrected_median_us"]) if timed else None,
            "is_fallback": timed is not None and timed["provider"] == CPU and provider not in ("", CPU),
            "is_unblocked": is_unblocked,
            "read_channel_count": channels,
            "filled_share": channels / (BLOCK * -(-channels // BLOCK)) if channels else None,
        },
        "executed_edges": {"is_at_border": is_at_border},
        "latency_summary": {
            "threads": threads,
            "one_thread_share": 1 / threads if threads else None,
            "graph_optimization": summary["graph_optimization"] if summary else None,
        },
    }
    return ExecutedNode(row, timed, facts)


def _channels_read(timed: OpLatencyRow | None) -> int | None:
    """Return the channels of the maps that a convolution reads on the processor; None for any other node.

    The runtime drops weights that it has packed from the shapes of a node, but never the maps, which come first.
    """
    if timed is None or timed["op_type"] not in FLOAT_CONVOLUTIONS or timed["provider"] != CPU:
        return None
    shapes = timed["input_shapes"] or [None]
    channels = shapes[0][1] if shapes[0] is not None and len(shapes[0]) == MAP_AXES else None
    return channels if isinstance(channels, int) else None


def _in_whole_blocks(roof_us: float | None, channels: int | None) -> float | None:
    """Return the time at the roof with as many channels, read and written, as whole blocks hold."""
    if roof_us is None or not channels or channels < BLOCK:
        return None
    return roof_us * float(BLOCK * (channels // BLOCK) / channels) ** 2


def interval_us(node: ExecutedNode) -> tuple[float, float, float]:
    """Return the interval of a node's time and its median: low, likely, high.

    Half its width is that of the 95 % interval of a median of n normal samples, 1.96 · sqrt(π / 2n) of their standard
    deviation (Kenney, Keeping 1962, Mathematics of Statistics, part 1), and the quartiles of the correction. It ends
    at the fastest run and the 95th percentile: no median is beyond them. A profile from elsewhere with one figure per
    node gives no interval.
    """
    row, likely = node.timed, node.row["node_latency_us"]
    if row is None or (fastest := row["corrected_min_us"]) is None or (p95 := row["corrected_p95_us"]) is None:
        return likely, likely, likely
    count, deviation = row["sample_count"], row["corrected_std_us"]
    half = 1.96 * math.sqrt(math.pi / (2 * count)) * deviation if deviation is not None and count else math.inf
    ends = row["correction_us"], row["correction_low_us"], row["correction_high_us"]
    correction, least, most = (end or 0.0 for end in ends)
    low = max(min(fastest, likely), likely - half - max(0.0, most - correction), 0.0)
    return low, likely, min(max(p95, likely), likely + half + max(0.0, correction - least))


def label(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes from {quoted(nodes[0])}"

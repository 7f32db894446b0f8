"""Synthetic tables of 03 for the critical path: a residual block with a branch, all latencies prime.

stem -> left_a -> left_b -> add -> tail        left: 23 + 29 = 52
   \\-> right ---------------/                  right: 37
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from common.artifacts.transaction import Transaction
from tests.support.tables.energy import MODEL_ID, provenance, roofline_row

GAP_US = 13.0
# name, operator, latency µs, in execution order
NODES: tuple[tuple[str, str, float], ...] = (
    ("stem", "Conv", 101.0),
    ("left_a", "Conv", 23.0),
    ("right", "MaxPool", 37.0),
    ("left_b", "Conv", 29.0),
    ("add", "Add", 7.0),
    ("tail", "Gemm", 11.0),
)
EDGES = (
    ("", "stem"),
    ("stem", "left_a"),
    ("stem", "right"),
    ("left_a", "left_b"),
    ("left_b", "add"),
    ("right", "add"),
    ("add", "tail"),
    ("tail", ""),
)


def write_executed(
    folder: Path,
    nodes: Sequence[tuple[str, str, float]] = NODES,
    edges: Sequence[tuple[str, str]] = EDGES,
    *,
    gap_us: float | None = GAP_US,
    rows: dict[str, dict[str, Any]] | None = None,
    model_id: str = MODEL_ID,
) -> None:
    """Write op_roofline and executed_edges, as 03 would.

    Args:
        folder: folder of the tables.
        nodes: (name, operator, latency in µs), in execution order.
        edges: (producer, consumer), each a tensor of its own.
        gap_us: the gap row; None writes none.
        rows: cells of op_roofline to change, by node and column.
        model_id: what the sidecars say.
    """
    table = [
        roofline_row((name, "node", op_type, latency_us, 2, 3, 5, 7)) | {"execution_index": index}
        for index, (name, op_type, latency_us) in enumerate(nodes)
    ]
    if gap_us is not None:
        table.append(roofline_row(("(gap)", "gap", "", gap_us, None, None, None, None)))
    changed = [row | (rows or {}).get(row["executed_node"], {}) for row in table]
    flow = [
        {"tensor": f"t{index}", "producer": producer, "consumer": consumer, "tensor_bytes": 4}
        for index, (producer, consumer) in enumerate(edges)
    ]
    with Transaction(folder, provenance("03_merge_profile_metrics.py", model_id=model_id)) as transaction:
        transaction.add_table("op_roofline", pd.DataFrame(changed))
        transaction.add_table(
            "executed_edges", pd.DataFrame(flow, columns=["tensor", "producer", "consumer", "tensor_bytes"])
        )

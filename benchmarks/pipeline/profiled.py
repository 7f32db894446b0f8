"""Write the tables of stage 01 with made-up latencies, for models that would take too long to run.

The executed graph is the model's own, in which each product absorbs its scale under a new name, as the runtime does it.
Every node gets a latency from a fixed pattern. The tables of stage 02 are real, and the tables are written with the
checks of a transaction.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import onnx
import pandas as pd

from common.artifacts import provenance
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.columns import JSON_KINDS, Column
from common.artifacts.folder import Folder
from common.artifacts.frames import records
from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from common.onnx_graph.reading.scan import scan
from common.process.host_identity import host_identity
from common.table_rows import LatencySummaryDocument

EMPTY: dict[str, Any] = {"string": "", "integer": 0, "number": 0.0, "boolean": False, **dict.fromkeys(JSON_KINDS, ())}
RUNS = 10
GAP_US = 5.0
PATTERN_US = (1.0, 3.0, 2.0, 7.0, 5.0)


def fuse_scales(graph: onnx.GraphProto) -> None:
    """Fuse into each product the multiplication by a weight that is the only reader of its result."""
    weights = {tensor.name for tensor in graph.initializer}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    kept, fused = [], set()
    for node in graph.node:
        after = readers.get(node.output[0], ())
        if node.op_type == "MatMul" and len(after) == 1 and after[0].op_type == "Mul" and weights & {*after[0].input}:
            kept.append(_scaled(node, after[0]))
            fused.add(after[0].name)
        elif node.name not in fused:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def _scaled(product: onnx.NodeProto, scale: onnx.NodeProto) -> onnx.NodeProto:
    name = f"{product.name}/MatMulScaleFusion"
    return onnx.helper.make_node("FusedMatMul", product.input, scale.output, name, domain="com.microsoft", alpha=0.5)


def latency_rows(nodes: Iterable[onnx.NodeProto], writers: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of op_latency, one per executed node; types and shapes are those of its source node."""
    rows = []
    for index, node in enumerate(nodes):
        source, latency_us = writers[node.output[0]], PATTERN_US[index % len(PATTERN_US)]
        known = {
            "executed_node": node.name,
            "op_type": node.op_type,
            "execution_index": index,
            "input_count": len(node.input),
            "output_shapes": source["output_shapes"],
            "output_dtypes": [source["dtype"]] * len(source["output_shapes"]),
            "sample_count": RUNS,
            "events_per_run_count": 1,
            "raw_total_us": RUNS * latency_us,
            "raw_median_us": latency_us,
            "corrected_median_us": latency_us,
        }
        rows.append({**empty(ARTIFACTS["op_latency"].columns), **known})
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a latency_summary in which only these nodes and a small gap take time."""
    known = {
        "threads": 1,
        "sample_count": RUNS,
        "profiled_sample_count": RUNS,
        "p50_us": sum(row["corrected_median_us"] for row in rows) + GAP_US,
        "trace_total_us": sum(row["raw_total_us"] for row in rows),
        "trace_event_count": RUNS * len(rows),
        "counts_for_limits": {},
    }
    return {**empty(ARTIFACTS["latency_summary"].columns), **known}


def empty(columns: Iterable[Column]) -> dict[str, Any]:
    """Return a neutral value for every column: unknown where that is allowed."""
    return {
        column.name: column.allowed[0] if column.allowed else None if column.nullable else EMPTY[column.kind]
        for column in columns
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(argv)
    metrics = records(Folder(given.folder, Provenance("", "")).table("op_metrics"))
    counted = provenance.load(given.folder / ARTIFACTS["op_metrics"].file, "run 02_shapes_flops_bytes.py")
    model = scan(given.model).model
    by_name = {row["source_node"]: row for row in metrics}
    writers = {node.output[0]: by_name[node.name] for node in model.graph.node}
    fuse_scales(model.graph)
    rows = latency_rows(model.graph.node, writers)
    record = Provenance("01_profile_onnx.py", "made up", host=host_identity(), notes=["latencies are made up"])
    record.model_id, record.model_path, record.dimensions = counted.model_id, counted.model_path, counted.dimensions
    with Transaction(given.folder, record) as transaction:
        transaction.add_table("op_latency", pd.DataFrame(rows))
        transaction.add_document("latency_summary", cast("LatencySummaryDocument", summary(rows)))
        transaction.add_bytes("executed_graph", model.SerializeToString())


if __name__ == "__main__":
    main()

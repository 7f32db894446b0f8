"""The rows that 02 writes of a model, without its command line."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from common.graphs.source_graph import SourceGraph, from_rows
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import load_model
from common.onnx_graph.rows import edge_rows, metrics_row

SIZES = {  # of every model of ours: 23 new tokens after five
    **{"batch": 2, "N": 2, "seq": 23, "past": 5, "frames": 29, "prefix": 31},
    **{"sequence_length": 23, "past_sequence_length": 5, "total_sequence_length": 28},
}


def source_rows(proto: onnx.ModelProto, **dimensions: int) -> tuple[list[dict[str, Any]], SourceGraph]:
    """Rows of op_metrics and the source graph; of the dimensions, those that the model has are bound."""
    named = {dim.dim_param for value in proto.graph.input for dim in value.type.tensor_type.shape.dim}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(proto, path)
        return source_rows_of_file(path, {name: size for name, size in dimensions.items() if name in named})


def source_rows_of_file(path: Path, dimensions: Mapping[str, int]) -> tuple[list[dict[str, Any]], SourceGraph]:
    """Rows of op_metrics and the source graph of a model file."""
    model = load_model(path, dimensions, symbolic=True)
    counts = {count.node.name: count for count in count_nodes(model.graph, model.bounds)}
    metrics = [metrics_row(model, count) for count in counts.values()]
    return metrics, from_rows(metrics, edge_rows(model.graph, counts))

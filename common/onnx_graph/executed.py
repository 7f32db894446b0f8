"""The graph that ONNX Runtime made of a model: stripped of its weights, loaded, and sized by what the trace saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common.errors import UpstreamError
from common.graph import Graph
from common.onnx_graph.dtypes import stored_bytes
from common.onnx_graph.load import bind_all, to_graph
from common.onnx_graph.scan import scan


def without_weights(path: Path, traced: Iterable[tuple[str, str]]) -> bytes:
    """The model at ``path`` as bytes: large tensors reduced to name, type and shape, every node with a name.

    The runtime saves an unnamed node without a name, but traces it as ``OpType_index`` with an index of its own; it
    gets the traced name back: those of one operator type in the order of their execution.

    Args:
        path: the graph that the runtime saved.
        traced: (name, op_type) of the traced nodes, in the order of their execution.
    """
    model = scan(path).model
    for tensor in model.graph.initializer:
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    saved = {node.name for node in model.graph.node}
    unnamed = [(name, op_type) for name, op_type in traced if name not in saved]
    for node in model.graph.node:
        if not node.name:
            node.name = next((name for name, op_type in unnamed if op_type == node.op_type), "")
            unnamed = [entry for entry in unnamed if entry[0] != node.name]
    return bytes(model.SerializeToString(deterministic=True))


def load_executed_graph(path: Path, dimensions: Mapping[str, int]) -> Graph:
    """Load the graph that ONNX Runtime saved; shapes are those it wrote into the file, its symbols bound."""
    model = scan(path).model
    bind_all(model, dimensions)
    return to_graph(model.graph)


def executed_sizes(executed: Graph, traced: Iterable[Mapping[str, Any]]) -> dict[str, int | None]:
    """Bytes of every tensor: as the saved file declares them, or as the trace saw them (the file has few shapes).

    Args:
        executed: the graph.
        traced: mappings with ``executed_node``, ``output_dtypes`` and ``output_shapes``.
    """
    sizes = {name: tensor.size_bytes for name, tensor in executed.tensors.items()}
    for row in traced:
        node = executed.by_name.get(row["executed_node"])
        if node is None:
            remedy = "both files must come from one run of 01_profile_onnx.py"
            raise UpstreamError("op_latency.csv", f"{row['executed_node']} is not in the executed graph", remedy)
        names = node.outputs
        for name, dtype, shape in zip(names, row["output_dtypes"], row["output_shapes"], strict=False):
            sizes[name] = stored_bytes(dtype, shape)
    return sizes


def edge_rows(executed: Graph, sizes: Mapping[str, int | None], timed: Set[str]) -> list[dict[str, Any]]:
    """Every tensor between two nodes that ran, and the graph's own inputs and outputs."""
    ends = timed | {""}
    edges = (edge for edge in executed.edges() if edge.producer in ends and edge.consumer in ends)
    return [{**asdict(edge), "tensor_bytes": sizes[edge.tensor]} for edge in edges]

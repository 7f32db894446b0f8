"""Rows of op_metrics and op_edges: what is known of every node of a model, and of the tensors between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from common.graphs.graph import Count, Graph, is_symbolic
from common.onnx_graph.attributes import reported_attributes, window
from common.onnx_graph.counts import NodeCount
from common.onnx_graph.load import LoadedModel
from common.onnx_graph.symbols.symbolic import expression, number
from common.table_rows import OpEdgesRow, OpMetricsRow, Shape


def metrics_row(model: LoadedModel, count: NodeCount, part: str = "") -> OpMetricsRow:
    """Return the row of a node; ``part`` is the part of a generative model that it belongs to."""
    graph, node, gemm = model.graph, count.node, count.work.gemm
    outputs = [graph.tensors[name] for name in node.outputs if name]
    macs, flops, moved = (count.figure(name) for name in ("macs", "flops", "bytes"))
    weights, read, written = (count.figure(f"{name}_bytes") for name in ("weight", "input", "output"))
    kernel_shape, strides, groups = window(graph, node)
    return {
        "source_node": node.name,
        "op_type": node.op_type,
        "domain": node.domain,
        "body": node.body,
        "model_part": part,
        "execution_count": number(count.execution_count),
        "dtype": outputs[0].dtype if outputs else "",
        "input_shapes": [_dims(graph.tensors[name].shape) if name else None for name in node.inputs],
        "output_shapes": [_dims(tensor.shape) for tensor in outputs],
        "kernel_shape": kernel_shape,
        "strides": strides,
        "groups": groups,
        "attributes": reported_attributes(graph, node, model.opsets, model.operand_values),
        "batch_count": number(gemm.batch) if gemm else None,
        "m_count": number(gemm.m) if gemm else None,
        "k_count": number(gemm.k) if gemm else None,
        "n_count": number(gemm.n) if gemm else None,
        "macs": number(macs),
        "flops": number(flops),
        "dequantized_weight_count": number(count.figure("dequantized")),
        "weight_bytes": number(weights),
        "input_bytes": number(read),
        "output_bytes": number(written),
        "bytes": number(moved),
        "is_counted": count.work.is_counted,
        "upper_bound_macs": number(count.bounds.get("macs")),
        "upper_bound_flops": number(count.bounds.get("flops")),
        "upper_bound_bytes": number(count.bounds.get("bytes")),
        "is_in_bound": count.is_in_bound,
        "macs_expression": expression(macs),
        "flops_expression": expression(flops),
        "weight_bytes_expression": expression(weights),
        "input_bytes_expression": expression(read),
        "output_bytes_expression": expression(written),
        "bytes_expression": expression(moved),
    }


def _dims(shape: tuple[Count | None, ...] | None) -> Shape | None:
    if shape is None or not any(map(is_symbolic, shape)):
        return shape
    return [str(dim) if is_symbolic(dim) else dim for dim in shape]


def edge_rows(graph: Graph, counts: Mapping[str, NodeCount]) -> Iterator[OpEdgesRow]:
    """Yield the rows of op_edges: what the consumer reads of each tensor in one run, and what the producer writes."""
    for edge in graph.edges():
        tensor = graph.tensors[edge.tensor]
        size = tensor.size_bytes
        yield {
            "tensor": edge.tensor,
            "producer": edge.producer,
            "consumer": edge.consumer,
            "tensor_bytes": number(size),
            "read_bytes": number(counts[edge.consumer].read_bytes(edge.tensor) if edge.consumer else size),
            "written_bytes": number(counts[edge.producer].written_bytes(edge.tensor) if edge.producer else 0),
            "dtype": tensor.dtype,
            "tensor_kind": tensor.kind,
        }

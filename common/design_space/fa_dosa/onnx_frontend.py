"""From an ONNX file to FA-DOSA's graph, through the project's own reader: every operator that it counts is a layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from common.design_space.fa_dosa.accounting import ACTIVATED, fa_dosa_kernels
from common.design_space.fa_dosa.graph import WINDOW, ComputationGraph
from common.graphs.source_graph import SourceGraph, from_rows
from common.messages.errors import PipelineError
from common.messages.names import shown
from common.table_rows import OpMetricsRow
from common.workload.layer_rows import layers_by_node
from common.workload.layers import Layer, Pooling
from common.workload.loop_nests import LoopNest
from common.workload.nest_rows import nests_by_node

Figure = Literal["macs", "input_bytes", "weight_bytes", "output_bytes"]
FIGURES: tuple[Figure, ...] = ("macs", "input_bytes", "weight_bytes", "output_bytes")  # of a row, that must be known


def parse_onnx_to_graph(path: str | PathLike[str], dimensions: Mapping[str, int] | None = None) -> ComputationGraph:
    """Return the graph of an ONNX file, with a group for each contraction and what can be fused behind it.

    Args:
        dimensions: sizes of the dimensions that the file leaves open.

    Raises:
        PipelineError: the file cannot be used as an ONNX model, or a size depends on data.
        UnusableValueError: a dimension is open, or is not one of the model's.
    """
    from common.onnx_graph.counts import count_nodes  # here, because stages on tables need no onnx
    from common.onnx_graph.load import load_model
    from common.onnx_graph.malformed import names_model
    from common.onnx_graph.rows import edge_rows, metrics_row

    model = load_model(Path(path), dimensions or {})
    with names_model(Path(path)):
        counts = {count.node.name: count for count in count_nodes(model.graph, model.bounds)}
        metrics: list[Any] = [metrics_row(model, count) for count in counts.values()]
    return graph_of_rows(metrics, from_rows(metrics, edge_rows(model.graph, counts)))


def graph_of_rows(metrics: Iterable[OpMetricsRow], source: SourceGraph) -> ComputationGraph:
    """Return the graph of a model from its op_metrics and its source graph; PipelineError if a size depends on data."""
    rows = {row["source_node"]: row for row in metrics}
    layers, nests = layers_by_node(rows.values(), source), nests_by_node(rows.values(), source)
    graph = ComputationGraph()
    for name, row in rows.items():
        nest = nests[name][0] if nests[name] else _nest(layers[name] or (), row)
        dims = nest.bounds | {name: getattr(nest, name) for name in WINDOW}
        macs, *sizes = (_known(row, figure) for figure in FIGURES)
        of_kind = dict(zip(("input", "weight", "output"), sizes, strict=True))
        graph.add_layer(name, dims, row["op_type"], macs=macs, tensor_bytes=of_kind)
    for tensor, writer in source.producer.items():
        for reader in source.consumers.get(tensor, ()):
            graph.add_edge(writer, reader)
    for kernel in fa_dosa_kernels(rows.values(), source, ACTIVATED):
        if len(kernel.nodes) > 1:
            graph.add_fusion_group(kernel.nodes)
    return graph


def _known(row: OpMetricsRow, figure: Figure) -> int:
    """Return a figure of a node, or refuse one that depends on data."""
    if (known := row[figure]) is None:
        problem = "what it computes or moves is not known before a run"
        raise PipelineError(shown(row["source_node"]), problem, "FA-DOSA's accounting needs every size")
    return known


def _nest(layers: Sequence[Layer], row: OpMetricsRow) -> LoopNest:
    """Return the loops of an operator that is no contraction: over its result, with the window of a pool."""
    if layers and isinstance(pool := layers[0], Pooling):
        return LoopNest(
            n=pool.batch,
            groups=pool.channels,
            p=pool.out_height,
            q=pool.out_width,
            r=pool.kernel_height,
            s=pool.kernel_width,
            stride_p=pool.stride_height,
            stride_q=pool.stride_width,
            dilation_r=pool.dilation_height,
            dilation_s=pool.dilation_width,
        )
    shape = next((shape for shape in row["output_shapes"] if shape), ())
    extents = [size if type(size) is int and size > 0 else 1 for size in shape]
    n, channels, rows, *columns = (*extents, 1, 1, 1)
    return LoopNest(n=n, groups=channels, p=rows, q=prod(columns))

"""The layers that kernel models know, read from rows of op_metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, cast

from common.fusion.patterns import READ_AS, ROW_REDUCTIONS, ROWS
from common.graphs.number_formats import stored_elements
from common.graphs.operators import (
    ATTENTION,
    CONVOLUTION_WEIGHT,
    CONVOLUTIONS,
    DEFORMABLE_CONVOLUTIONS,
    MICROSOFT,
    MOVEMENT,
    POINTWISE,
    POOLS,
    RIGHT_OPERAND,
    SCALE_OPERAND,
    SOFTMAX,
    TRANSPOSED_CONVOLUTIONS,
)
from common.graphs.source_graph import SourceGraph
from common.table_rows import OpMetricsRow
from common.workload.layers import Convolution, Layer, Matmul, Pointwise, Pooling, Rowwise

Shape = Sequence[int]
Layers = tuple[Layer, ...] | None


def layers_by_node(metrics: Iterable[OpMetricsRow], graph: SourceGraph) -> dict[str, tuple[Layer, ...] | None]:
    """Return the layers that each source node of a graph computes in one pass, in the order of computation.

    The value is an empty tuple for a view, and None where an extent is unknown or no kernel model has the layer.
    """
    return {row["source_node"]: _layers(row, graph) for row in metrics}


def _layers(row: OpMetricsRow, graph: SourceGraph) -> Layers:
    op_type = row["op_type"]
    if graph.is_free(row["source_node"]):
        return ()
    if op_type in DEFORMABLE_CONVOLUTIONS or not _is_known(row):
        return None
    # An operator that counts as one product is one matrix product, whatever its name.
    read = READERS.get(op_type, _matmul if row["m_count"] is not None else None)
    return read(row, graph) if read is not None else None


def _is_known(row: OpMetricsRow) -> bool:
    """Return whether every extent is a number above 0; an absent optional operand has no shape and needs none."""
    read = row["input_shapes"]
    if row["op_type"] in ATTENTION:
        read = read[:3]  # a cache may be empty
    shapes = [*(shape for shape in read if shape is not None), *row["output_shapes"]]
    return bool(row["output_shapes"]) and all(shape is not None and _are_sizes(shape) for shape in shapes)


def _are_sizes(extents: Any) -> bool:
    return isinstance(extents, list | tuple) and all(type(size) is int and size > 0 for size in extents)


def _shape(row: OpMetricsRow, index: int) -> Shape | None:
    shapes = cast("Sequence[Shape | None]", row["input_shapes"])
    return shapes[index] if index < len(shapes) else None


def _results(row: OpMetricsRow) -> Sequence[Shape]:
    return cast("Sequence[Shape]", row["output_shapes"])


def _are_per_axis(axes: int, *extents: Any) -> bool:
    """Return whether each attribute has a size for each spatial axis, or is not given."""
    return all(not sizes or (_are_sizes(sizes) and len(sizes) == axes) for sizes in extents)


# --- convolutions and pools -----------------------------------------------------------------------------------------


def _convolution(row: OpMetricsRow, graph: SourceGraph) -> Layers:
    op_type, dilations = row["op_type"], row["attributes"].get("dilations")
    data, weight = _shape(row, 0), _shape(row, CONVOLUTION_WEIGHT[op_type])
    groups, transposed = int(row["groups"] or 1), op_type in TRANSPOSED_CONVOLUTIONS
    if weight is None or data is None or not 3 <= len(weight) == len(data) == len(_results(row)[0]):
        return None
    if not _are_per_axis(len(data) - 2, row["strides"], dilations):
        return None
    channels = (weight[0], weight[1] * groups) if transposed else (weight[1] * groups, weight[0])
    source = _channels_first(data, channels[0], row)
    result = _channels_first(_results(row)[0], channels[1], row)
    windows = (source[2:], result[2:], weight[2:], row["strides"], dilations)
    in_map, out_map, kernel, strides, steps = map(_folded, windows)
    maps = (source[0], channels[0], *in_map, channels[1], *out_map)
    return (Convolution(*maps, *kernel, *strides, groups, transposed, *steps, axes=len(source) - 2),)


def _channels_first(shape: Shape, channels: int, row: OpMetricsRow) -> Shape:
    """Move the channels to axis 1: operators of the runtime may have them last, and some of its layouts do."""
    is_named = row["op_type"].startswith("Nhwc") or bool(row["attributes"].get("channels_last"))
    is_last = is_named or (shape[1] != channels and shape[-1] == channels)
    return (shape[0], shape[-1], *shape[1:-1]) if is_last else shape


def _folded(extents: Sequence[Any] | None) -> tuple[int, int]:
    """Return height and width; a single axis is the width, and the first two of three axes are one height."""
    if not extents:
        return 1, 1
    return prod(extents[:-1]), extents[-1]


def _pooling(row: OpMetricsRow, graph: SourceGraph) -> Layers:
    source, result = _shape(row, 0), _results(row)[0]
    if source is None or not 3 <= len(source) == len(result):
        return None
    if not _are_per_axis(len(source) - 2, row["kernel_shape"], row["strides"], row["attributes"].get("dilations")):
        return None
    axes, kernel = len(source) - 2, _folded(row["kernel_shape"] or source[2:])
    strides, dilations = _folded(row["strides"] or source[2:]), _folded(row["attributes"].get("dilations"))
    maps = (source[0], source[1], *_folded(source[2:]), *_folded(result[2:]))
    return (Pooling(*maps, *kernel, *strides, axes, *dilations, op_type=row["op_type"]),)


# --- products ---------------------------------------------------------------------------------------------------------


def _matmul(row: OpMetricsRow, graph: SourceGraph) -> Layers:
    """Return the product as counted, or the transposed product, (B'A')' = AB, where the left operand is the weight."""
    counts = row["batch_count"], row["m_count"], row["k_count"], row["n_count"]
    batch, rows, inner, columns = (int(count or 0) for count in counts)
    if not (batch and rows and inner and columns):
        return None
    right = _is_constant(row, graph, RIGHT_OPERAND.get(row["op_type"], 1))
    if not right and batch == 1 and _is_constant(row, graph, 0):
        return (Matmul(columns, inner, rows, batch, has_weight=True),)
    return (Matmul(rows, inner, columns, batch, has_weight=right),)


def _is_constant(row: OpMetricsRow, graph: SourceGraph, index: int) -> bool:
    """Return whether an operand is the same in all runs.

    Edges name each operand of a node once, and leave out absent ones. Where a node reads one tensor twice, positions
    shift, and the operand is found by its size.
    """
    shapes, inputs = row["input_shapes"], graph.nodes[row["source_node"]].inputs
    if _shape(row, index) is None:
        return False
    present = [shape is not None for shape in shapes]
    if sum(present) == len(inputs):
        return inputs[sum(present[:index])] in graph.constants
    elements = prod(_shape(row, index) or ())
    alike = [tensor for tensor in inputs if element_count(graph, tensor) == elements]
    return bool(alike) and alike[min(index, len(alike) - 1)] in graph.constants


def element_count(graph: SourceGraph, tensor: str) -> int | None:
    size = graph.sizes.get(tensor)
    return None if size is None else stored_elements(size, graph.dtypes[tensor])


def _attention(row: OpMetricsRow, graph: SourceGraph) -> Layers:
    """Scores, softmax and values; None where the operator does more (projections of its own).

    Queries that share keys are rows of one product (Ainslie et al. 2023, arXiv:2305.13245). The keys are those that are
    counted: of a cache the valid ones, of a window its own.
    """
    if row["op_type"] == "Attention" and row["domain"] == MICROSOFT:
        return None  # its second operand is the weight of its projections
    query, value, heads = _shape(row, 0), _shape(row, 2), _heads(row)
    if query is None or heads is None or not row["macs"] or not 3 <= len(query) == len(_results(row)[0]) <= 4:
        return None
    apart, groups = len(query) == 4, _key_heads(row, heads)
    batch, queries = query[0], query[2] if apart else query[1]
    packed = 0 if _shape(row, 1) else 2 * groups  # the query holds the keys and the values as well
    width = query[3] if apart else query[2] // (heads + packed)
    value_width = value[3] if apart and value is not None and len(value) == 4 else _results(row)[0][-1] // heads
    passes = row.get("execution_count") or 1
    keys, rest = divmod(row["macs"], passes * batch * heads * queries * (width + value_width) or 1)
    if rest or not keys or heads % groups:
        return None
    rows, products = queries * heads // groups, batch * groups
    scores = Matmul(rows, width, keys, products, has_weight=False)
    values = Matmul(rows, keys, value_width, products, has_weight=False)
    return (scores, Rowwise("Softmax", products * rows, keys), values)


def _heads(row: OpMetricsRow) -> int | None:
    """Return the number of query heads: the second of four axes, else an attribute."""
    query, attributes = _shape(row, 0), row["attributes"]
    if query is not None and len(query) == 4:
        return query[1]
    heads = attributes.get("q_num_heads") or attributes.get("num_heads")
    return heads if _are_sizes([heads]) else None


def _key_heads(row: OpMetricsRow, heads: int) -> int:
    """Return the number of heads of the keys: the second of four axes, else an attribute, else that of the queries."""
    query, key = _shape(row, 0), _shape(row, 1)
    if query is not None and key is not None and len(query) == len(key) == 4:
        return key[1]
    groups = row["attributes"].get("kv_num_heads")
    return groups if isinstance(groups, int) and groups > 0 else heads


# --- rows -------------------------------------------------------------------------------------------------------------


def _rowwise(row: OpMetricsRow, graph: SourceGraph) -> Layers:
    """Return rows and width, from the scale of a normalization, the result of a reduction or the axes of a softmax."""
    op_type, source, attributes = row["op_type"], _shape(row, 0), row["attributes"]
    if not source:
        return None
    elements, width = prod(source), source[-1]
    if op_type in ROW_REDUCTIONS:
        width = elements // prod(_results(row)[0])
    elif op_type in SCALE_OPERAND:
        width = prod(_shape(row, SCALE_OPERAND[op_type]) or (0,))
    elif op_type == "InstanceNormalization":
        width = prod(source[2:])
    elif op_type == "GroupNormalization":
        width = prod(source[1:]) // _size(attributes.get("num_groups"))
    elif op_type in SOFTMAX and (axes := attributes.get("axes")):
        width = prod(source[axis] for axis in axes) if _are_axes(axes, len(source)) else 0
    return (Rowwise(op_type.removeprefix("QLinear"), elements // width, width),) if width else None


def _size(value: Any) -> int:
    return value if type(value) is int and value > 0 else 1


def _are_axes(axes: Any, rank: int) -> bool:
    return isinstance(axes, list | tuple) and all(type(axis) is int and -rank <= axis < rank for axis in axes)


def _pointwise(row: OpMetricsRow, graph: SourceGraph) -> Layers:
    shapes = _results(row)
    operand_count = len(graph.variables(graph.nodes[row["source_node"]]))
    width = shapes[0][-1] if shapes[0] else 1
    return (Pointwise(row["op_type"], sum(map(prod, shapes)), max(operand_count, 1), width),)


READERS: dict[str, Callable[[OpMetricsRow, SourceGraph], Layers]] = {
    **dict.fromkeys(POINTWISE | MOVEMENT | READ_AS, _pointwise),
    **dict.fromkeys(ROW_REDUCTIONS | ROWS, _rowwise),
    **dict.fromkeys(POOLS, _pooling),
    **dict.fromkeys(CONVOLUTIONS | TRANSPOSED_CONVOLUTIONS, _convolution),
    **dict.fromkeys(ATTENTION, _attention),
}

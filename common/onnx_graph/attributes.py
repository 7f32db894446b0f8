"""Attributes that decide what a node computes, with the defaults that the model leaves out.

A reader of the result needs no schema. Defaults come from the schema of the model's operator set version, for
ONNX Runtime's own operators from ``CONTRIB_DEFAULTS`` (source: onnxruntime, docs/ContribOperators.md). Some defaults
depend on shapes (``dilations``, ``pads``, ``perm``, ``axes``, head counts); they are filled in where those are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import isfinite

import numpy as np
import onnx
from onnx import helper

from common.graphs.graph import Dim, Graph, Node, Shape
from common.graphs.operators import CONVOLUTION_WEIGHT, MICROSOFT, NCHWC, NHWC, ONNX, REDUCTIONS
from common.onnx_graph.malformed import MalformedNodeError
from common.onnx_graph.shapes.types import Array

# Attributes that are reported; docs/MODEL.md says what each means. Kernel, strides and groups have own columns.
WINDOW = ("auto_pad", "pads", "dilations", "output_padding", "ceil_mode", "count_include_pad", "channels_last", "p")
PRODUCT = ("transA", "transB", "transBatchA", "transBatchB", "alpha", "beta", "equation", "K", "N", "bits")
AXES = ("axis", "axes", "keepdims", "perm", "num_groups", "block_size", "batch_dims")
REARRANGEMENT = ("blocksize", "mode", "coordinate_transformation_mode", "size", "k")
RECURRENT = ("hidden_size", "direction", "layout", "linear_before_reset")
HEADS = ("num_heads", "q_num_heads", "kv_num_heads", "qkv_hidden_sizes")
ATTENTION = (*HEADS, "is_causal", "unidirectional", "local_window_size", "softcap", "update_rule")
ROTARY = ("do_rotary", "interleaved", "rotary_interleaved", "rotary_embedding_dim")
ACTIVATION = ("activation", "activations", "activation_type", "approximate")
REPORTED = frozenset((*WINDOW, *PRODUCT, *AXES, *REARRANGEMENT, *RECURRENT, *ATTENTION, *ROTARY, *ACTIVATION))

# Operands that replace an attribute in newer operator sets: index of the operand and name of the attribute.
OPERANDS = {
    "Squeeze": (1, "axes"),
    "Unsqueeze": (1, "axes"),
    "Pad": (1, "pads"),
    "ConvTransposeWithDynamicPads": (2, "pads"),
    "CumSum": (1, "axis"),
    "DFT": (2, "axis"),
    "TopK": (1, "k"),
    **dict.fromkeys(REDUCTIONS, (1, "axes")),
}
_PRODUCT = {"alpha": 1.0, "transA": 0, "transB": 0}
_CONTRIB_DEFAULTS: dict[str, dict[str, object]] = {
    "Conv FusedConv NhwcConv NhwcFusedConv ConvTransposeWithDynamicPads MaxPool AveragePool": {"auto_pad": "NOTSET"},
    "QLinearConv": {"auto_pad": "NOTSET", "channels_last": 0},
    "QLinearAveragePool": {"auto_pad": "NOTSET", "ceil_mode": 0, "count_include_pad": 0, "channels_last": 0},
    "QLinearGlobalAveragePool": {"channels_last": 0},
    "FusedMatMul TransposeMatMul": {**_PRODUCT, "transBatchA": 0, "transBatchB": 0},
    "FusedGemm": {**_PRODUCT, "beta": 1.0},
    "QGemm": {**_PRODUCT},
    "MatMulNBits": {"bits": 4},
    "LayerNormalization SimplifiedLayerNormalization QLinearSoftmax": {"axis": -1},
    "GroupNorm SkipGroupNorm": {"channels_last": 1},
    "BiasSoftmax QuantizeLinear DequantizeLinear": {"axis": 1},
    "QLinearReduceMean": {"keepdims": 1},
    "Attention QAttention": {"unidirectional": 0, "do_rotary": 0, "rotary_embedding_dim": 0},
    "MultiHeadAttention": {"unidirectional": 0},
    "GroupQueryAttention": {"do_rotary": 0, "rotary_interleaved": 0, "local_window_size": -1, "softcap": 0.0},
    "RotaryEmbedding": {"interleaved": 0, "num_heads": 0, "rotary_embedding_dim": 0},
    "DynamicQuantizeLSTM": {"direction": "forward"},
    "MoE": {"k": 1, "activation_type": "relu"},
    "QMoE": {"k": 1, "activation_type": "relu", "bits": 4},
}
# Defaults of operators that the onnx package does not know.
CONTRIB_DEFAULTS = {name: defaults for names, defaults in _CONTRIB_DEFAULTS.items() for name in names.split()}
# A softmax spans one axis since this operator set version; before, it spans its axis and all that follow.
SOFTMAX_OF_ONE_AXIS = 13
SOFTMAXES = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
SPANS_TO_THE_LAST_AXIS = frozenset({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"})

OperandValues = Mapping[str, Sequence[int]]


def operand_values(nodes: Iterable[onnx.NodeProto], find: Callable[[str], Array | None]) -> dict[str, tuple[int, ...]]:
    """Return the known values of operands that replace attributes, by tensor."""
    values: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        index, _ = OPERANDS.get(node.op_type, (len(node.input), ""))
        name = node.input[index] if index < len(node.input) else ""
        numbers = whole_numbers(find(name)) if name else None
        if numbers is not None:
            values[name] = numbers
    return values


def whole_numbers(value: Array | None) -> tuple[int, ...] | None:
    return tuple(value.ravel().tolist()) if value is not None and value.dtype.kind == "i" else None


def reported_attributes(
    graph: Graph, node: Node, opsets: Mapping[str, int], values: OperandValues
) -> dict[str, object]:
    """Return the node's attributes of ``REPORTED`` for JSON; ``values`` are those of :func:`operand_values`."""
    version = opsets.get(node.domain, 0)
    reported = {name: _plain(value) for name, value in node.attributes.items() if name in REPORTED}
    attributes = {**_defaults(node.op_type, version, node.domain), **reported, **_from_operand(node, values)}
    attributes |= _window_defaults(graph, node, attributes)
    if node.op_type in ("GroupNorm", "SkipGroupNorm") and "groups" in node.attributes:
        attributes["num_groups"] = node.attributes["groups"]
    shapes = [graph.tensors[name].shape if name else None for name in node.inputs]
    attributes |= _sizes(node, attributes, shapes)
    source = shapes[0] if shapes else None
    if source is not None:
        attributes |= _axes(node, version, attributes, source)
    return attributes


def _plain(value: object) -> object:
    """Return an attribute's value without bytes and without the noise of widened float32 numbers."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return float(str(np.float32(value))) if isfinite(value) else str(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@cache
def _defaults(op_type: str, version: int, domain: str) -> Mapping[str, object]:
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: a name that is not text arrives as bytes
        return CONTRIB_DEFAULTS.get(op_type, {})
    given = {name: attribute.default_value for name, attribute in schema.attributes.items() if name in REPORTED}
    return {name: _plain(helper.get_attribute_value(value)) for name, value in given.items() if value.type}


def _from_operand(node: Node, values: OperandValues) -> dict[str, object]:
    index, name = OPERANDS.get(node.op_type, (len(node.inputs), ""))
    value = values.get(node.inputs[index]) if index < len(node.inputs) else None
    if value is None:
        return {}
    return {name: value[0]} if name in ("axis", "k") and len(value) == 1 else {name: list(value)}


def _window_defaults(graph: Graph, node: Node, attributes: Mapping[str, object]) -> dict[str, object]:
    """Return dilations and pads of a convolution or a pool, with the numbers that ``auto_pad`` leads to."""
    kernel, strides, _ = window(graph, node)
    if not kernel:
        return {}
    dilations = integers(attributes, "dilations") or [1] * len(kernel)
    is_transposed = "Transpose" in node.op_type
    padding = {"output_padding": integers(attributes, "output_padding") or [0] * len(kernel)} if is_transposed else {}
    pads: list[int] | None = integers(attributes, "pads") or [0] * (2 * len(kernel))
    is_computed = str(attributes.get("auto_pad", "")).startswith("SAME") or node.attributes.get("output_shape")
    if attributes.get("auto_pad") == "VALID":
        pads = [0] * (2 * len(kernel))
    elif is_computed and any(node.inputs[:1]) and any(node.outputs[:1]):
        reach = [(extent - 1) * dilation + 1 for extent, dilation in zip(kernel, dilations, strict=False)]
        source, result = _spatial(graph, node, node.inputs[0]), _spatial(graph, node, node.outputs[0])
        if is_transposed:
            source, result = result, source
            reach = [span + extra for span, extra in zip(reach, padding["output_padding"], strict=False)]
        pads = _same_pads(source, result, reach, strides, is_lower=_pads_more_before(attributes, is_transposed))
    return {"dilations": dilations, **padding, **({"pads": pads} if pads is not None else {})}


def _pads_more_before(attributes: Mapping[str, object], is_transposed: bool) -> bool:
    """Return whether an odd pad is larger before the data; a transposed one is, except with SAME_UPPER."""
    upper = attributes.get("auto_pad") == "SAME_UPPER"
    return not upper if is_transposed else attributes.get("auto_pad") == "SAME_LOWER"


def _spatial(graph: Graph, node: Node, tensor: str) -> Shape:
    shape = graph.tensors[tensor].shape
    is_last = node.op_type.startswith("Nhwc") or "nhwc" in node.domain or node.attributes.get("channels_last")
    extents = (shape[1:-1] if is_last else shape[2:]) if shape is not None else (None,)
    return extents if all(isinstance(extent, int) for extent in extents) else None


def _same_pads(
    wide: Shape, narrow: Shape, reach: Sequence[int], strides: Sequence[int], *, is_lower: bool
) -> list[int] | None:
    """Return pads before and after each axis that make a window of ``reach`` cover ``wide`` in ``narrow`` steps."""
    if wide is None or narrow is None or not len(wide) == len(narrow) == len(reach) == len(strides):
        return None
    extents = zip(wide, narrow, reach, strides, strict=True)
    total = [max((steps - 1) * stride + span - extent, 0) for extent, steps, span, stride in extents]
    before = [(pad + is_lower) // 2 for pad in total]
    return [*before, *(pad - first for pad, first in zip(total, before, strict=True))]


def _axes(node: Node, version: int, attributes: Mapping[str, object], shape: tuple[object, ...]) -> dict[str, object]:
    rank = len(shape)
    if node.op_type == "Transpose":
        return {} if "perm" in attributes else {"perm": [*reversed(range(rank))]}
    if (axis := attributes.get("axis")) is not None:
        return _spanned_axes(node, version, axis, rank)
    axes, is_operand = attributes.get("axes"), len(node.inputs) > 1 and bool(node.inputs[1])
    is_known = axes is not None or not is_operand
    if not axes and is_known and node.op_type.removeprefix("QLinear").startswith("Reduce"):
        return {"axes": [] if node.attributes.get("noop_with_empty_axes") else [*range(rank)]}
    if axes is None and not is_operand and node.op_type == "Squeeze" and None not in shape:
        return {"axes": [index for index, extent in enumerate(shape) if extent == 1]}
    if isinstance(axes, list):
        rank += len(axes) if node.op_type == "Unsqueeze" else 0  # they count in the result
        return {"axes": [_from_the_front(index, rank) for index in axes]}
    return {}


def _spanned_axes(node: Node, version: int, axis: object, rank: int) -> dict[str, object]:
    op_type, first = node.op_type.removeprefix("QLinear"), _from_the_front(axis, rank)
    if not isinstance(first, int) or not 0 <= first < rank:
        return {}
    if op_type in SOFTMAXES and _softmax_version(node, version) >= SOFTMAX_OF_ONE_AXIS:
        return {"axes": [first]}
    if op_type in SOFTMAXES | SPANS_TO_THE_LAST_AXIS:
        return {"axes": [*range(first, rank)]}
    return {}


def _from_the_front(axis: object, rank: int) -> object:
    return axis % rank if isinstance(axis, int) and -rank <= axis < rank else axis


def _softmax_version(node: Node, version: int) -> int:
    """Return the operator set version that defines the node's Softmax; the runtime's quantized form names it."""
    named = node.attributes.get("opset", version) if node.op_type.startswith("QLinear") else version
    return named if isinstance(named, int) else version


def _sizes(node: Node, attributes: Mapping[str, object], shapes: Sequence[Shape]) -> dict[str, object]:
    first, second, third = (*shapes, None, None, None)[:3]
    if node.op_type == "Attention" and not node.domain and first and second and len(first) == len(second) == 4:
        return {"q_num_heads": first[1], "kv_num_heads": second[1]} if _are_numbers(first[1], second[1]) else {}
    is_projected = node.op_type in ("Attention", "QAttention") and node.domain
    if is_projected and "qkv_hidden_sizes" not in attributes and second and _are_numbers(second[-1]):
        return {"qkv_hidden_sizes": [second[-1] // 3] * 3}
    if node.op_type in ("RNN", "GRU", "LSTM") and "hidden_size" not in attributes and third and _are_numbers(third[-1]):
        return {"hidden_size": third[-1]}
    return {}


def _are_numbers(*extents: object) -> bool:
    return all(isinstance(extent, int) for extent in extents)


def window(graph: Graph, node: Node) -> tuple[list[int], list[int], int | None]:
    """Return kernel shape, strides and groups of a convolution or a pool; empty lists and None without a window.

    A negative size is a MalformedNodeError. ONNX's inference looks at it only where it knows the operands.
    """
    kernel = integers(node.attributes, "kernel_shape")
    operand = CONVOLUTION_WEIGHT.get(node.op_type)
    if not kernel and operand is not None and operand < len(node.inputs) and node.inputs[operand]:
        shape = graph.tensors[node.inputs[operand]].shape or ()
        kernel = [extent for extent in shape[2:] if isinstance(extent, int)]
    strides = integers(node.attributes, "strides") or [1] * len(kernel)
    if min((*kernel, *strides), default=0) < 0:
        if node.domain in (ONNX, MICROSOFT, NCHWC, NHWC):
            raise MalformedNodeError(node, "its kernel_shape or strides are negative")
        kernel = []  # an own operator may mean anything by these names
    groups = node.attributes.get("group", 1) if operand is not None else None
    return kernel, strides if kernel else [], groups if isinstance(groups, int) else None


def transposed(shape: tuple[Dim, ...], side: str, attribute: Callable[[str, object], object]) -> tuple[Dim, ...]:
    """Return the shape of operand A or B (``side``) of a FusedMatMul as MatMul reads it.

    ``transBatch`` moves the first axis before the last (A of shape K×batch×…×M); then ``trans`` swaps the last two.
    """
    if len(shape) < 2:
        return shape
    if attribute(f"transBatch{side}", 0):
        shape = (*shape[1:-1], shape[0], shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if attribute(f"trans{side}", 0) else shape


def integers(attributes: Mapping[str, object], name: str) -> list[int]:
    """Return a list of integers; none where the node has no such attribute, or an own one of another type."""
    value = attributes.get(name)
    items = value if isinstance(value, (list, tuple)) else ()
    numbers = [item for item in items if isinstance(item, int)]
    return numbers if len(numbers) == len(items) else []


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the bodies that a node holds, in the order of its attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs

"""Normalization, embedding and quantization: mostly the input's shape, and statistics."""

from __future__ import annotations

from onnx import TensorProto

from common.graphs.graph import Shape
from common.graphs.operators import ONNX
from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, quotient, rule


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_layer_normalization(call: OperatorCall) -> list[Output]:
    """Return the normalized sum, mean and inverse deviation of each row as float, and the sum itself."""
    shape = call.shape(0)
    statistic = TensorProto.FLOAT, (*shape[:-1], 1) if shape else None
    return [call.same(0), statistic, statistic, call.same(0)]


def _statistic(call: OperatorCall) -> Output:
    """Return one number per normalized row, in the type that the statistics are computed in."""
    shape = call.shape(0)
    kept: Shape = None
    if shape:
        axis = call.integer("axis", -1) % len(shape)
        kept = shape[:axis] + (1,) * (len(shape) - axis)
    return call.integer("stash_type", TensorProto.FLOAT), kept


@rule("LayerNormalization", domains=(ONNX,))
def layer_normalization(call: OperatorCall) -> list[Output]:
    """Return the input's shape, mean and inverse deviation.

    ONNX has the operator since operator set 17; the runtime fuses it into models of every operator set.
    """
    return [call.same(0), _statistic(call), _statistic(call)]


@rule("SimplifiedLayerNormalization", domains=(ONNX,))
def simplified_layer_normalization(call: OperatorCall) -> list[Output]:
    """Return the input in the scale's type, and the inverse deviation."""
    return [(call.element_type(1), call.shape(0)), _statistic(call)]


def _embedding(call: OperatorCall, element_type: int) -> list[Output]:
    batch, sequence = call.dims(0, 2)
    _, hidden = call.dims(2, 2)
    output = element_type, (batch, sequence, hidden)
    return [output, (TensorProto.INT32, (batch,)), output]


@rule("EmbedLayerNormalization")
def embed_layer_normalization(call: OperatorCall) -> list[Output]:
    """Return the normalized sum of word, position and segment embeddings, the mask's lengths, and the sum."""
    return _embedding(call, call.element_type(2))


@rule("QEmbedLayerNormalization")
def qembed_layer_normalization(call: OperatorCall) -> list[Output]:
    """Infer EmbedLayerNormalization with quantized tables: the output has the type of their scales."""
    return _embedding(call, call.element_type(8))[:2]


@rule("BiasSplitGelu")
def bias_split_gelu(call: OperatorCall) -> list[Output]:
    """Halve the channels: one half gates the other."""
    batch, sequence, channels = call.dims(0, 3)
    return [(call.element_type(0), (batch, sequence, quotient(channels, 2)))]


@rule("QuantizeLinear")
def quantize_linear(call: OperatorCall) -> list[Output]:
    """Return the input's shape in the zero point's type, uint8 where there is none."""
    return [(call.element_type(2) or TensorProto.UINT8, call.shape(0))]


@rule("DequantizeLinear")
def dequantize_linear(call: OperatorCall) -> list[Output]:
    """Return the input's shape in the scale's type."""
    return [(call.element_type(1), call.shape(0))]


@rule("HyperConnectionPreMix")
def hyper_connection_pre_mix(call: OperatorCall) -> list[Output]:
    """Merge C streams of H features: (…, C, H), or (…, C·H) where ``num_branches`` is C."""
    shape = call.shape(0)
    if not shape:
        return []
    branches = call.integer("num_branches", 0)
    mixed = call.shape(1)
    flattened = branches and shape[-2:-1] != (branches,)
    if flattened and mixed is not None:
        return [(call.element_type(0), (*shape[:-1], quotient(shape[-1], branches)))]
    return [(call.element_type(0), (*shape[:-2], shape[-1]))]

"""Attention in the forms of ONNX and ONNX Runtime: score and value products, projections where the operator has them.

MACs = batch · heads · queries · keys · (head size + value head size). Causal masks and sliding windows do not reduce
the count. Past keys count as keys; a shared cache buffer counts as a whole. Each score costs 1 FLOP for its scale and
5 for the softmax; a mask or bias adds 1, a soft cap 3 (division, tanh, product). A rotary embedding costs 3 per
element.
Source of the definitions: onnx.ai/onnx/operators/onnx__Attention.html and docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from common.graph import Count
from common.onnx_graph.work.registry import (
    DEQUANTIZE,
    REQUANTIZE,
    RMS_NORM,
    Cost,
    Operation,
    UnknownShapeError,
    formula,
)
from common.operators import MICROSOFT, PREVIEW

SCORE = 6  # scale; softmax: maximum, difference, exp, sum, division
SOFT_CAP = 3
ROTARY = 3  # two products and a sum


@dataclass(frozen=True, slots=True)
class Product:
    """Sizes of score and value products: ``rows`` (batch · heads · queries) meet all keys; widths are per head."""

    rows: Count
    keys: Count
    width: Count
    value_width: Count

    @property
    def macs(self) -> Count:
        return self.rows * self.keys * (self.width + self.value_width)

    @property
    def scores(self) -> Count:
        return self.rows * self.keys


@formula("Attention")
def count_attention(operation: Operation) -> Cost:
    """Read operands Q, K, V, mask, past key (4), past value; (batch, heads, length, size) or heads packed last."""
    rank = 4 if len(operation.shape(0)) == 4 else 3
    query, key, value = (operation.shape(index, rank) for index in (0, 1, 2))
    if rank == 4:
        batch, heads, queries, width = query
        length, value_width = key[2], value[3]
    else:
        heads, groups = operation.positive("q_num_heads"), operation.positive("kv_num_heads")
        batch, queries, hidden = query
        length, width, value_width = key[1], hidden // heads, value[2] // groups
    past = operation.dim(4, 2) if operation.has(4) else 0
    product = Product(batch * heads * queries, length + past, width, value_width)
    masked = operation.has(3) + operation.flag("is_causal")
    capped = SOFT_CAP * operation.flag("softcap")
    return Cost(product.macs, (SCORE + masked + capped) * product.scores)


@formula("FlexAttention", domains=(PREVIEW,))
def count_flex_attention(operation: Operation) -> Cost:
    """Read Q, K, V with heads apart. Bodies that modify scores are counted at their own nodes."""
    batch, heads, queries, width = operation.shape(0, rank=4)
    product = Product(batch * heads * queries, operation.dim(1, 2), width, operation.dim(2, 3))
    return Cost(product.macs, SCORE * product.scores)


# --- with projections: com.microsoft Attention and its relatives ------------------------------------------------------


def _projected(operation: Operation, past: int, bias_operands: tuple[int, ...]) -> tuple[Cost, Count, Count]:
    """Return the cost of projection and attention, the elements of the projection, and those of the scores.

    Input is (batch, length, hidden), the weight (hidden, Q + K + V sizes); the past is (2, batch, heads, length, size).
    """
    batch, length, hidden = operation.shape(0, rank=3)
    sizes = operation.integers("qkv_hidden_sizes") or [operation.dim(1, 1) // 3] * 3
    if len(sizes) != len("QKV"):
        raise operation.malformed(f"attribute qkv_hidden_sizes has {len(sizes)} items")
    query, _, value = sizes
    projected = batch * length * (2 * query + value)
    heads = operation.positive("num_heads")
    keys = _with_past(operation, past, length, axis=3)
    product = Product(batch * heads * length, keys, query // heads, value // heads)
    masks = operation.present(bias_operands) + operation.flag("unidirectional")
    rotary = ROTARY * operation.flag("do_rotary") * 2 * batch * length * query
    bias = operation.has(2) * projected
    extra = (SCORE + masks) * product.scores + bias + rotary
    return Cost(projected * hidden + product.macs, extra), projected, product.scores


def _with_past(operation: Operation, past: int, length: Count, axis: int = 2) -> Count:
    """Return the number of keys, cached ones included; a shared buffer already has room for the new ones."""
    if not operation.has(past):
        return length
    cached = operation.dim(past, axis)
    return cached if _shares_buffer(operation) else cached + length


def _shares_buffer(operation: Operation) -> bool:
    """Return whether past and present share one buffer, whose fill level may be operand 8."""
    has_length = operation.node.op_type == "MultiHeadAttention" and operation.has(8)
    return bool(has_length or operation.attribute("past_present_share_buffer", 0))


@formula("Attention", "DecoderMaskedSelfAttention", domains=(MICROSOFT,))
def count_projected_attention(operation: Operation) -> Cost:
    """Read operands input, weights, bias, mask, past, attention bias."""
    return _projected(operation, past=4, bias_operands=(3, 5))[0]


@formula("QAttention", domains=(MICROSOFT,))
def count_quantized_attention(operation: Operation) -> Cost:
    """Count attention whose projection is an integer product, scaled by 2 FLOPs each. Mask 5, past 8."""
    cost, projected, _ = _projected(operation, past=8, bias_operands=(5,))
    return cost.plus(DEQUANTIZE * projected)


@formula("QOrderedAttention", domains=(MICROSOFT,))
def count_ordered_attention(operation: Operation) -> Cost:
    """Read three weights (5, 6, 7); every product of integers is requantized (2 FLOPs per result)."""
    batch, length, hidden = operation.shape(0, rank=3)
    query, key, value = (operation.dim(index, 1) for index in (5, 6, 7))
    heads = operation.positive("num_heads")
    keys = _with_past(operation, 18, length, axis=3)
    product = Product(batch * heads * length, keys, query // heads, value // heads)
    projected = batch * length * (query + key + value)
    biases = batch * length * sum(operation.has(11 + i) * size for i, size in enumerate((query, key, value)))
    masks = operation.has(17) + operation.has(19) + operation.flag("unidirectional")
    requantized = projected + product.scores + batch * length * value
    extra = (SCORE + masks) * product.scores + biases + REQUANTIZE * requantized
    return Cost(projected * hidden + product.macs, extra)


# --- without projections -------------------------------------------------------------------------------------------


@formula("MultiHeadAttention", domains=(MICROSOFT,))
def count_multi_head_attention(operation: Operation) -> Cost:
    """Read query, key, value, bias, padding mask, attention bias, past key (6), past value, past length (8)."""
    return _multi_head(operation, past=6, bias=3, masks=(4, 5))


@formula("DecoderMaskedMultiHeadAttention", domains=(MICROSOFT,))
def count_decoder_multi_head_attention(operation: Operation) -> Cost:
    """Read query, key, value, mask, attention bias, past key (5), past value, …, bias (10)."""
    return _multi_head(operation, past=5, bias=10, masks=(3, 4))


def _multi_head(operation: Operation, past: int, bias: int, masks: tuple[int, ...]) -> Cost:
    """Read a query (batch, length, hidden), or packed with key and value as (batch, length, heads, 3, size)."""
    batch, queries = operation.shape(0, least=2)[:2]
    width, length, value_width = _sizes(operation)
    heads = operation.dim(0, 2) if len(operation.shape(0)) == 5 else operation.positive("num_heads")
    product = Product(batch * heads * queries, _with_past(operation, past, length), width, value_width)
    masked = operation.present(masks) + operation.flag("unidirectional")
    biased = batch * heads * (queries * width + length * (width + value_width)) if operation.has(bias) else 0
    return Cost(product.macs, (SCORE + masked) * product.scores + biased)


def _sizes(operation: Operation) -> tuple[Count, Count, Count]:
    """Return head size, number of keys and value head size.

    Key and value may be (batch, length, hidden), (batch, heads, length, size), or packed together.
    """
    query = operation.shape(0)
    if len(query) == 5:
        return query[4], query[1], query[4]
    heads = operation.positive("num_heads")
    width = operation.shape(0, rank=3)[2] // heads
    if not operation.has(1):
        return width, query[1], width
    key = operation.shape(1, least=3)
    length = key[2] if len(key) == 4 else key[1]
    if not operation.has(2):
        return width, length, width
    value = operation.shape(2, least=3)
    return width, length, value[3] if len(value) == 4 else value[2] // heads


@formula("GroupQueryAttention", domains=(MICROSOFT,))
def count_group_query_attention(operation: Operation) -> Cost:
    """Read query, key, value, past key (3), past value, …, cosines and sines (7, 8), attention bias (10).

    Without key and value, query holds all three. Operands 14 and 15 are the weights of a norm per head.
    """
    batch, queries, hidden = operation.shape(0, rank=3)
    heads, groups = operation.positive("num_heads"), operation.positive("kv_num_heads")
    width = hidden // (heads if operation.has(1) else heads + 2 * groups)
    length = operation.dim(1, 1) if operation.has(1) else queries
    product = Product(batch * heads * queries, _with_past(operation, 3, length), width, width)
    masked = operation.has(10) + operation.flag("causal", 1)
    capped = SOFT_CAP * operation.flag("softcap")
    turned, normed = operation.flag("do_rotary"), RMS_NORM * operation.has(14)
    extra = (ROTARY * turned + normed) * batch * width * (heads * queries + groups * length)
    tables = [index for index in (7, 8) if operation.has(index)]
    rows = {index: operation.touched_bytes(index, batch * queries * operation.dim(index, -1)) for index in tables}
    return Cost(product.macs, (SCORE + masked + capped) * product.scores + extra, reads=rows)


# --- linear attention ----------------------------------------------------------------------------------------------


@formula("LinearAttention")
@formula("LinearAttention", domains=(MICROSOFT,))
def count_linear_attention(operation: Operation) -> Cost:
    """Count the recurrence, token by token: a state of (key size × value size) per key-value head.

    MACs per token: the update by an outer product, and for a delta rule the retrieval before it, per key-value head;
    the readout per query head. FLOPs: the decay of the state (1 per element), the delta's difference and rate (2 per
    value), and the scale of each output.
    """
    batch, tokens, hidden = operation.shape(0, rank=3)
    heads, groups = operation.positive("q_num_heads"), operation.positive("kv_num_heads")
    rule = operation.text("update_rule", "gated_delta")
    width, value_width = hidden // heads, operation.dim(2, 2) // groups
    delta, gated = int("delta" in rule), int("gated" in rule)
    state = width * value_width
    readouts = max(heads, groups)
    macs = batch * tokens * state * (groups * (1 + delta) + readouts)
    step = groups * (gated * state + delta * 2 * value_width) + readouts * value_width
    exponentials = operation.elements(4) if gated and operation.has(4) else 0
    return Cost(macs, batch * tokens * step + exponentials)


# --- rotary embeddings ---------------------------------------------------------------------------------------------


@formula("RotaryEmbedding")
def count_rotary_embedding(operation: Operation) -> Cost:
    """Read X, cosines (1), sines, optional positions (3): rows of the tables are gathered by position."""
    return _rotary(operation, cosines=1)


@formula("RotaryEmbedding", "MRotaryEmbedding", domains=(MICROSOFT,))
def count_contrib_rotary_embedding(operation: Operation) -> Cost:
    """Read input, positions (of MRotaryEmbedding along several axes), cosines (2), sines."""
    return _rotary(operation, cosines=2)


def _rotary(operation: Operation, cosines: int) -> Cost:
    """Count two products and a sum for each element of the rotated part."""
    data, half = operation.shape(0), operation.dim(cosines, -1)
    tokens = data[0] * data[2] if len(data) == 4 else prod(data[:-1])
    partial = operation.integer("rotary_embedding_dim", 0)
    heads = operation.integer("num_heads", 0)
    rotated = prod(data)
    if partial and len(data) == 4:
        rotated = prod(data[:-1]) * partial
    elif partial:
        rotated = tokens * heads * partial
    if partial and len(data) != 4 and not heads:
        raise UnknownShapeError
    rows = {index: operation.touched_bytes(index, tokens * half) for index in (cosines, cosines + 1)}
    return Cost(other_flops=ROTARY * rotated, reads=rows)


@formula("GemmaRotaryEmbedding", domains=(MICROSOFT,))
def count_gemma_rotary_embedding(operation: Operation) -> Cost:
    """Count sine and cosine of each embedding element; two products and a sum per element of both outputs."""
    outputs = operation.output_elements() + operation.output_elements(1)
    return Cost(other_flops=2 * operation.elements(0) + ROTARY * outputs)

"""Attention in the forms of ONNX and ONNX Runtime: score and value products, projections where the operator has them.

MACs = batch · heads · queries · keys · (head size + value head size). Causal masks do not reduce the count. Past keys
count as keys: those that are valid, not those that a buffer has room for, and at most a sliding window. Each score
costs 1 FLOP for its scale and 5 for the softmax; a mask or bias adds 1, a soft cap 3 (division, tanh, product). A
rotary embedding costs 3 per element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod

from common.graphs.expressions import smaller
from common.graphs.graph import Count, is_symbolic
from common.graphs.operators import MICROSOFT, PREVIEW
from common.onnx_graph.work.registry import (
    DEQUANTIZE,
    REQUANTIZE,
    RMS_NORM,
    Cost,
    Operation,
    UnknownShapeError,
    formula,
)

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
    """Read operands Q, K, V, mask, past key (4), past value; (batch, heads, length, size) or heads packed last.

    Operand 6 is the number of keys and values that are valid, where these are buffers.
    """
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
    reads: dict[int, Count | None] = {}
    if operation.has(6):
        length = operation.value(6)
        reads = {
            index: operation.rows_bytes(operation.inputs[index], 2 if rank == 4 else 1, length) for index in (1, 2)
        }
    product = Product(batch * heads * queries, length + past, width, value_width)
    masked = operation.has(3) + operation.flag("is_causal")
    capped = SOFT_CAP * operation.flag("softcap")
    return Cost(product.macs, (SCORE + masked + capped) * product.scores, reads=reads)


@formula("FlexAttention", domains=(PREVIEW,))
def count_flex_attention(operation: Operation) -> Cost:
    """Read Q, K, V with heads apart. Bodies that modify scores are counted at their own nodes."""
    batch, heads, queries, width = operation.shape(0, rank=4)
    product = Product(batch * heads * queries, operation.dim(1, 2), width, operation.dim(2, 3))
    return Cost(product.macs, SCORE * product.scores)


# --- with projections: com.microsoft Attention and its relatives ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CachedKeys:
    """The keys that a query meets, new ones included.

    ``reads`` and ``writes`` are bytes of cache operands and outputs, by index, where not those of whole tensors.
    """

    keys: Count
    reads: Mapping[int, Count | None] = field(default_factory=dict)
    writes: Mapping[int, Count | None] = field(default_factory=dict)


def _cache(
    operation: Operation, length: Count, past: tuple[int, ...], present: tuple[int, ...], used: int | None, axis: int
) -> CachedKeys:
    """Return the cache of an operator whose operand ``used`` is the valid past in a buffer; without it, it grows.

    It is in the operands ``past``, if these are there, and in the outputs ``present``. A buffer is updated in place:
    the ``length`` new keys are written.
    """
    if not operation.has(past[0]):
        return CachedKeys(length)
    if used is None or not operation.has(used):
        if operation.attribute("past_present_share_buffer", 0):
            raise UnknownShapeError
        return CachedKeys(operation.dim(past[0], axis) + length)
    valid = operation.value(used)
    return CachedKeys(
        valid + length,
        {index: operation.rows_bytes(operation.inputs[index], axis, valid) for index in past},
        _written(operation, present, axis, length),
    )


def _written(operation: Operation, present: tuple[int, ...], axis: int, rows: Count) -> dict[int, Count | None]:
    outputs = ((index, operation.outputs[index]) for index in present if index < len(operation.outputs))
    return {index: operation.rows_bytes(tensor, axis, rows) for index, tensor in outputs if tensor is not None}


def _projected(
    operation: Operation, past: int, bias_operands: tuple[int, ...], used: int | None = None
) -> tuple[Cost, Count, Count]:
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
    cache = _cache(operation, length, (past,), (1,), used, axis=3)
    product = Product(batch * heads * length, cache.keys, query // heads, value // heads)
    masks = operation.present(bias_operands) + operation.flag("unidirectional")
    rotary = ROTARY * operation.flag("do_rotary") * 2 * batch * length * query
    bias = operation.has(2) * projected
    extra = (SCORE + masks) * product.scores + bias + rotary
    cost = Cost(projected * hidden + product.macs, extra, reads=cache.reads, writes=cache.writes)
    return cost, projected, product.scores


@formula("Attention", "DecoderMaskedSelfAttention", domains=(MICROSOFT,))
def count_projected_attention(operation: Operation) -> Cost:
    """Read operands input, weights, bias, mask, past, attention bias, valid length of a past that is a buffer."""
    return _projected(operation, past=4, bias_operands=(3, 5), used=6)[0]


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
    cache = _cache(operation, length, (18,), (1,), used=None, axis=3)
    product = Product(batch * heads * length, cache.keys, query // heads, value // heads)
    projected = batch * length * (query + key + value)
    biases = batch * length * sum(operation.has(11 + i) * size for i, size in enumerate((query, key, value)))
    masks = operation.has(17) + operation.has(19) + operation.flag("unidirectional")
    requantized = projected + product.scores + batch * length * value
    extra = (SCORE + masks) * product.scores + biases + REQUANTIZE * requantized
    return Cost(projected * hidden + product.macs, extra)


# --- without projections -------------------------------------------------------------------------------------------


def _multi_head(operation: Operation, past: int, bias: int, masks: tuple[int, ...], used: int) -> Cost:
    """Read a query (batch, length, hidden), or packed with key and value as (batch, length, heads, 3, size)."""
    batch, queries = operation.shape(0, least=2)[:2]
    width, length, value_width = _sizes(operation)
    heads = operation.dim(0, 2) if len(operation.shape(0)) == 5 else operation.positive("num_heads")
    cache = _cache(operation, length, (past, past + 1), (1, 2), used, axis=2)
    product = Product(batch * heads * queries, cache.keys, width, value_width)
    masked = operation.present(masks) + operation.flag("unidirectional")
    biased = batch * heads * (queries * width + length * (width + value_width)) if operation.has(bias) else 0
    extra = (SCORE + masked) * product.scores + biased
    return Cost(product.macs, extra, reads=cache.reads, writes=cache.writes)


# Query, key, value, bias, padding mask, attention bias, past key, past value, past length; and query, key, value, mask,
# attention bias, past key, past value, …, bias.
_bias_first = partial(_multi_head, bias=3, masks=(4, 5), past=6, used=8)
_bias_last = partial(_multi_head, masks=(3, 4), past=5, used=7, bias=10)
formula("MultiHeadAttention", domains=(MICROSOFT,))(_bias_first)
formula("DecoderMaskedMultiHeadAttention", domains=(MICROSOFT,))(_bias_last)


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
    cache = _grouped_cache(operation, length)
    product = Product(batch * heads * queries, cache.keys, width, width)
    masked = operation.has(10) + operation.flag("causal", 1)
    capped = SOFT_CAP * operation.flag("softcap")
    turned, normed = operation.flag("do_rotary"), RMS_NORM * operation.has(14)
    extra = (ROTARY * turned + normed) * batch * width * (heads * queries + groups * length)
    tables = [index for index in (7, 8) if operation.has(index)]
    rows = {index: operation.touched_bytes(index, batch * queries * operation.dim(index, -1)) for index in tables}
    other = (SCORE + masked + capped) * product.scores + extra
    return Cost(product.macs, other, reads={**rows, **cache.reads}, writes=cache.writes)


def _grouped_cache(operation: Operation, length: Count) -> CachedKeys:
    """Return the cache of a GroupQueryAttention: operands 3 and 4, outputs 1 and 2, total length in operand 6.

    A query meets at most a window of keys, of which it is the last one itself. Without a known total length, a cache
    that has grown says it.
    """
    if not operation.has(3):
        return CachedKeys(_in_window(operation, length))
    room = operation.dim(3, 2)
    total = _total_length(operation, room)
    held = _in_window(operation, total - length, others=1)
    reads = {index: operation.rows_bytes(operation.inputs[index], 2, held) for index in (3, 4)}
    is_shared = _is_buffer(operation, room, total)
    writes = _written(operation, (1, 2), 2, length) if is_shared else {}
    return CachedKeys(_in_window(operation, total), reads, writes)


def _total_length(operation: Operation, room: Count) -> Count:
    total = operation.required(6)
    if total is not None and total.value is not None:
        return total.value
    grown = operation.output_shape(1, rank=4)[2]
    if grown == room:
        raise UnknownShapeError
    return grown


def _is_buffer(operation: Operation, room: Count, total: Count) -> bool:
    """Return whether the past has room for all keys: the present is the same buffer then, and does not grow."""
    if not is_symbolic(room) and not is_symbolic(total):
        return bool(room >= total)
    return bool(len(operation.outputs) > 1 and operation.output_shape(1, rank=4)[2] == room)


def _in_window(operation: Operation, keys: Count, others: int = 0) -> Count:
    """Return how many of these keys a sliding window of which others have a part holds; -1 is no window."""
    window = operation.integer("local_window_size", -1)
    return smaller(window - others, keys) if window > 0 else keys


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


def _rotary(operation: Operation, cosines: int) -> Cost:
    """Count two products and a sum for each element of the rotated part; the tables are gathered by position."""
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


# X, cosines, sines, optional positions; and input, positions (of MRotaryEmbedding along several axes), cosines, sines.
formula("RotaryEmbedding")(partial(_rotary, cosines=1))
formula("RotaryEmbedding", "MRotaryEmbedding", domains=(MICROSOFT,))(partial(_rotary, cosines=2))


@formula("GemmaRotaryEmbedding", domains=(MICROSOFT,))
def count_gemma_rotary_embedding(operation: Operation) -> Cost:
    """Count sine and cosine of each embedding element; two products and a sum per element of both outputs."""
    outputs = operation.output_elements() + operation.output_elements(1)
    return Cost(other_flops=2 * operation.elements(0) + ROTARY * outputs)

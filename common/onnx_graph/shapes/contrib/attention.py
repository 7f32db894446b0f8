"""Attention, its caches of past keys and values, and the recurrences that replace it.

Notation: b batch, s sequence, n heads, h head size, p past length, t = p + s total length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onnx import TensorProto

from common.graphs.graph import Dim, Shape
from common.onnx_graph.shapes.contrib.as_onnx import Likeness, infer_as
from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, UnfitError, product, quotient, rule, total


def _rank(call: OperatorCall, index: int) -> int:
    """Rank of an operand, 0 where it is absent or unknown."""
    return len(call.shape(index) or ())


# --- query, key and value from one projection -----------------------------------------------------------------------


def _projection_sizes(call: OperatorCall, columns: Dim) -> Sequence[Dim]:
    """Return the sizes of Q, K and V: those of the attribute, else a third of the merged weights' columns each."""
    sizes = call.integers("qkv_hidden_sizes") or [quotient(columns, 3)] * 3
    if len(sizes) != 3:
        raise UnfitError
    return sizes


def _projected(call: OperatorCall, typed_by: int, past: int) -> list[Output]:
    """Infer self-attention with its own projection: b×s×v of merged weights K×(q + k + v), and the cache 2×b×n×t×h."""
    element_type = call.element_type(typed_by)
    batch, sequence, _ = call.dims(0, 3)
    _, columns = call.dims(1, 2)
    sizes = _projection_sizes(call, columns)
    heads = call.integer("num_heads")
    present: Shape = (2, batch, heads, sequence, quotient(sizes[2], heads))
    if call.has(past):
        *_, past_length, head_size = call.dims(past, 5)
        shared = call.attribute("past_present_share_buffer", 0)
        present = (2, batch, heads, past_length if shared else total(past_length, sequence), head_size)
    return [(element_type, (batch, sequence, sizes[2])), (element_type, present)]


rule("Attention", "DecoderMaskedSelfAttention")(partial(_projected, typed_by=0, past=4))
rule("QAttention")(partial(_projected, typed_by=3, past=8))  # quantized: the result has the type of the scales


@rule("PackedAttention")
def packed_attention(call: OperatorCall) -> list[Output]:
    """Infer self-attention of sequences without padding: one row per token."""
    tokens, _ = call.dims(0, 2)
    _, columns = call.dims(1, 2)
    sizes = _projection_sizes(call, columns)
    return [(call.element_type(0), (tokens, sizes[2]))]


@rule("PackedMultiHeadAttention")
def packed_multi_head_attention(call: OperatorCall) -> list[Output]:
    """Return tokens×v, from separate operands or from one packed operand of tokens×n×3×h."""
    if _rank(call, 0) == 4:
        tokens, heads, _, head_size = call.dims(0, 4)
        return [(call.element_type(0), (tokens, product(heads, head_size)))]
    tokens, _ = call.dims(0, 2)
    return [(call.element_type(0), (tokens, call.dims(2, 2)[1]))]


# --- query, key and value apart -------------------------------------------------------------------------------------


@rule("MultiHeadAttention")
def multi_head_attention(call: OperatorCall) -> list[Output]:
    """Return b×s×v, the caches of keys and values b×n×t×h, and the scores b×n×s×t.

    Key and value are packed with the query (b×s×n×3×h), packed with each other (b×l×n×2×h), apart (b×l×width), or in
    the cache's own layout (b×n×l×h).
    """
    heads = call.integer("num_heads")
    shape = call.shape(0) or (None, None)
    if len(shape) < 2:
        raise UnfitError
    batch, sequence, *_ = shape
    length, key_size, value_size = _keys_and_values(call, heads)
    past_length = call.dims(6, 4)[2] if call.has(6) else 0
    shared = call.has(8)  # past and present share one buffer; operand 8 is the used length
    covered = past_length if shared else total(past_length, length)
    used = call.scalar(8) if shared else past_length
    element_type = call.element_type(0)
    return [
        (element_type, (batch, sequence, product(heads, value_size))),
        (element_type, (batch, heads, covered, key_size)),
        (element_type, (batch, heads, covered, value_size)),
        (element_type, (batch, heads, sequence, total(used, length))),
    ]


def _keys_and_values(call: OperatorCall, heads: int) -> tuple[Dim, Dim, Dim]:
    if not call.has(1) or _rank(call, 1) == 5:
        _, length, _, _, head_size = call.dims(int(call.has(1)), 5)
        return length, head_size, head_size
    if _rank(call, 1) == 4:
        _, _, length, head_size = call.dims(1, 4)
        return length, head_size, call.dims(2, 4)[3]
    _, length, key_width = call.dims(1, 3)
    return length, quotient(key_width, heads), quotient(call.dims(2, 3)[2], heads)


@rule("DecoderMaskedMultiHeadAttention")
def decoder_masked_multi_head_attention(call: OperatorCall) -> list[Output]:
    """Return one new token: b×1×v, the caches, and the scores b×n×1×t.

    Without keys the query packs all three; keys in the cache's layout (cross attention) leave no cache.
    """
    heads = call.integer("num_heads")
    batch, sequence, width = call.dims(0, 3)
    element_type = call.element_type(0)
    if _rank(call, 1) == 4:
        _, _, length, _ = call.dims(1, 4)
        output = element_type, (batch, sequence, product(heads, call.dims(2, 4)[3]))
        return [output, None, None, (element_type, (batch, heads, sequence, length))]
    value_width = call.dims(2, 3)[2] if call.has(1) else quotient(width, 3)
    key_size = quotient(width if call.has(1) else value_width, heads)
    past_length = call.dims(5, 4)[2] if call.has(5) else 0
    covered = past_length if call.attribute("past_present_share_buffer", 0) else total(past_length, sequence)
    used = call.scalar(7) if call.has(7) else past_length
    return [
        (element_type, (batch, sequence, value_width)),
        (element_type, (batch, heads, covered, key_size)),
        (element_type, (batch, heads, covered, quotient(value_width, heads))),
        (element_type, (batch, heads, sequence, total(used, sequence))),
    ]


def _grouped_sizes(call: OperatorCall) -> tuple[Dim, Dim, int, int, Dim]:
    """Return b, s, n, kv and h of queries in groups; a query without keys packs all three."""
    heads, groups = call.integer("num_heads"), call.integer("kv_num_heads")
    batch, sequence, width = call.dims(0, 3)
    return batch, sequence, heads, groups, quotient(width, heads if call.has(1) else heads + 2 * groups)


@rule("GroupQueryAttention")
def group_query_attention(call: OperatorCall) -> list[Output]:
    """Return b×s×(n·h), the caches b×kv×max(p, t)×h, and the scores b×n×s×t.

    The total length t is the value of operand 6. Without it the caches' length is known only where there is no past (t
    = s), or bounded by the past and the new tokens. A past may be a buffer of maximum length, which does not grow, or
    hold the past tokens alone.
    """
    batch, sequence, heads, groups, head_size = _grouped_sizes(call)
    reached, covered = _lengths(call, sequence)
    output: Output = (call.element_type(0), (batch, sequence, product(heads, head_size)))
    scores: Output = (call.element_type(0), (batch, heads, sequence, reached))
    caches = [_cache(call, index, (batch, groups, covered, head_size)) for index in (3, 4)]
    return [output, *caches, scores]


def _lengths(call: OperatorCall, sequence: Dim) -> tuple[Dim, Dim]:
    reached = call.scalar(6)
    if not call.has(3):
        return (reached or sequence,) * 2
    past_length = call.dims(3, 4)[2]
    if reached is None and call.bounded:
        reached = total(past_length, sequence)
    if call.attribute("sliding_window_cache", 0):
        return reached, past_length
    return reached, None if reached is None or past_length is None else max(reached, past_length)


def _cache(call: OperatorCall, past: int, shape: tuple[Dim, ...]) -> Output:
    """Return a cache in the element type and the head size of its past, which may be quantized and packed."""
    if not call.has(past):
        return call.element_type(0), shape
    return call.element_type(past), (*shape[:3], call.dims(past, 4)[3])


@rule("SparseAttention")
def sparse_attention(call: OperatorCall) -> list[Output]:
    """Return b×s×(n·h), and the caches, which are buffers of maximum length."""
    batch, sequence, heads, _, head_size = _grouped_sizes(call)
    return [(call.element_type(0), (batch, sequence, product(heads, head_size))), call.same(3), call.same(4)]


@rule("RemovePadding")
def remove_padding(call: OperatorCall) -> list[Output]:
    """Return tokens×width (data decide how many tokens), b×s offsets, b + 1 sums, and the longest sequence."""
    batch, sequence, width = call.dims(0, 3)
    lengths = (total(batch, 1),)
    integers = TensorProto.INT32
    return [(call.element_type(0), (None, width)), (integers, (batch, sequence)), (integers, lengths), (integers, (1,))]


@rule("RestorePadding")
def restore_padding(call: OperatorCall) -> list[Output]:
    """Return tokens×width as b×s×width, with b×s from the offsets."""
    return [(call.element_type(0), (*call.dims(1, 2), call.dims(0, 2)[1]))]


@rule("RelativePositionBias")
def relative_position_bias(call: OperatorCall) -> list[Output]:
    """Return 1×n×query×key of a table of buckets×n; both lengths are values."""
    return [(call.element_type(0), (1, call.dims(0, 2)[1], call.scalar(1), call.scalar(2)))]


@rule("DynamicQuantizeLSTM")
def lstm(call: OperatorCall) -> list[Output]:
    """Return an LSTM's outputs: all hidden states, the last hidden state, and the last cell state."""
    return infer_as(call, Likeness("LSTM", (0, 1, 2)))


def _windowed(call: OperatorCall, state: tuple[Dim, ...]) -> Shape:
    """Return the states after the last ``state_window`` tokens, or the last state alone."""
    window = call.integer("state_window", 0)
    return (window, *state) if window else state


@rule("LinearAttention")
def linear_attention(call: OperatorCall) -> list[Output]:
    """Return b×s×(max(n, kv)·h of the values), and a state of key size × value size for each of the kv heads."""
    heads, groups = call.integer("q_num_heads"), call.integer("kv_num_heads")
    batch, sequence, query_width = call.dims(0, 3)
    value_size = quotient(call.dims(2, 3)[2], groups)
    state = _windowed(call, (batch, groups, quotient(query_width, heads), value_size))
    state_type = call.element_type(3) or call.element_type(0)
    return [(call.element_type(0), (batch, sequence, product(max(heads, groups), value_size))), (state_type, state)]


@rule("CausalConvWithState")
def causal_conv_with_state(call: OperatorCall) -> list[Output]:
    """Return the input's shape, and the last (k − 1)·dilation positions, k the kernel's first extent."""
    shape, weight = call.shape(0), call.shape(1)
    if shape is None or weight is None:
        return [call.same(0)]
    if len(weight) < 3 or len(shape) < 3:
        raise UnfitError
    # Channels last: the sequence is axis 1; otherwise the causal axis is the last one.
    last = call.attribute("channels_last", 0)
    kernel = weight[2] if last else weight[-1]
    carried = product(total(kernel, -1), call.integer("dilation", 1))
    state = (shape[0], carried, *shape[2:]) if last else (*shape[:-1], carried)
    return [call.same(0), (call.element_type(0), _windowed(call, state))]

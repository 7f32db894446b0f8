"""Operators that rearrange, select or generate elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from common.graphs.graph import Dim
from common.graphs.operators import ONNX
from common.onnx_graph.shapes.contrib.as_onnx import Likeness, infer_as
from common.onnx_graph.shapes.contrib.registry import (
    OperatorCall,
    Output,
    UnfitError,
    as_tuple,
    product,
    quotient,
    rule,
    smallest,
    total,
)


@rule("DynamicTimeWarping")
def dynamic_time_warping(call: OperatorCall) -> list[Output]:
    """Return the cheapest path as two rows of indices; its length depends on the M×N costs.

    The longest one follows two edges and has M + N − 1 points.
    """
    shape = call.shape(0) or ()
    return [(TensorProto.INT32, (2, total(*shape[-2:], -1) if call.bounded and len(shape) > 1 else None))]


@rule("GatherBlockQuantized")
def gather_block_quantized(call: OperatorCall) -> list[Output]:
    """Gather of a quantized table into its scales' type; bytes hold 8 / ``bits`` elements along the last axis."""
    table = call.shape(0)
    bits = call.integer("bits", 4)
    if table and 0 < bits < 8 and call.element_type(0) == TensorProto.UINT8:
        elements = None if table[-1] is None else table[-1] * (8 // bits)
        table = (*table[:-1], elements)
    axis = call.integer("gather_axis", 0)
    likeness = Likeness("Gather", (0, 1), typed_by=2)
    return infer_as(call, likeness, shapes={0: table}, attributes={"axis": axis})


@rule("Pad")
def pad(call: OperatorCall) -> list[Output]:
    """Add the pads of operand 1: those before all axes, then those after; it may have a leading axis of 1."""
    shape = call.shape(0)
    pads = as_tuple(call.value(1), 0 if shape is None else 2 * len(shape))
    if shape is None or len(pads) != 2 * len(shape):
        return [(call.element_type(0), None)]
    padded = zip(shape, pads[: len(shape)], pads[len(shape) :], strict=True)
    return [(call.element_type(0), tuple(total(*dims) for dims in padded))]


@rule("MurmurHash3")
def murmur_hash3(call: OperatorCall) -> list[Output]:
    """Return one 32-bit hash per element, unsigned unless ``positive`` is 0."""
    return [(TensorProto.UINT32 if call.attribute("positive", 1) else TensorProto.INT32, call.shape(0))]


@rule("QLinearConcat")
def qlinear_concat(call: OperatorCall) -> list[Output]:
    """Infer a Concat of operands 2, 5, 8 …, each followed by its scale and zero point."""
    return infer_as(call, Likeness("Concat", tuple(range(2, len(call.operands), 3)), typed_by=1))


@rule("Range")
def sequence_of_numbers(call: OperatorCall) -> list[Output]:
    """Return ⌈(limit − start) / delta⌉ numbers, known where all three are."""
    bounds = [call.value(0), call.value(1), call.value(2) if call.has(2) else np.array(1)]
    known = [value for value in bounds if value is not None]
    if any(value.size != 1 or value.dtype.kind not in "biuf" for value in known):
        raise UnfitError
    if len(known) < len(bounds):
        return [(call.element_type(0), (None,))]
    start, limit, delta = (value.item() for value in known)
    steps = (limit - start) / delta if delta else np.nan
    if not np.isfinite(steps):
        raise UnfitError
    return [(call.element_type(0), (max(0, int(np.ceil(steps))),))]


@rule("Tokenizer")
def tokenizer(call: OperatorCall) -> list[Output]:
    """Return a further axis for the tokens of each string; its length depends on the strings."""
    shape = call.shape(0)
    return [(TensorProto.STRING, None if shape is None else (*shape, None))]


@rule("UnfoldTensor")
def unfold_tensor(call: OperatorCall) -> list[Output]:
    """Return ⌊(extent − size) / step⌋ + 1 windows along one axis; their elements become the last axis."""
    shape = call.shape(0)
    if not shape:
        return [(call.element_type(0), None)]
    size, step = call.integer("size"), call.integer("step", 1)
    axis = call.integer("dim", -1) % len(shape)
    windows = total(quotient(total(shape[axis], -size), step), 1)
    return [(call.element_type(0), (*shape[:axis], windows, *shape[axis + 1 :], size))]


@rule("Unique")
def unique(call: OperatorCall) -> list[Output]:
    """Return the distinct values, each element's index among them, and their counts; data decide how many."""
    [count] = call.dims(0, 1)
    distinct = count if call.bounded else None
    return [(call.element_type(0), (distinct,)), (TensorProto.INT64, (count,)), (TensorProto.INT64, (distinct,))]


@rule("Rfft")
def rfft(call: OperatorCall) -> list[Output]:
    """Turn real numbers into pairs: ⌊n/2⌋ + 1 of them along the last axis where one side is kept."""
    shape = call.shape(0)
    if not shape:
        return [(call.element_type(0), None)]
    frequencies = total(quotient(shape[-1], 2), 1) if call.attribute("onesided", 1) else shape[-1]
    return [(call.element_type(0), (*shape[:-1], frequencies, 2))]


@rule("Irfft")
def irfft(call: OperatorCall) -> list[Output]:
    """Turn pairs back into 2·(m − 1) real numbers along the last axis, or into m where both sides are given."""
    shape = call.shape(0)
    if not shape:
        return [(call.element_type(0), None)]
    if len(shape) < 2:
        raise UnfitError
    frequencies = shape[-2]
    if not call.attribute("onesided", 1) or frequencies is None:
        return [(call.element_type(0), (*shape[:-2], frequencies))]
    return [(call.element_type(0), (*shape[:-2], 2 * (frequencies - 1)))]


# --- text generation: searches that run a decoder, and the hashing of token n-grams ----------------------------------


def _batch_and_sequence(call: OperatorCall) -> tuple[Dim, Dim]:
    """Return the first two axes of operand 0: token ids b×s, or an encoder's features with further axes."""
    shape = call.shape(0)
    return (None, None) if shape is None or len(shape) < 2 else (shape[0], shape[1])


def _vocabulary(call: OperatorCall) -> Dim:
    size = call.integer("vocab_size", -1)
    return size if size > 0 else None


@rule("BeamSearch", "WhisperBeamSearch")
def beam_search(call: OperatorCall) -> list[Output]:
    """Return b×returned×max_length tokens, b×returned scores, and the scores of every step."""
    batch, sequence = _batch_and_sequence(call)
    longest, beams, returned = call.scalar(1), call.scalar(3), call.scalar(4)
    steps = total(longest, None if sequence is None else -sequence) if not call.attribute("model_type", 0) else None
    scores = call.element_type(5) or TensorProto.FLOAT
    return [
        (TensorProto.INT32, (batch, returned, longest)),
        (scores, (batch, returned)),
        (scores, (steps, batch, beams, _vocabulary(call))),
    ]


@rule("GreedySearch", "Sampling")
def greedy_search(call: OperatorCall) -> list[Output]:
    """Return b×max_length tokens; Sampling can return its last filtered logits too."""
    batch, _ = _batch_and_sequence(call)
    return [(TensorProto.INT32, (batch, call.scalar(1))), (TensorProto.FLOAT, (batch, _vocabulary(call)))]


def _history(call: OperatorCall) -> int:
    return call.integer("max_ngram_size") - 1


def _hashes(call: OperatorCall) -> int:
    return _history(call) * call.integer("n_head_per_ngram")


@rule("NGramHashMapping")
def ngram_hash_mapping(call: OperatorCall) -> list[Output]:
    """Return b×s×hashes, and the ids that the next call needs."""
    batch, sequence = call.dims(0, 2)
    ids = call.element_type(0)
    return [(ids, (batch, sequence, _hashes(call))), (ids, (batch, _history(call)))]


@rule("VarlenNGramHashMapping")
def varlen_ngram_hash_mapping(call: OperatorCall) -> list[Output]:
    """Return tokens×hashes, and for each request the ids, segments and captured states for the next call."""
    [tokens] = call.dims(0, 1)
    batch = total(call.dims(3, 1)[0], -1)
    ids, history = call.element_type(0), _history(call)
    captured = (batch, call.integer("state_update_capacity", 0), history)
    return [
        (ids, (tokens, _hashes(call))),
        (ids, (batch, history)),
        (TensorProto.INT32, (batch, history)),
        (ids, captured),
    ]


# --- operators of ONNX whose shape depends on a value that ONNX's own inference ignores -----------------------------


@rule("Compress", domains=(ONNX,))
def compress(call: OperatorCall) -> Sequence[Output]:
    """Return the slices along an axis, or of the flattened operand, for which the condition (operand 1) holds."""
    shape, condition = call.shape(0), call.value(1)
    axis = None if call.attribute("axis") is None else call.integer("axis")
    if shape is None:
        return [(call.element_type(0), None if axis is not None else (None,))]
    if (axis is not None and not -len(shape) <= axis < len(shape)) or (condition is not None and condition.ndim != 1):
        raise UnfitError
    extent = product(*shape) if axis is None else shape[axis]
    chosen = None if condition is None or extent is None else int(np.count_nonzero(condition[:extent]))
    if chosen is None and call.bounded:
        chosen = smallest(extent, *call.dims(1, 1))
    if axis is None:
        return [(call.element_type(0), (chosen,))]
    dims = list(shape)
    dims[axis] = chosen
    return [(call.element_type(0), tuple(dims))]


@rule("MaxUnpool", domains=(ONNX,))
def max_unpool(call: OperatorCall) -> Sequence[Output]:
    """Return the shape that operand 2 gives, where it is given."""
    shape = call.shape(0)
    return [(call.element_type(0), as_tuple(call.value(2), len(shape)) if shape is not None and call.has(2) else None)]

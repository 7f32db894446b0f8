"""Text generation: searches that run a decoder, and the hashing and matching of token n-grams."""

from __future__ import annotations

from onnx import TensorProto

from common.graph import Dim
from common.onnx_graph.shapes.contrib.registry import OperatorCall, Output, rule, total


def _batch_and_sequence(call: OperatorCall) -> tuple[Dim, Dim]:
    """Return the first two axes of operand 0: token ids b×s, or an encoder's features with further axes."""
    shape = call.shape(0)
    return (None, None) if shape is None or len(shape) < 2 else (shape[0], shape[1])


def _vocabulary(call: OperatorCall) -> Dim:
    size = call.integer("vocab_size", -1)
    return size if size > 0 else None


@rule("BeamSearch", "WhisperBeamSearch")
def beam_search(call: OperatorCall) -> list[Output]:
    """b×returned×max_length tokens, b×returned scores, and the scores of every step."""
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
    """b×max_length tokens; Sampling can return its last filtered logits too."""
    batch, _ = _batch_and_sequence(call)
    return [(TensorProto.INT32, (batch, call.scalar(1))), (TensorProto.FLOAT, (batch, _vocabulary(call)))]


def _history(call: OperatorCall) -> int:
    return call.integer("max_ngram_size") - 1


def _hashes(call: OperatorCall) -> int:
    return _history(call) * call.integer("n_head_per_ngram")


@rule("NGramHashMapping")
def ngram_hash_mapping(call: OperatorCall) -> list[Output]:
    """b×s×hashes, and the ids that the next call needs."""
    batch, sequence = call.dims(0, 2)
    ids = call.element_type(0)
    return [(ids, (batch, sequence, _hashes(call))), (ids, (batch, _history(call)))]


@rule("VarlenNGramHashMapping")
def varlen_ngram_hash_mapping(call: OperatorCall) -> list[Output]:
    """Tokens×hashes, and for each request the ids, segments and captured states that the next call needs."""
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

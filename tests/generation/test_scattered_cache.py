"""A cache into which the graph scatters new tokens, as the static cache of ``transformers``: it is read as a whole.

No operator reads how much of it is valid. Products read each row, and a mask hides those that are not valid. So the
count is that of the whole buffer, which is what the runtime computes.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from common.generation.decoder import decoder_of, require_length
from common.generation.loop import AnswerPlan, GenerationPlan, generate, require_room
from common.generation.phases import DECODE, PREFILL, phase_rows, point_at
from common.messages.errors import UnusableValueError
from common.onnx_graph.load import load_model
from tests.support.models.onnx_models import INT64, Typed, model

ROOM, WIDTH, VOCABULARY = 23, 7, 11
CACHES = ("past_key_values.0.key", "past_key_values.0.value")


def node(op_type, inputs, output, **attributes):
    return helper.make_node(op_type, inputs, [output], name=output, **attributes)


def scattered_decoder():
    """One layer of attention over two buffers; the keys, the values and the query of a token are its embedding."""
    random = np.random.default_rng(0)
    nodes = [
        node("Gather", ["table", "input_ids"], "tokens"),
        node("Unsqueeze", ["tokens", "one"], "query"),  # [1, 1, seq, WIDTH]
        node("Transpose", ["query"], "new", perm=[2, 0, 1, 3]),
        node("Unsqueeze", ["cache_position", "last"], "places"),
    ]
    for cache in CACHES:
        present = cache.replace("past_key_values", "present")
        nodes += [
            node("Transpose", [cache], f"{cache}.turned", perm=[2, 0, 1, 3]),
            node("ScatterND", [f"{cache}.turned", "places", "new"], f"{cache}.written"),
            node("Transpose", [f"{cache}.written"], present, perm=[1, 2, 0, 3]),
        ]
    nodes += [
        node("Transpose", ["present.0.key"], "keys", perm=[0, 1, 3, 2]),
        node("MatMul", ["query", "keys"], "scores"),
        node("LessOrEqual", ["rows", "places"], "is_valid"),
        node("Where", ["is_valid", "scores", "least"], "hidden"),
        node("Softmax", ["hidden"], "shares", axis=-1),
        node("MatMul", ["shares", "present.0.value"], "attended"),
        node("Squeeze", ["attended", "one"], "states"),
        node("MatMul", ["states", "head"], "logits"),
    ]
    weights = {
        "table": random.standard_normal((VOCABULARY, WIDTH)).astype(np.float32),
        "head": random.standard_normal((WIDTH, VOCABULARY)).astype(np.float32),
        "one": np.array([1]),
        "last": np.array([-1]),
        "rows": np.arange(ROOM)[None],
        "least": np.array(-1e9, np.float32),
    }
    buffer = (1, 1, ROOM, WIDTH)
    inputs = {"input_ids": Typed(INT64, (1, "seq")), "cache_position": Typed(INT64, ("seq",))}
    inputs |= dict.fromkeys(CACHES, buffer)
    outputs = {"logits": (1, "seq", VOCABULARY), "present.0.key": buffer, "present.0.value": buffer}
    return model(nodes, inputs, outputs, weights)


@pytest.fixture
def path(tmp_path):
    onnx.save(scattered_decoder(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def decoder(path):
    return decoder_of(load_model(path, {}, symbolic=True), {}, {})


def test_each_phase_counts_the_whole_buffer(decoder):
    """A token: two products over ROOM rows, and the head. The caches are two buffers, however many tokens they hold."""
    points = [point_at(*point) for point in ((PREFILL, 5), (DECODE, 3))]
    prefill, decode = (row for row in phase_rows(decoder, points, ()) if row["model_part"] == "model")
    token = 2 * ROOM * WIDTH + WIDTH * VOCABULARY
    assert (prefill["macs"], decode["macs"]) == (5 * token, token)
    assert (prefill["phase_macs_expression"], decode["phase_macs_expression"]) == (f"{token}*seq", f"{token}")
    assert prefill["cache_bytes"] == decode["cache_bytes"] == 2 * ROOM * WIDTH * 4


def test_the_runtime_reads_each_row_of_the_buffer(path):
    """A mask hides a row from the answer, but not from the product: what is no number there is none in the answer."""
    session, position = onnxruntime.InferenceSession(path), 3

    def logits(row, value):
        caches = {name: np.ones((1, 1, ROOM, WIDTH), np.float32) for name in CACHES}
        caches[CACHES[1]][:, :, row] = value
        feeds = {"input_ids": np.array([[5]]), "cache_position": np.array([position]), **caches}
        return session.run(["logits"], feeds)[0]

    plain = logits(position, 1.0)  # the row that the new token is written into
    read = [row for row in range(ROOM) if np.isnan(logits(row, np.nan)).all()]
    seen = [row for row in range(ROOM) if not np.array_equal(logits(row, 2.0), plain)]
    assert read == [row for row in range(ROOM) if row != position]
    assert seen == [0, 1, 2]


def test_the_loop_gives_the_tokens_of_a_loop_without_buffers(path, decoder):
    prompt, count = [2, 7, 1, 8], 12
    plan = GenerationPlan([AnswerPlan(prompt, count)], 1)
    require_room(decoder, plan)
    tokens, failure = generate(onnxruntime.InferenceSession(path), decoder, plan, 0, path, lambda *_: None)
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    text = list(prompt)
    for _ in range(count):
        known = weights["table"][text]
        scores = np.exp(known @ known[-1])
        text.append(int(np.argmax(scores / scores.sum() @ known @ weights["head"])))
    assert failure is None
    assert [token.chosen for token in tokens] == text[len(prompt) :]


def test_more_tokens_than_the_buffer_has_rows_are_refused(decoder):
    require_length(decoder, ROOM, "tokens")
    with pytest.raises(UnusableValueError, match=f"take {ROOM + 1} tokens of cache, and a buffer has room for {ROOM}"):
        require_length(decoder, ROOM + 1, "tokens")

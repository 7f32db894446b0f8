"""A cache into which the graph scatters new tokens, as the static cache of ``transformers``: it is read as a whole.

No operator reads how much of it is valid. Products read each row, and a mask hides those that are not valid. So the
count is that of the whole buffer, which is what the runtime computes.
"""

from __future__ import annotations

from typing import NamedTuple

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


class Layout(NamedTuple):
    """How a graph writes new tokens, and which of batch, heads, tokens and width each axis of its buffers is."""

    op_type: str
    order: tuple[int, ...]

    def perm(self, *axes):
        """From the axes of a buffer to these."""
        return [self.order.index(axis) for axis in axes]

    @property
    def axis(self):
        return self.order.index(2)

    @property
    def buffer(self):
        return tuple((1, 1, ROOM, WIDTH)[axis] for axis in self.order)

    def written(self, cache, present):
        """Nodes that write ``query`` at ``places`` of a cache."""
        if self.op_type == "ScatterElements":
            return [
                node("Transpose", ["query"], f"{cache}.new", perm=self.order),
                node("Shape", [f"{cache}.new"], f"{cache}.extents"),
                node("Reshape", ["cache_position", f"{cache}.along"], f"{cache}.along_axis"),
                node("Expand", [f"{cache}.along_axis", f"{cache}.extents"], f"{cache}.places"),
                node(self.op_type, [cache, f"{cache}.places", f"{cache}.new"], present, axis=self.axis - 4),
            ]
        turned = self.perm(2, 0, 1, 3)
        return [
            node("Transpose", [cache], f"{cache}.turned", perm=turned),
            node(self.op_type, [f"{cache}.turned", "places", "new"], f"{cache}.written"),
            node("Transpose", [f"{cache}.written"], present, perm=np.argsort(turned).tolist()),
        ]


def scattered_decoder(layout):
    """One layer of attention over two buffers; the keys, the values and the query of a token are its embedding."""
    random = np.random.default_rng(0)
    nodes = [
        node("Gather", ["table", "input_ids"], "tokens"),
        node("Unsqueeze", ["tokens", "one"], "query"),  # [1, 1, seq, WIDTH]
        node("Transpose", ["query"], "new", perm=[2, 0, 1, 3]),
        node("Unsqueeze", ["cache_position", "last"], "places"),
    ]
    for cache in CACHES:
        nodes += layout.written(cache, cache.replace("past_key_values", "present"))
    nodes += [
        node("Transpose", ["present.0.key"], "keys", perm=layout.perm(0, 1, 3, 2)),
        node("Transpose", ["present.0.value"], "values", perm=layout.perm(0, 1, 2, 3)),
        node("MatMul", ["query", "keys"], "scores"),
        node("LessOrEqual", ["rows", "places"], "is_valid"),
        node("Where", ["is_valid", "scores", "least"], "hidden"),
        node("Softmax", ["hidden"], "shares", axis=-1),
        node("MatMul", ["shares", "values"], "attended"),
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
    along = np.array([-1 if axis == layout.axis else 1 for axis in range(4)])
    weights |= {f"{cache}.along": along for cache in CACHES if layout.op_type == "ScatterElements"}
    inputs = {"input_ids": Typed(INT64, (1, "seq")), "cache_position": Typed(INT64, ("seq",))}
    inputs |= dict.fromkeys(CACHES, layout.buffer)
    outputs = {"logits": (1, "seq", VOCABULARY), "present.0.key": layout.buffer, "present.0.value": layout.buffer}
    return model(nodes, inputs, outputs, weights)


@pytest.fixture(
    params=[
        Layout("ScatterND", (0, 1, 2, 3)),
        Layout("ScatterND", (0, 2, 1, 3)),
        Layout("ScatterND", (1, 2, 3, 0)),
        Layout("ScatterElements", (0, 2, 1, 3)),
    ],
    ids=str,
)
def layout(request):
    return request.param


@pytest.fixture
def path(tmp_path, layout):
    onnx.save(scattered_decoder(layout), tmp_path / "m.onnx")
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


def test_the_runtime_reads_each_row_of_the_buffer(path, layout):
    """A mask hides a row from the answer, but not from the product: what is no number there is none in the answer."""
    session, position = onnxruntime.InferenceSession(path), 3

    def logits(row, value):
        caches = {name: np.ones(layout.buffer, np.float32) for name in CACHES}
        np.moveaxis(caches[CACHES[1]], layout.axis, 0)[row] = value
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

"""Generative models: work by closed form, and a prompt at once gives what its tokens give one after the other."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from common.graphs.cache_names import paired_names
from common.graphs.expressions import at
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import load_model
from models.__main__ import BUILDERS, save
from models.transformers.decoder import TINY, TINY_EXPERTS
from models.transformers.packing import quantized

PAST, NEW = 11, 3
FRAMES = 7


def macs_of(tmp_path, name, **sizes):
    """Count a model with symbols, and return the sum at these sizes."""
    save(BUILDERS[name](), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx", {}, symbolic=True)
    return sum(at(count.figure("macs"), {"batch": 1, **sizes}) for count in count_nodes(model.graph, None))


def products(sizes, feed_forward):
    """Weights that one token meets: projections of each layer, its feed-forward network, and the head."""
    keys = sizes.groups * sizes.head_size
    attention = sizes.hidden * (sizes.hidden + keys + keys) + sizes.hidden * sizes.hidden
    return sizes.layers * (attention + feed_forward) + sizes.hidden * sizes.vocabulary


def scores(sizes, new, total):
    return sizes.layers * sizes.heads * new * total * 2 * sizes.head_size


def test_a_decoder_by_closed_form(tmp_path):
    each = products(TINY, 3 * TINY.hidden * TINY.wide)
    expected = NEW * each + scores(TINY, NEW, PAST + NEW)
    assert macs_of(tmp_path, "tiny-decoder", past=PAST, seq=NEW) == expected
    lengths = {"past_sequence_length": PAST, "sequence_length": NEW, "total_sequence_length": PAST + NEW}
    assert macs_of(tmp_path, "tiny-grouped-decoder", **lengths) == expected


def test_a_decoder_over_a_buffer_by_closed_form(tmp_path):
    """The same file with a buffer of 512 of which 11 are valid: the buffer's length changes nothing."""
    lengths = {"past_sequence_length": 512, "sequence_length": 1, "total_sequence_length": PAST + 1}
    each = products(TINY, 3 * TINY.hidden * TINY.wide)
    assert macs_of(tmp_path, "tiny-grouped-decoder", **lengths) == each + scores(TINY, 1, PAST + 1)


def test_experts_by_closed_form(tmp_path):
    """A router, and two of five experts of two products each."""
    sizes = TINY_EXPERTS
    feed_forward = sizes.hidden * sizes.experts + sizes.chosen * 2 * sizes.hidden * sizes.wide
    lengths = {"past_sequence_length": PAST, "sequence_length": NEW, "total_sequence_length": PAST + NEW}
    expected = NEW * products(sizes, feed_forward) + scores(sizes, NEW, PAST + NEW)
    assert macs_of(tmp_path, "tiny-expert-decoder", **lengths) == expected


def test_weights_of_four_bits_by_closed_form(tmp_path):
    """The products are those of the unpacked decoder, and each value is within half a step of its weight."""
    lengths = {"past_sequence_length": PAST, "sequence_length": NEW, "total_sequence_length": PAST + NEW}
    assert macs_of(tmp_path, "tiny-packed-decoder", **lengths) == macs_of(tmp_path, "tiny-grouped-decoder", **lengths)
    weight = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    codes, scales = quantized(weight)
    values = np.stack([codes & 15, codes >> 4], axis=-1).reshape(3, 64).astype(np.float32) - 8
    steps = scales.reshape(3, 2).repeat(32, axis=1)
    assert np.abs(weight.T - (values * steps)[:, :40]).max() <= scales.max() / 2 * 1.0001
    assert not values[:, 40:].any()


def test_states_and_cross_caches_by_closed_form(tmp_path):
    hidden, heads, size, vocabulary = 32, 2, 16, 97
    layer = hidden * 4 + 4 * hidden * hidden + heads * size * size * 2 + hidden * hidden
    assert macs_of(tmp_path, "tiny-state-space", seq=NEW) == NEW * (2 * layer + hidden * vocabulary)
    keys = 2 * heads * size * (PAST + NEW + FRAMES)
    speech = NEW * (2 * (6 * hidden * hidden + keys) + hidden * vocabulary)
    assert macs_of(tmp_path, "tiny-speech-decoder", past=PAST, seq=NEW, frames=FRAMES) == speech


class Caller:
    """Calls of a session that feed the caches back, in numpy: no code is shared with the loop of the project."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.inputs = {value.name: value.shape for value in self.session.get_inputs()}
        self.outputs = [value.name for value in self.session.get_outputs()]
        self.pairs = paired_names(self.inputs, self.outputs)
        sizes = {"batch": 1, "past": 0, "past_sequence_length": 0, "frames": FRAMES}
        draw = np.random.default_rng(1).standard_normal
        self.caches = {
            name: draw([sizes.get(dim, dim) for dim in shape]).astype(np.float32) * (name not in self.pairs)
            for name, shape in self.inputs.items()
            if "past" in name
        }
        self.length = 0

    def logits(self, tokens):
        """Return the logits of the last of these new tokens."""
        self.length += len(tokens)
        fed = {"input_ids": [tokens], "attention_mask": [[1] * self.length]}
        fed["position_ids"] = [[*range(self.length - len(tokens), self.length)]]
        arrays = {name: np.array(value, np.int64) for name, value in fed.items() if name in self.inputs}
        answer = dict(zip(self.outputs, self.session.run(None, {**arrays, **self.caches}), strict=True))
        self.caches |= {past: answer[present] for past, present in self.pairs.items()}
        return answer["logits"][0, -1]


TOKENS = [5, 71, 2, 96, 33, 8, 14]


@pytest.mark.parametrize("name", [*("tiny-decoder", "tiny-grouped-decoder", "tiny-expert-decoder"), "tiny-state-space"])
def test_a_prompt_at_once_is_its_tokens_one_after_the_other(tmp_path, name):
    save(BUILDERS[name](), tmp_path / "m.onnx")
    whole, single = Caller(tmp_path / "m.onnx"), Caller(tmp_path / "m.onnx")
    at_once = whole.logits(TOKENS)
    for token in TOKENS:
        last = single.logits([token])
    np.testing.assert_allclose(last, at_once, atol=1e-4)


def test_both_forms_of_the_decoder_compute_the_same(tmp_path):
    """Seeds give both the same weights, so plain operators are a second implementation of the fused ones."""
    answers = []
    for name in ("tiny-decoder", "tiny-grouped-decoder"):
        save(BUILDERS[name](), tmp_path / f"{name}.onnx")
        answers.append(Caller(tmp_path / f"{name}.onnx").logits(TOKENS))
    np.testing.assert_allclose(*answers, atol=1e-4)

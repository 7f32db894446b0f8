"""What a decoder keeps in a card's memory: closed forms of weights, reads and caches in each format."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from common.generation.decoder import CallSizes, decoder_of
from common.generation.resident import WEIGHT_BITS, Resident
from common.messages.errors import UnusableValueError
from common.onnx_graph.load import load_model
from models.__main__ import BUILDERS, save
from models.transformers.decoder import TINY, TINY_EXPERTS

KEYS = TINY.groups * TINY.head_size
LAYER = TINY.hidden * (2 * TINY.hidden + 2 * KEYS) + 3 * TINY.hidden * TINY.wide
HEAD = TINY.hidden * TINY.vocabulary
SCORES = TINY.layers * TINY.heads * 2 * TINY.head_size
NORMS = (2 * TINY.layers + 1) * TINY.hidden
CACHE_ROW = 2 * TINY.layers * KEYS * 2  # two bytes for each key and value


def resident(tmp_path, name, weight_format):
    save(BUILDERS[name](), tmp_path / "m.onnx")
    decoder = decoder_of(load_model(tmp_path / "m.onnx", {}, symbolic=True), {}, {})
    return Resident(decoder, weight_format)


@pytest.mark.parametrize("name", ["tiny-decoder", "tiny-grouped-decoder"])
@pytest.mark.parametrize("weight_format", WEIGHT_BITS)
def test_a_token_reads_each_matrix_once_and_the_caches(tmp_path, name, weight_format):
    """Vectors, rotary tables and the row of the embedding are the rest: less than two rows of the model each."""
    found = resident(tmp_path, name, weight_format)
    matrices = (TINY.layers * LAYER + HEAD) * WEIGHT_BITS[weight_format] / 8
    for past in (7, 29):
        call = found.call(CallSizes(past, 1))
        assert call.cache_bytes == CACHE_ROW * (past + 1)
        rest = call.weight_bytes - matrices
        assert (NORMS + TINY.hidden) * 2 <= rest <= (NORMS + TINY.hidden + 8 * TINY.head_size) * 2 + 1
        assert call.macs == TINY.layers * LAYER + HEAD + (past + 1) * SCORES
    assert found.rounds == 4 * TINY.layers + 1


def test_the_head_computes_the_last_token_of_a_prompt(tmp_path):
    call = resident(tmp_path, "tiny-grouped-decoder", "int8").call(CallSizes(0, 11))
    assert call.macs == 11 * TINY.layers * LAYER + HEAD + 11 * 11 * SCORES


def test_the_whole_table_of_the_embedding_stays_in_16_bits(tmp_path):
    sizes = {name: resident(tmp_path, "tiny-grouped-decoder", name).weight_bytes for name in WEIGHT_BITS}
    each = TINY.layers * LAYER + HEAD
    assert sizes["bf16"] - sizes["int8"] == each
    assert sizes["int8"] - sizes["int4"] == pytest.approx(each * (8 - WEIGHT_BITS["int4"]) / 8, abs=1)
    assert sizes["int8"] - each >= (TINY.vocabulary * TINY.hidden + NORMS) * 2


def test_weights_of_four_bits_stay_as_they_are(tmp_path):
    """The file has four bits and a scale of 32 for each block: no format of the card makes them larger."""
    bf16, int8 = (resident(tmp_path, "tiny-packed-decoder", name) for name in ("bf16", "int8"))
    at = CallSizes(9, 1)
    assert bf16.call(at) == int8.call(at)
    assert int8.call(at).weight_bytes < resident(tmp_path, "tiny-grouped-decoder", "int8").call(at).weight_bytes


def test_a_token_reads_the_experts_that_run_and_the_card_holds_all(tmp_path):
    found = resident(tmp_path, "tiny-expert-decoder", "int8")
    expert = 3 * TINY_EXPERTS.hidden * TINY_EXPERTS.wide
    unread = TINY_EXPERTS.layers * (TINY_EXPERTS.experts - TINY_EXPERTS.chosen) * expert
    assert found.weight_bytes - found.call(CallSizes(9, 1)).weight_bytes >= unread


def test_packed_experts_take_the_bytes_that_their_bits_say(tmp_path):
    """Two matrices of each expert in four bits with a scale of 32 for each row; unpacked experts take as many bits."""
    plain = resident(tmp_path, "tiny-expert-decoder", "int4")
    onnx.save(packed_experts(BUILDERS["tiny-expert-decoder"]()), tmp_path / "packed.onnx")
    decoder = decoder_of(load_model(tmp_path / "packed.onnx", {}, symbolic=True), {}, {})
    int4, int8, bf16 = (Resident(decoder, name) for name in ("int4", "int8", "bf16"))
    for past in (9, 30):
        assert int4.call(CallSizes(past, 1)).weight_bytes == plain.call(CallSizes(past, 1)).weight_bytes
    assert int4.weight_bytes == plain.weight_bytes
    others = TINY_EXPERTS.layers * TINY_EXPERTS.hidden * (2 * TINY_EXPERTS.hidden + 2 * KEYS + TINY_EXPERTS.experts)
    assert bf16.weight_bytes - int8.weight_bytes == others + HEAD


def packed_experts(model):
    """Give each mixture of experts weights of four bits, two in a byte along the input, and a scale for each row."""
    weights = {one.name: one for one in model.graph.initializer}
    for node in (node for node in model.graph.node if node.op_type == "MoE"):
        x, logits, up, _, down = node.input
        scales = []
        for name in (up, down):
            experts, rows, columns = weights[name].dims
            scales.append(f"{name}.scales")
            bytes_ = np.zeros((experts, rows, columns // 2), np.uint8)
            weights[name].CopyFrom(onnx.numpy_helper.from_array(bytes_, name))
            scale = np.ones((experts, rows), np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(scale, scales[-1]))
        node.op_type = "QMoE"
        del node.input[:]
        node.input.extend([x, logits, up, scales[0], "", down, scales[1]])
        node.attribute.append(onnx.helper.make_attribute("expert_weight_bits", 4))
    return model


def test_states_of_constant_size_take_the_same_memory_at_each_length(tmp_path):
    found = resident(tmp_path, "tiny-state-space", "bf16")
    assert found.call(CallSizes(3, 1)).cache_bytes == found.call(CallSizes(300, 1)).cache_bytes > 0


@pytest.mark.parametrize("frames", [12, 24])
def test_the_keys_of_an_encoder_are_read_with_each_token(tmp_path, frames):
    """Keys and values of two layers with two heads of 16, in two bytes: 256 bytes for each frame and each token."""
    save(BUILDERS["tiny-speech-decoder"](), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx", {"frames": frames}, symbolic=True)
    found = Resident(decoder_of(model, {"frames": frames}, {}), "int8")
    assert found.call(CallSizes(5, 1)).cache_bytes == 256 * (frames + 6)


def test_work_that_depends_on_data_is_refused(tmp_path, monkeypatch):
    found = resident(tmp_path, "tiny-decoder", "int8")
    monkeypatch.setattr("common.onnx_graph.counts.NodeCount.figure", lambda *_: None)
    with pytest.raises(UnusableValueError, match="depends on data"):
        found.call(CallSizes(1, 1))

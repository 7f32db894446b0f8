"""What a decoder keeps in a card's memory: closed forms of weights, reads and caches in each format."""

from __future__ import annotations

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

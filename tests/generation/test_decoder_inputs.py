"""What a call of a decoder takes, and which models are none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from common.generation.decoder import CallSizes, decoder_of, drawn_rows
from common.generation.loop import drawn_prompt
from common.generation.phases import EMBEDDING, model_parts
from common.messages.errors import UnusableValueError
from common.onnx_graph.load import load_model
from models.__main__ import BUILDERS, save
from tests.support.models.onnx_models import INT64, Typed
from tests.support.models.small_decoders import WIDTH, small_decoder


def decoder(tmp_path, name, **sizes):
    save(BUILDERS[name](), tmp_path / "m.onnx")
    return decoder_of(load_model(tmp_path / "m.onnx", sizes, symbolic=True), sizes, {})


def test_a_cache_that_grows_sets_mask_and_positions(tmp_path):
    fed = decoder(tmp_path, "tiny-decoder").feeds([5, 7], CallSizes(past=3, new=2))
    assert {name: array.tolist() for name, array in fed.items()} == {
        "input_ids": [[5, 7]],
        "attention_mask": [[1] * 5],
        "position_ids": [[3, 4]],
    }


def test_a_buffer_has_its_own_length(tmp_path):
    found = decoder(tmp_path, "tiny-grouped-decoder")
    call = CallSizes(past=3, new=1, room=64)
    assert found.feeds([5], call)["attention_mask"].tolist() == [[1] * 4]
    assert found.shape(found.pairs[0].past, call) == (1, 2, 64, 16)


def test_what_no_call_changes_is_drawn_once(tmp_path):
    found = decoder(tmp_path, "tiny-speech-decoder", frames=7)
    assert {name: array.shape for name, array in found.still_values(0).items()} == {
        f"past_key_values.{layer}.encoder.{part}": (1, 2, 7, 16) for layer in (0, 1) for part in ("key", "value")
    }


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tiny-mlp", "has no cache: no output is fed to an input in the next call"),
        ("tiny-speech-decoder", "frames not bound"),
    ],
)
def test_other_models_are_refused_in_one_line(tmp_path, name, problem):
    with pytest.raises(UnusableValueError, match=problem):
        decoder(tmp_path, name)


def exported(tmp_path, **form):
    onnx.save(small_decoder(**form), tmp_path / "m.onnx")
    return decoder_of(load_model(tmp_path / "m.onnx", {}, symbolic=True), {"frames": 4}, {})


def test_what_exporters_add_to_a_call(tmp_path):
    """Ones for the mask of an encoder, too, and the number of a token as its position; switches are as in any loop."""
    more = {
        "encoder_attention_mask": Typed(INT64, ("batch", "frames")),
        "cache_position": Typed(INT64, ("seq",)),
        "use_cache_branch": Typed(TensorProto.BOOL, (1,)),
        "num_logits_to_keep": Typed(INT64, ()),
    }
    fed = exported(tmp_path, more=more).feeds([5, 7], CallSizes(3, 2))
    assert fed["encoder_attention_mask"].tolist() == [[1] * 4]
    assert fed["cache_position"].tolist() == [3, 4]
    assert (fed["use_cache_branch"].tolist(), fed["num_logits_to_keep"].tolist()) == ([True], 0)


def test_no_row_is_drawn_while_tokens_are_timed(tmp_path, monkeypatch):
    drawn_rows.cache_clear()
    found = exported(tmp_path, tokens="inputs_embeds")
    monkeypatch.setattr(np.random, "default_rng", None)
    assert np.isfinite(found.feeds([5, 7000], CallSizes(0, 2))["inputs_embeds"]).all()


def test_a_decoder_without_a_table_gets_a_row_for_each_token(tmp_path):
    """The same token has the same row in every call; no node is the embedding."""
    found = exported(tmp_path, tokens="inputs_embeds")
    first, later = (found.feeds(fed, CallSizes(0, len(fed)))["inputs_embeds"] for fed in ([5, 7, 5], [7]))
    assert (first.shape, later.shape, first.dtype) == ((1, 3, WIDTH), (1, 1, WIDTH), np.float32)
    assert (first[0, 0] == first[0, 2]).all()
    assert (first[0, 1] == later[0, 0]).all()
    assert (first[0, 0] != first[0, 1]).any()
    assert EMBEDDING not in model_parts(found).values()
    assert EMBEDDING in model_parts(exported(tmp_path)).values()


def test_a_decoder_of_one_token_per_call_takes_no_longer_prompt(tmp_path):
    found = exported(tmp_path, new=1)
    assert found.new is None
    assert found.feeds([5], CallSizes(3, 1))["input_ids"].tolist() == [[5]]
    assert len(drawn_prompt(found, 1, 0)) == 1
    with pytest.raises(UnusableValueError, match="2 tokens, and a call of the model takes one"):
        drawn_prompt(found, 2, 0)

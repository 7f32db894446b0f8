"""What a call of a decoder takes, and which models are none."""

from __future__ import annotations

import pytest

from common.generation.decoder import CallSizes, decoder_of
from common.messages.errors import UnusableValueError
from common.onnx_graph.load import load_model
from models.__main__ import BUILDERS, save


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

"""Caches of generative models: which inputs and outputs belong together, how they grow, and what cannot be fed back."""

from __future__ import annotations

import pytest
from onnx import helper

from common.graphs.cache_names import paired_names
from common.messages.errors import UnusableValueError
from common.onnx_graph.caches import cache_pairs
from common.onnx_graph.load import load_model
from models.__main__ import BUILDERS, save
from tests.support.models.onnx_models import INT64, Typed, model


def loaded(path, name):
    save(BUILDERS[name](), path)
    return load_model(path, {}, symbolic=True)


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.0.decoder.key", "present.0.decoder.key"),
        ("past_key_values.3.value", "present_key_values.3.value"),
        ("past_0", "present_0"),
        ("past_key_self_0", "present_key_self_0"),
        ("past_conv_states.1", "present_conv_states.1"),
        ("conv_state", "conv_state_out"),
        ("h", "new_h"),
    ],
)
def test_the_names_of_exporters(past, present):
    assert paired_names(["input_ids", past], ["logits", present]) == {past: present}


@pytest.mark.parametrize(
    ("name", "past", "kind", "axis", "size"),
    [
        ("tiny-decoder", "past_key_values.1.value", "growing", 2, "128*batch*past"),
        ("tiny-grouped-decoder", "past_key_values.0.key", "growing", 2, "128*batch*past_sequence_length"),
        ("tiny-state-space", "past_recurrent_states.0", "state", None, "2048*batch"),
        ("tiny-state-space", "past_conv_states.1", "state", None, "384*batch"),
        ("tiny-speech-decoder", "past_key_values.0.decoder.key", "growing", 2, "128*batch*past"),
    ],
)
def test_kinds_and_sizes(tmp_path, name, past, kind, axis, size):
    pairs = {pair.past.name: pair for pair in cache_pairs(loaded(tmp_path / "m.onnx", name).graph)}
    assert len(pairs) == 4
    assert (pairs[past].kind, pairs[past].axis, str(pairs[past].bytes)) == (kind, axis, size)


def two_tensors(past, present, **kinds):
    nodes = [helper.make_node("Identity", ["x"], ["y"], name="copy")]
    if "cast" in kinds:
        nodes = [helper.make_node("Cast", ["x"], ["y"], name="cast", to=kinds["cast"])]
    return model(nodes, {"x": past}, {"y": present})


def test_pairs_that_are_given(tmp_path):
    save(two_tensors((1, 2, 8, 4), (1, 2, 8, 4)), tmp_path / "m.onnx")
    graph = load_model(tmp_path / "m.onnx", {}).graph
    assert cache_pairs(graph) == []
    assert [pair.kind for pair in cache_pairs(graph, {"x": "y"})] == ["state"]
    with pytest.raises(UnusableValueError, match="x=z: the model has no output 'z'"):
        cache_pairs(graph, {"x": "z"})


def test_an_output_that_cannot_be_fed_back_is_named_with_the_reason(tmp_path):
    save(two_tensors((1, 2, 8, 4), Typed(INT64, (1, 2, 8, 4)), cast=INT64), tmp_path / "m.onnx")
    with pytest.raises(UnusableValueError, match="y cannot be fed to x: the output is int64, the input float32"):
        cache_pairs(load_model(tmp_path / "m.onnx", {}).graph, {"x": "y"})
    node = helper.make_node("Transpose", ["x"], ["y"], name="turn", perm=[0, 2, 1, 3])
    save(model([node], {"x": (1, 2, 8, 4)}, {"y": None}), tmp_path / "m.onnx")
    with pytest.raises(UnusableValueError, match=r"y cannot be fed to x: the output has the shape \[1, 8, 2, 4\]"):
        cache_pairs(load_model(tmp_path / "m.onnx", {}).graph, {"x": "y"})


@pytest.mark.parametrize(
    ("perm", "places", "room"),
    [
        ({"perm": [2, 0, 1, 3]}, 1, 23),
        ({"perm": [1, 2, 3, 0]}, 1, 5),
        ({}, 1, 7),
        ({}, 2, None),  # numbers of a row of two axes
        ({}, "free", None),
    ],
)
def test_the_room_of_a_cache_is_the_extent_along_which_tokens_are_scattered(tmp_path, perm, places, room):
    past = (3, 5, 23, 7)
    turned = perm.get("perm", [3, 2, 1, 0])
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], name="turn", **perm),
        helper.make_node("ScatterND", ["turned", "places", "new"], ["written"], name="write"),
        helper.make_node(
            "Transpose", ["written"], ["y"], name="turn_back", perm=[turned.index(axis) for axis in range(4)]
        ),
    ]
    inputs = {"x": past, "places": Typed(INT64, (1, places)), "new": None}
    save(model(nodes, inputs, {"y": past}), tmp_path / "m.onnx")
    (pair,) = cache_pairs(load_model(tmp_path / "m.onnx", {}, symbolic=True).graph, {"x": "y"})
    assert (pair.kind, pair.room) == ("state", room)


def test_the_alias_of_the_total_length_is_bound_by_what_it_is(tmp_path):
    """The exporter calls the mask's length s12: it is past + seq, no dimension of its own."""
    path = tmp_path / "m.onnx"
    assert loaded(path, "tiny-decoder").unbound == ("batch", "seq", "past")
    bound = load_model(path, {"batch": 1, "seq": 3, "past": 8})
    assert bound.graph.tensors["attention_mask"].shape == (1, 11)
    with pytest.raises(UnusableValueError, match="=12: the other dimensions make it 11"):
        load_model(path, {"batch": 1, "seq": 3, "past": 8, "s12": 12})


def test_a_mask_of_an_encoder_is_no_total_length(tmp_path):
    save(two_tensors((1, "frames"), (1, "frames")), tmp_path / "m.onnx")
    assert load_model(tmp_path / "m.onnx", {}, symbolic=True).unbound == ("frames",)

"""Names of dimensions: plain ones, expressions of others, names that are no expressions, and none at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from common.messages.errors import UnusableValueError
from common.onnx_graph.load import load_model
from common.onnx_graph.symbols.dimensions import (
    bind_all,
    dynamic_dimensions,
    free_dimensions,
    require_bound,
    shape_bindings,
    used_bindings,
)
from tests.support.models.onnx_models import INT64, Typed, model, weight


def proto_of(*shapes, output=None):
    """y = x0 and no more; the other inputs only declare dimensions."""
    inputs = {f"x{index}": shape for index, shape in enumerate(shapes)}
    return model([helper.make_node("Relu", ["x0"], ["y"], name="relu")], inputs, {"y": output})


def bound(proto, **dimensions):
    bind_all(proto, dimensions)
    return [
        tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim)
        for value in proto.graph.input
    ]


def test_a_dimension_stands_in_every_place_that_names_it():
    places = dynamic_dimensions(proto_of(("batch", 3, None), ("batch", "seq"), (5, -1)))
    assert places == {
        "batch": ["x0[0]", "x1[0]"],
        "x0.2": ["x0[2]"],
        "seq": ["x1[1]"],
        "x2.1": ["x2[1]"],
    }


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("past + seq", 18),
        ("past+seq", 18),
        ("past - seq", 4),
        ("2*seq", 14),
        ("seq*2 + past", 25),
        ("(past + seq) * 2", 36),
        ("past//seq", 1),
        ("seq + 1", 8),
    ],
)
def test_an_expression_of_other_dimensions_follows_from_them(expression, expected):
    """past = 11, seq = 7."""
    proto = proto_of(("past", "seq"), (expression,))
    assert set(free_dimensions(proto)) == {"past", "seq"}
    assert bound(proto, past=11, seq=7) == [(11, 7), (expected,)]


def test_an_expression_follows_in_the_whole_model(tmp_path):
    join = helper.make_node("Concat", ["old", "new"], ["y"], name="join", axis=0)
    inputs = {"old": ("past", 3), "new": ("seq", 3), "mask": ("past + seq",)}
    onnx.save(model([join, helper.make_node("Neg", ["mask"], ["z"], name="neg")], inputs,
                    {"y": ("past + seq", 3), "z": None}), tmp_path / "m.onnx")  # fmt: skip
    graph = load_model(tmp_path / "m.onnx", {"past": 11, "seq": 7}).graph
    assert graph.tensors["y"].shape == (18, 3)
    assert graph.tensors["z"].shape == (18,)
    symbolic = load_model(tmp_path / "m.onnx", {}, symbolic=True)
    assert symbolic.unbound == ("past", "seq")
    assert str(symbolic.graph.tensors["y"].shape[0]) == "past + seq"
    assert str(symbolic.graph.tensors["z"].shape[0]) == "past + seq"


@pytest.mark.parametrize(
    "name", ["batch size", "seq-len", "Reshape_12_dim_0", "a + b c", "", "1x", "f(seq)", "seq.1", "unk__17", "a/b", "π"]
)
def test_a_name_that_is_no_expression_of_other_dimensions_is_a_dimension(name):
    proto = proto_of((name, "seq"))
    free = free_dimensions(proto)
    key = name or "x0.0"
    assert set(free) == {key, "seq"}
    assert bound(proto, **{key: 5, "seq": 7}) == [(5, 7)]


def test_a_subtraction_of_two_dimensions_that_exist_is_one():
    """seq-len is a name unless the model has a dimension seq and one len."""
    assert set(free_dimensions(proto_of(("seq-len",), ("seq", "batch")))) == {"seq-len", "seq", "batch"}
    assert set(free_dimensions(proto_of(("seq-len",), ("seq", "len")))) == {"seq", "len"}


def test_a_binding_of_an_expression_itself_wins():
    proto = proto_of(("past", "seq"), ("past + seq",))
    assert bound(proto, **{"past": 11, "seq": 7, "past + seq": 17}) == [(11, 7), (17,)]


def test_names_that_exporters_invent_for_outputs_do_not_hide_what_follows(tmp_path):
    """The output is declared (unk, unk_1): inferred it is (batch, 11)."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    proto = model([node], {"x": ("batch", 7)}, {"y": ("unk", "unk_1")}, {"w": weight(7, 11)})
    onnx.save(proto, tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx", {"batch": 3})
    assert loaded.graph.tensors["y"].shape == (3, 11)
    assert loaded.bounds is None
    with pytest.raises(UnusableValueError, match="no dynamic dimension 'unk'"):
        load_model(tmp_path / "m.onnx", {"batch": 3, "unk": 5})


def test_weights_among_the_inputs_have_no_dynamic_dimensions():
    proto = proto_of(("batch",))
    proto.graph.input.append(helper.make_tensor_value_info("w", 1, ("k",)))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight(3), "w"))
    assert set(dynamic_dimensions(proto)) == {"batch"}


def test_given_arrays_bind_the_dimensions_of_their_inputs():
    proto = proto_of(("batch", 3, None), ("batch", "seq"), (-1,))
    arrays = {"x0": np.zeros((2, 3, 5)), "x1": np.zeros((2, 7)), "x2": np.zeros(11)}
    assert shape_bindings(proto, arrays) == {"batch": 2, "x0.2": 5, "seq": 7, "x2.0": 11}
    assert shape_bindings(proto, {"x1": np.zeros((2, 7))}) == {"batch": 2, "seq": 7}
    assert shape_bindings(proto, {"x1": np.float32(3)}) == {}


def test_a_flag_wins_over_a_given_array_and_that_over_the_configuration(tmp_path):
    proto = proto_of(("batch", "seq"))
    configured = {"batch": 3, "seq": 5, "other": 13}
    used = used_bindings(tmp_path, proto, {"batch": 2}, {**configured, **shape_bindings(proto, {"x0": weight(7, 11)})})
    assert used == {"batch": 2, "seq": 11}


def test_given_arrays_bind_a_model(tmp_path):
    node = helper.make_node("Reshape", ["x", "s"], ["y"], name="reshape")
    proto = model([node], {"x": ("batch", 6), "s": Typed(INT64, ("rank",))}, {"y": None})
    onnx.save(proto, tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx", {}, values={"x": weight(5, 6), "s": np.array([2, 5, 3])})
    assert loaded.dimensions == {"batch": 5, "rank": 3}
    assert loaded.graph.tensors["y"].shape == (2, 5, 3)


def test_a_remedy_with_an_odd_name_can_be_pasted_into_a_shell():
    """A message shows no line breaks or other controls, so bash's escapes stand for them."""
    name = "a'b\nc\x1b[1m\u202e\\d"
    with pytest.raises(UnusableValueError) as error:
        require_bound(Path("m.onnx"), onnx.ModelProto(), {name: ["x[0]"]})
    word = str(error.value).rpartition("<dim>=")[2]
    assert word.isprintable()
    pasted = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert pasted.stdout.decode() == f"{name}=1"


def test_two_dimensions_in_one_are_told_apart():
    with pytest.raises(UnusableValueError, match=r"no dynamic dimension 'a=1,b'; it has a, b; give each .* on its own"):
        used_bindings(Path("m.onnx"), proto_of(["a", "b"]), {"a=1,b": 2}, {})

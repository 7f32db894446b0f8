"""One name for each node, bodies included: as generated, and as ONNX Runtime then takes them."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from common.messages.errors import PipelineError
from common.onnx_graph.reading.naming import NamedModel, expand, name_nodes, named_model, naming_notes, rename_saved
from common.onnx_graph.reading.scan import scan


def node(name, op_type="Relu", **bodies):
    return helper.make_node(op_type, ["x"], ["y"], name=name, **bodies)


def graph(*nodes):
    return helper.make_graph(nodes, "g", [], [])


def names(proto):
    """Names of a graph's nodes and of its bodies', an owner before its bodies."""
    found = []
    for one in proto.node:
        found.append(one.name)
        for attribute in one.attribute:
            for body in (attribute.g, *attribute.graphs):
                found += names(body)
    return found


@pytest.mark.parametrize(
    ("given_names", "named"),
    [
        (["a", "b", "c"], ["a", "b", "c"]),
        (["", "a", ""], ["Relu_0", "a", "Relu_2"]),
        (["a", "a", "a"], ["a", "Relu_1", "Relu_2"]),  # the first keeps it
        (["", "", "Relu_0"], ["Relu_0_", "Relu_1", "Relu_0"]),  # a name that is unique stays, wherever it stands
        (["", "Relu_0", "Relu_0_"], ["Relu_0__", "Relu_0", "Relu_0_"]),
        (["Relu_1", "Relu_1"], ["Relu_1", "Relu_1_"]),
        (["a", "(gap)"], ["a", "Relu_1"]),  # the tables have a row of that name
    ],
)
def test_only_empty_and_taken_names_change(given_names, named):
    proto = graph(*map(node, given_names))
    changed = sum(before != after for before, after in zip(given_names, named, strict=True))
    assert (name_nodes(proto), names(proto)) == (changed, named)
    assert (name_nodes(proto), names(proto)) == (0, named)  # and once is enough


def test_a_node_of_a_body_is_named_after_its_owner():
    inner = node("", "Loop", body=graph(node("x"), node("")))
    proto = graph(node("a"), node("", "If", then_branch=graph(node(""), node("c")), else_branch=graph(node(""), inner)))
    assert name_nodes(proto) == 8 - 3  # all but a, c and x
    branches = {"If_1", "If_1/Relu_0", "If_1/Relu_0_", "If_1/Loop_1", "If_1/Loop_1/Relu_1"}
    assert set(names(proto)) == {"a", "c", "x"} | branches


def test_the_main_graph_has_precedence_over_a_body_that_stands_before():
    proto = graph(node("loop", "Loop", body=graph(node("a"), node("b"))), node("a"), node("b"))
    assert name_nodes(proto) == 2
    assert names(proto) == ["loop", "loop/Relu_0", "loop/Relu_1", "a", "b"]


def test_the_outer_body_has_precedence_over_the_inner_one():
    inner = node("inner", "Loop", body=graph(node("a")))
    proto = graph(node("outer", "Loop", body=graph(inner, node("a"))))
    assert name_nodes(proto) == 1
    assert names(proto) == ["outer", "inner", "inner/Relu_0", "a"]


def test_lists_of_bodies_are_walked():
    owner = node("many", "Choose")
    owner.attribute.append(helper.make_attribute("bodies", [graph(node("")), graph(node(""), node("a"))]))
    proto = graph(owner)
    assert name_nodes(proto) == 2
    assert names(proto) == ["many", "many/Relu_0", "many/Relu_0_", "a"]


NAMES = st.sampled_from(["", "a", "b", "Relu_0", "Relu_1", "Relu_1_", "If_0", "If_0/Relu_0"])
NODES = st.recursive(
    st.builds(node, NAMES),
    lambda inner: st.builds(
        lambda name, body: node(name, "If", then_branch=graph(*body)), NAMES, st.lists(inner, max_size=4)
    ),
    max_leaves=13,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(NODES, max_size=7))
def test_any_names_become_unique_and_unique_ones_stay(nodes):
    proto = graph(*nodes)
    before = names(proto)
    renamed = name_nodes(proto)
    after = names(proto)
    assert len(set(after)) == len(after)
    assert sum(old != new for old, new in zip(before, after, strict=True)) == renamed
    assert set(before) - {""} <= set(after)
    assert renamed == len(before) - len(set(before) - {""})


# --- what is given to the runtime -------------------------------------------------------------------------------------


def value(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model_of(nodes, *weights, functions=()):
    proto = helper.make_graph(nodes, "g", [value("x", [3, 5])], [value("y", [3, 5])], weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    model = helper.make_model(proto, opset_imports=imports, functions=functions)
    model.ir_version = 9
    return model


def twins(second="twin"):
    weight = np.arange(25, dtype=np.float32).reshape(5, 5) - 11
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="twin"),
        helper.make_node("Relu", ["h"], ["y"], name=second),
    ]
    return model_of(nodes, numpy_helper.from_array(weight, "w")), weight


def test_a_file_with_names_of_its_own_runs_as_it_stands(tmp_path):
    onnx.save(twins(second="other")[0], tmp_path / "m.onnx")
    assert named_model(tmp_path / "m.onnx") is None


@pytest.mark.parametrize("external", [False, True])
def test_duplicate_names_are_refused_by_the_runtime_and_run_when_renamed(tmp_path, external):
    path = tmp_path / "m.onnx"
    model, weight = twins()
    onnx.save(model, path, save_as_external_data=external, location="m.data", size_threshold=0)
    with pytest.raises(Exception, match="two nodes with same node name"):
        ort.InferenceSession(str(path))
    named = named_model(path)
    assert named.renamed_count == 1
    assert [one.name for one in onnx.load_from_string(named.content).graph.node] == ["twin", "Relu_1"]
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    x = np.linspace(-2, 3, 15, dtype=np.float32).reshape(3, 5)
    found = ort.InferenceSession(named.content, options).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, np.maximum(x @ weight, 0), rtol=1e-5)


def test_local_functions_are_expanded_under_the_names_of_the_counted_graph(tmp_path):
    inside = [helper.make_node("Relu", ["a"], ["t"], name="r"), helper.make_node("Neg", ["t"], ["b"])]
    function = helper.make_function("local", "Twice", ["a"], ["b"], inside, [helper.make_opsetid("", 17)])
    calls = [
        helper.make_node("Twice", ["x"], ["h"], domain="local", name="first"),
        helper.make_node("Twice", ["h"], ["y"], domain="local", name="second"),
    ]
    path = tmp_path / "m.onnx"
    onnx.save(model_of(calls, functions=[function]), path)
    runs = onnx.load_from_string(named_model(path).content)
    counted, renamed = expand(scan(path).model)
    assert not runs.functions
    assert [one.op_type for one in runs.graph.node] == ["Relu", "Neg"] * 2
    assert names(runs.graph) == names(counted.graph)
    assert len(set(names(runs.graph))) == 4
    assert renamed == named_model(path).renamed_count
    x = np.linspace(-2, 3, 15, dtype=np.float32).reshape(3, 5)
    found = ort.InferenceSession(runs.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, -np.maximum(-np.maximum(x, 0), 0))


def test_a_saved_graph_is_renamed_with_tables_that_lead_to_its_nodes():
    branches = {"then_branch": graph(node("Gelu"), node("t")), "else_branch": graph(node("Gelu"))}
    proto = graph(node("Gelu"), node("loop", "Loop", body=graph(node("a"), node("if", "If", **branches))))
    content, bodies = rename_saved(helper.make_model(proto).SerializeToString())
    assert bodies == {
        "": ({"Gelu": "Gelu", "loop": "loop"},),
        "loop": ({"a": "a", "if": "if"},),
        "if": ({"Gelu": "if/Relu_0"}, {"Gelu": "if/Relu_0_", "t": "t"}),  # attributes stand in alphabetical order
    }
    assert names(onnx.load_from_string(content).graph) == ["Gelu", "loop", "a", "if", "if/Relu_0", "if/Relu_0_", "t"]


def test_a_saved_graph_with_names_of_its_own_stays():
    content = helper.make_model(graph(node("a"), node("loop", "Loop", body=graph(node("b"))))).SerializeToString()
    assert rename_saved(content) == (content, {})


@pytest.mark.parametrize("error", [ValueError, onnx.checker.ValidationError])
def test_a_function_that_cannot_be_expanded_is_one_line(tmp_path, monkeypatch, error):
    path = tmp_path / "m.onnx"
    onnx.save(twins()[0], path)

    def fails(model):
        raise error("too large\nfor a message")

    monkeypatch.setattr("common.onnx_graph.reading.naming.expand", fails)
    with pytest.raises(PipelineError, match=r"m\.onnx: its nodes cannot be named \(too large\); save it with"):
        named_model(path)


@pytest.mark.parametrize(("count", "start"), [(1, "1 node without a name of its own was "), (2, "2 nodes without a ")])
def test_the_note_on_named_nodes_counts_in_english(count, start):
    assert naming_notes(NamedModel(b"", count))[0].startswith(start)

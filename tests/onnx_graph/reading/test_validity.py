"""What is refused before anything is read from a graph; ONNX Runtime refuses the same."""

from __future__ import annotations

import json
import os
import socket

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from common.messages.errors import PipelineError
from common.onnx_graph.attributes import reported_attributes, window
from common.onnx_graph.executed import load_executed_graph
from common.onnx_graph.load import load_model
from tests.support.models.body_models import DOUBLE, body, info, loop_body, node
from tests.support.models.onnx_models import INT64, Typed, load, model

IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def refused_by_runtime(proto: onnx.ModelProto) -> bool:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(proto.SerializeToString(), options)
    except Exception:  # the runtime raises a dozen unrelated types
        return True
    return False


def relu(source="x", result="y"):
    return helper.make_node("Relu", [source], [result], name=f"{source}{result}")


def with_attribute(**attributes):
    return helper.make_node("Softmax", ["x"], ["y"], name="softmax", **attributes)


def stored(**fields):
    return [onnx.TensorProto(name="w", **fields)]


def scan_that_writes_its_input():
    """The body's Identity writes ``s``, which the body takes: its shape would be forgotten for ever."""
    takes, gives = [info("s", shape=(3,)), info("r", shape=(3,))], [info("s", shape=(3,)), info("r", shape=(3,))]
    inner = body([node("Identity", "r", "s")], takes, gives)
    return helper.make_node("Scan", ["x", "x"], ["y", "z"], num_scan_inputs=1, body=inner)


WEIGHTED = [helper.make_node("Add", ["x", "w"], ["y"])]
INVALID = {
    "cycle: 'ay', 'ya', 'ay'": ([relu("a"), relu("y", "a")], ()),
    "cycle: 'xy', 'xy'": ([helper.make_node("Add", ["x", "y"], ["y"], name="xy")], ()),
    "nothing defines 'z'": ([helper.make_node("Add", ["x", "z"], ["y"])], ()),
    "nothing defines 'y'": ([relu("x", "z")], ()),
    "defines twice: 'y'": ([relu(), relu()], ()),
    "defines twice: 'x'": ([relu("x", "x"), relu()], ()),
    "defines twice: 'w'": ([relu("x", "w"), relu()], stored(data_type=1, dims=[1], float_data=[1.0])),
    "defines twice: 's'": ([scan_that_writes_its_input()], ()),
    "node 'softmax': not a valid Softmax .*axis": ([with_attribute(axis=1.0)], ()),
    "not a valid Softmax .*Unrecognized attribute: stripes": ([with_attribute(stripes=1)], ()),
    "not a valid Transpose .*perm": ([helper.make_node("Transpose", ["x"], ["y"], perm="ab")], ()),
    "not a valid Add": ([helper.make_node("Add", ["x"], ["y"])], ()),
    "tensor 'w' do not fit": (WEIGHTED, stored(data_type=1, dims=[3], raw_data=bytes(13))),
    "data of tensor 'w'": (WEIGHTED, stored(data_type=1, dims=[2**40], float_data=[1.0])),
    "tensor 'w' has a negative extent": (WEIGHTED, stored(data_type=1, dims=[-3, -1], raw_data=bytes(12))),
    "'w' has the unknown element type 99": ([relu()], stored(data_type=99, dims=[1], raw_data=bytes(4))),
}


@pytest.mark.parametrize("problem", INVALID)
def test_an_invalid_graph_is_refused_in_one_line_as_by_the_runtime(tmp_path, problem):
    nodes, weights = INVALID[problem]
    proto = model(nodes, {"x": (3, 3)}, {"y": None})
    proto.graph.initializer.extend(weights)
    assert refused_by_runtime(proto)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(PipelineError, match=problem) as caught:
        load_model(tmp_path / "m.onnx", {})
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)


def test_nodes_in_any_order_are_sorted_as_by_the_runtime():
    proto = model([relu("b"), relu("a", "b"), relu("x", "a")], {"x": (3, 5)}, {"y": None})
    assert not refused_by_runtime(proto)
    graph, nodes = load(proto)
    assert [found.name for found in nodes] == ["xa", "ab", "by"]
    assert graph.tensors["y"].shape == (3, 5)


def test_a_body_may_read_what_stands_around_it_and_shadow_its_names():
    owner = helper.make_node("Loop", ["m", "", "x"], ["y"], body=loop_body([*DOUBLE, node("Neg", "m", "x")]))
    graph, _ = load(model([owner], {"x": (3,), "m": Typed(INT64, ())}, {"y": None}))
    assert graph.tensors["y"].shape == (3,)


@pytest.mark.parametrize("field", ["name", "op_type", "domain", "input", "attribute"])
def test_a_name_that_is_not_text_is_refused(tmp_path, field):
    names = {"name": "own", "op_type": "Own", "domain": "own", "input": "x", "attribute": "own"} | {field: "ABCD"}
    node = helper.make_node(names["op_type"], [names["input"]], ["y"], names["name"], domain=names["domain"])
    node.attribute.append(helper.make_attribute(names["attribute"], 1))
    content = model([node], {"x": (3,)}, {"y": None}, domains=["own"]).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(content.replace(b"ABCD", b"\xffBCD"))
    with pytest.raises(PipelineError, match=r"m\.onnx: .* is not UTF-8: b'.xffBCD'"):
        load_model(tmp_path / "m.onnx", {})


# --- functions ------------------------------------------------------------------------------------------------------


def doubling(depth: int) -> onnx.ModelProto:
    """A function that calls another one twice, which calls another one twice: 2 ** depth nodes."""
    made = []
    for level in range(depth):
        op_type, domain = (f"f{level + 1}", "own") if level < depth - 1 else ("Relu", "")
        pair = [helper.make_node(op_type, [a], [b], domain=domain) for a, b in (("x", "t"), ("t", "y"))]
        made.append(helper.make_function("own", f"f{level}", ["x"], ["y"], pair, IMPORTS))
    return model([helper.make_node("f0", ["x"], ["y"], domain="own")], {"x": (3,)}, {"y": None}, domains=["own"],
                 functions=made)  # fmt: skip


def test_functions_that_double_are_bounded(tmp_path):
    assert len(load(doubling(5))[1]) == 32
    onnx.save(doubling(23), tmp_path / "m.onnx")
    with pytest.raises(PipelineError, match=r"cannot be inlined \(it would have more than 200000 nodes\)"):
        load_model(tmp_path / "m.onnx", {})


def test_a_function_that_calls_itself_is_refused(tmp_path):
    again = helper.make_function("own", "f", ["x"], ["y"], [node("f", "x", "y", domain="own")], IMPORTS)
    proto = model([node("f", "x", "y", domain="own")], {"x": (3,)}, {"y": None}, domains=["own"], functions=[again])
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(PipelineError, match="function f calls itself"):
        load_model(tmp_path / "m.onnx", {})


# --- side files -----------------------------------------------------------------------------------------------------


def listen(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize("elements", [1, 10_000])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, listen])
def test_external_data_must_be_a_file(tmp_path, monkeypatch, make, elements):
    monkeypatch.chdir(tmp_path)  # the path of a socket may not be long
    make("side.bin")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[elements], data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", "side.bin"), ("length", str(4 * elements))):
        tensor.external_data.add(key=key, value=entry)
    proto = model([node("Add", "x,w", "y")], {"x": (elements,)}, {"y": None})
    proto.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(PipelineError, match=r"m\.onnx: its data file 'side\.bin' is not a regular file"):
        load_model(tmp_path / "m.onnx", {})


def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(PipelineError, match=r"m\.onnx: cannot be read \(it is not a regular file\)"):
        load_model(tmp_path / "m.onnx", {})


@pytest.mark.slow
@pytest.mark.parametrize("value", [5, 2.5, "3,3", ["a"], [1.5], helper.make_tensor("t", 1, [1], [1.0])])
@pytest.mark.parametrize("name", ["kernel_shape", "strides", "dilations", "pads", "group", "axis", "axes", "opset"])
@pytest.mark.parametrize("op_type", ["Conv", "QLinearSoftmax", "ReduceSum"])
def test_an_own_operator_has_attributes_of_any_type(tmp_path, op_type, name, value):
    """Only an operator's own domain says what its attributes are, whatever they are called."""
    node = helper.make_node(
        op_type, ["x", "w"], ["y"], name="own", domain="own", auto_pad="SAME_UPPER", **{name: value}
    )
    onnx.save(model([node], {"x": (1, 2, 7, 7), "w": (3, 2, 3, 3)}, {"y": None}, domains=["own"]), tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx", {})
    [found] = loaded.graph.nodes
    assert isinstance(window(loaded.graph, found)[0], list)
    assert json.dumps(reported_attributes(loaded.graph, found, loaded.opsets, loaded.operand_values))


@pytest.mark.parametrize("axis", [2**31 - 1, 3])
def test_an_axis_beyond_the_rank_spans_nothing(tmp_path, axis):
    node = helper.make_node("LayerNormalization", ["x", "w"], ["y"], name="norm", axis=axis)
    onnx.save(model([node], {"x": (2, 3, 5), "w": (5,)}, {"y": None}), tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx", {})
    attributes = reported_attributes(loaded.graph, loaded.graph.nodes[0], loaded.opsets, loaded.operand_values)
    assert "axes" not in attributes


def test_an_axis_that_onnx_refuses_is_refused(tmp_path):
    node = helper.make_node("LayerNormalization", ["x", "w"], ["y"], name="norm", axis=-(2**31))
    onnx.save(model([node], {"x": (2, 3, 5), "w": (5,)}, {"y": None}), tmp_path / "m.onnx")
    with pytest.raises(PipelineError, match=r"m\.onnx: node 'norm': not a valid LayerNormalization \(Unexpected axis"):
        load_model(tmp_path / "m.onnx", {})


@pytest.mark.parametrize("axis", [-(2**31) - 1, 2**31, 10**12])
def test_an_axis_that_onnx_cannot_hold_is_refused(tmp_path, axis):
    """ONNX's inference of the mean ends the process at 10¹²."""
    node = helper.make_node("LayerNormalization", ["x", "w"], ["y", "mean", "deviation"], name="norm", axis=axis)
    onnx.save(model([node], {"x": (2, 3, 5), "w": (5,)}, {"y": None}), tmp_path / "m.onnx")
    with pytest.raises(PipelineError, match=r"m\.onnx: node 'norm': not a valid LayerNormalization \(its axis\)"):
        load_model(tmp_path / "m.onnx", {})


def test_a_cyclic_executed_graph_is_refused(tmp_path):
    (tmp_path / "m.onnx").write_bytes(model([relu("a"), relu("y", "a")], {"x": (3,)}, {"y": None}).SerializeToString())
    with pytest.raises(PipelineError, match=r"m\.onnx: .* in a cycle: 'ay', 'ya', 'ay'"):
        load_executed_graph(tmp_path / "m.onnx", {})


@pytest.mark.parametrize("equation", ["ij-", "i1->i", "i.j->ij", "ij\n->i", "ijä->j", "....->i"])
def test_an_equation_that_would_never_be_parsed_is_refused(tmp_path, equation):
    node = helper.make_node("Einsum", ["x"], ["y"], name="sum", equation=equation)
    onnx.save(model([node], {"x": (3, 3)}, {"y": None}), tmp_path / "m.onnx")
    with pytest.raises(PipelineError, match=r"m\.onnx: node 'sum': not a valid Einsum \(its equation\)"):
        load_model(tmp_path / "m.onnx", {})


@pytest.mark.parametrize("equation", ["ij->ji", " i j -> j i ", "i...->...i", "...->...", "ij"])
def test_an_equation_may_have_blanks_and_an_ellipsis(equation):
    node = helper.make_node("Einsum", ["x"], ["y"], name="sum", equation=equation)
    assert len(load(model([node], {"x": (3, 3)}, {"y": None}))[1]) == 1


def test_a_tensor_of_more_axes_than_numpy_holds_is_refused(tmp_path):
    for name, extent, payload in (("empty", 0, b""), ("one", 1, bytes(8))):
        proto = model([node("Reshape", "x,t", "y")], {"x": (3,)}, {"y": None})
        proto.graph.initializer.add(name="t", data_type=TensorProto.INT64, dims=[extent] * 85, raw_data=payload)
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(proto.SerializeToString())
        with pytest.raises(PipelineError, match=r"the data of tensor 't' do not fit its type and shape"):
            load_model(path, {})


def test_an_extent_beyond_64_bits_is_unknown_to_the_inference_of_onnx(tmp_path):
    """NonZero of (2^63 - 1) x 3 has at most 3 * (2^63 - 1) columns, which the node behind it reads."""
    nodes = [node("NonZero", "x", "where"), node("Transpose", "where", "y")]
    onnx.save(model(nodes, {"x": (2**63 - 1, 3)}, {"y": None}), tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx", {})
    assert loaded.bounds is not None
    assert loaded.bounds.tensors["where"].shape == (2, 3 * (2**63 - 1))
    assert loaded.bounds.tensors["y"].shape == (None, 2)

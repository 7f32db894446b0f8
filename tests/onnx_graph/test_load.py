"""From a file to the shared graph: dimensions, names, kinds of tensors, element types."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from common.messages.errors import PipelineError, UnusableValueError
from common.onnx_graph.attributes import window
from common.onnx_graph.load import load_model
from common.onnx_graph.shapes.types import dtype_name, element_bits
from common.onnx_graph.work import measure
from models.small.tiny import build_tiny_unnamed
from tests.support.models.onnx_models import FLOAT, Typed, load, model, weight


def relu(name: str = "relu") -> onnx.NodeProto:
    return helper.make_node("Relu", ["x"], ["y"], name=name)


@pytest.fixture
def free(tmp_path):
    """x of (batch, seq, 7) and y of the same symbols; the last axis of x has no name."""
    path = tmp_path / "free.onnx"
    onnx.save(model([relu()], {"x": ("batch", "seq", None)}, {"y": ("batch", "seq", None)}), path)
    return path


def test_bound_dimensions_reach_every_shape(free):
    loaded = load_model(free, {"batch": 2, "seq": 5, "x.2": 7})
    assert loaded.dimensions == {"batch": 2, "seq": 5, "x.2": 7}
    assert loaded.graph.tensors["x"].shape == (2, 5, 7)
    assert loaded.graph.tensors["y"].shape == (2, 5, 7)


def test_a_configured_binding_gives_way_to_a_flag_and_is_ignored_elsewhere(free):
    configured = {"batch": 11, "seq": 5, "x.2": 7, "of_another_model": 13}
    loaded = load_model(free, {"batch": 2}, configured)
    assert loaded.dimensions == {"batch": 2, "seq": 5, "x.2": 7}


def test_each_unbound_dimension_is_named_with_its_binding(free):
    with pytest.raises(UnusableValueError) as caught:
        load_model(free, {"seq": 5})
    message = "dimensions 'batch' (x[0]), 'x.2' (x[2]) not bound; add for example <dim> batch=1 <dim> x.2=1"
    assert str(caught.value) == f"<dim>: {free}: {message}"


def test_the_remedy_can_be_pasted_into_a_shell(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model([relu()], {"x": ("batch size",)}, {"y": None}), path)
    with pytest.raises(UnusableValueError, match="<dim> 'batch size=1'"):
        load_model(path, {})


def test_a_binding_of_nothing_is_refused(free, tmp_path):
    with pytest.raises(UnusableValueError, match=r"no dynamic dimension 'rows'; it has batch, seq, x\.2"):
        load_model(free, {"rows": 3})
    fixed = tmp_path / "fixed.onnx"
    onnx.save(model([relu()], {"x": (2, 3)}, {"y": None}), fixed)
    with pytest.raises(UnusableValueError, match="all its dimensions are fixed"):
        load_model(fixed, {"batch": 3})


def test_minus_one_is_a_free_dimension(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model([relu()], {"x": (-1, 3)}, {"y": (-1, 3)}), path)
    with pytest.raises(UnusableValueError, match=r"<dim> x\.0=1"):
        load_model(path, {})
    assert load_model(path, {"x.0": 5}).graph.tensors["y"].shape == (5, 3)


def test_a_graph_without_an_operator_set_is_refused(tmp_path):
    path = tmp_path / "m.onnx"
    proto = model([relu()], {"x": (2, 3)}, {"y": None})
    proto.ClearField("opset_import")
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(PipelineError, match=r"its graph is not valid ONNX \(.*opset import"):
        load_model(path, {})


def test_unnamed_and_doubly_named_nodes_get_names_of_their_own():
    _, nodes = load(build_tiny_unnamed(batch=2))
    names = [node.name for node in nodes]
    assert names == [f"{node.op_type}_{index}" for index, node in enumerate(nodes)]
    chain = ["x", "a", "b", "c", "y"]
    given = ["same", "same", "Relu_1", ""]
    protos = [helper.make_node("Relu", [chain[i]], [chain[i + 1]], name=name) for i, name in enumerate(given)]
    _, nodes = load(model(protos, {"x": (3,)}, {"y": None}))
    assert [node.name for node in nodes] == ["same", "Relu_1_", "Relu_1", "Relu_3"]


def test_a_generated_name_that_is_taken_is_made_longer():
    protos = [helper.make_node("Relu", ["x"], ["a"], name="Relu_1"), helper.make_node("Relu", ["a"], ["y"])]
    _, nodes = load(model(protos, {"x": (3,)}, {"y": None}))
    assert [node.name for node in nodes] == ["Relu_1", "Relu_1_"]


def test_initializers_among_the_inputs_are_weights():
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    graph, _ = load(model([node], {"x": (5, 7), "w": ("k", "n")}, {"y": None}, {"w": weight(7, 11)}))
    assert (graph.tensors["w"].kind, graph.tensors["w"].shape) == ("weight", (7, 11))
    assert graph.tensors["x"].kind == "input"
    assert graph.tensors["y"].kind == "output"


def test_constants_as_nodes_are_weights():
    array = onnx.numpy_helper.from_array(weight(7, 11), "value")
    nodes = [
        helper.make_node("Constant", [], ["w"], name="w", value=array),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
    ]
    graph, loaded = load(model(nodes, {"x": (5, 7)}, {"y": None}))
    assert graph.tensors["w"].kind == "weight"
    assert measure(graph, loaded[0]).bytes == 0
    assert measure(graph, loaded[1]).weight_bytes == 4 * 7 * 11


def test_local_functions_are_inlined():
    body = [helper.make_node("MatMul", ["a", "b"], ["t"]), helper.make_node("Relu", ["t"], ["c"])]
    imports = [helper.make_opsetid("", 17)]
    function = helper.make_function("local", "Dense", ["a", "b"], ["c"], body, imports)
    call = helper.make_node("Dense", ["x", "w"], ["y"], domain="local", name="dense")
    proto = model([call], {"x": (5, 7)}, {"y": None}, {"w": weight(7, 11)}, domains=["local"], functions=[function])
    graph, nodes = load(proto)
    assert [node.op_type for node in nodes] == ["MatMul", "Relu"]
    assert measure(graph, nodes[0]).macs == 5 * 7 * 11


def test_the_long_name_of_the_onnx_domain_is_the_short_one():
    node = helper.make_node("Relu", ["x"], ["y"], name="relu", domain="ai.onnx")
    _, nodes = load(model([node], {"x": (3,)}, {"y": (3,)}, domains=["ai.onnx"]))
    assert nodes[0].domain == ""


@pytest.mark.parametrize(
    ("element_type", "name", "bits"),
    [
        (TensorProto.FLOAT, "float32", 32),
        (TensorProto.DOUBLE, "float64", 64),
        (TensorProto.FLOAT16, "float16", 16),
        (TensorProto.BFLOAT16, "bfloat16", 16),
        (TensorProto.BOOL, "bool", 8),
        (TensorProto.INT4, "int4", 4),
        (TensorProto.UINT8, "uint8", 8),
        (TensorProto.FLOAT8E4M3FN, "float8e4m3fn", 8),
        (TensorProto.FLOAT4E2M1, "float4e2m1", 4),
        (TensorProto.COMPLEX64, "complex64", 64),
        (TensorProto.STRING, "string", 0),
        (TensorProto.UNDEFINED, "undefined", 0),
        (9973, "undefined", 0),
    ],
)
def test_element_types(element_type, name, bits):
    assert (dtype_name(element_type), element_bits(element_type)) == (name, bits)


def test_sub_byte_tensors_are_packed():
    """3 · 5 elements of 4 bits are 60 bits: 8 bytes."""
    node = helper.make_node("Identity", ["x"], ["y"], name="same")
    graph, _ = load(model([node], {"x": Typed(TensorProto.INT4, (3, 5))}, {"y": None}, opset=21))
    assert graph.tensors["x"].size_bytes == 8


def test_subgraphs_and_tensors_are_no_attributes():
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "b", [], [
        helper.make_tensor_value_info("z", FLOAT, (3,))])  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch, else_branch=branch)
    fill = helper.make_node("ConstantOfShape", ["s"], ["e"], name="fill", value=helper.make_tensor("", FLOAT, [1], [2]))
    proto = model([fill, node], {"c": Typed(TensorProto.BOOL, ()), "x": (3,)}, {"y": None, "e": None},
                  {"s": np.array([5])})  # fmt: skip
    graph, nodes = load(proto)
    assert [(node.op_type, node.attributes) for node in nodes] == [
        ("ConstantOfShape", {}),
        ("Relu", {}),
        ("Relu", {}),
        ("If", {}),
    ]
    assert graph.tensors["e"].shape == (5,)


def test_the_window_falls_back_on_the_weight_and_on_defaults():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("MaxPool", ["c"], ["p"], name="pool", kernel_shape=[2, 3], strides=[2, 1]),
        helper.make_node("Relu", ["p"], ["y"], name="relu"),
    ]
    weights = {"w": np.zeros((7, 3, 3, 5), np.float32)}
    graph, loaded = load(model(nodes, {"x": (1, 3, 13, 17)}, {"y": None}, weights))
    assert [window(graph, node) for node in loaded] == [
        ([3, 5], [1, 1], 1),
        ([2, 3], [2, 1], None),
        ([], [], None),
    ]


def test_a_list_that_is_joined_to_itself_again_and_again_is_not_propagated(monkeypatch, tmp_path):
    """ONNX holds 200 bytes per propagated element: 2^43 of them are more than any host has."""
    infer = onnx.shape_inference.infer_shapes

    def watched(*arguments, data_prop, **options):
        assert not data_prop
        return infer(*arguments, data_prop=data_prop, **options)

    names = ["x", *(f"y{index}" for index in range(41))]
    nodes = [helper.make_node("Concat", [old, old], [new], axis=0) for old, new in pairwise(names)]
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", watched)
    onnx.save(model(nodes, {"x": (4,)}, {"y40": None}), tmp_path / "joined.onnx")
    assert load_model(tmp_path / "joined.onnx", {}).graph.tensors["y40"].shape == (2**43,)

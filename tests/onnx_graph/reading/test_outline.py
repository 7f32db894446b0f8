"""Outlines: no weights, the names of the tables, and a graph that the checker accepts."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.messages.errors import PipelineError
from common.onnx_graph.reading.naming import every_node
from common.onnx_graph.reading.outline import annotated, outline
from models.__main__ import BUILDERS

TINY = sorted(name for name in BUILDERS if name.startswith("tiny-"))


def outlined(tmp_path, model, texts=None):
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    made = outline(path)
    names = [node.name for node in every_node(made.model.graph.node)]
    content = annotated(made, texts or {name: {"macs": "17"} for name in names}, {"gap_us": "3"})
    done = onnx.load_from_string(content)
    onnx.checker.check_model(done)
    return made, done


@pytest.mark.parametrize("name", TINY)
def test_every_node_of_every_tiny_model_is_annotated(tmp_path, name):
    model = BUILDERS[name]()
    _, done = outlined(tmp_path, model)
    nodes = [*every_node(done.graph.node)]
    assert len({node.name for node in nodes}) == len(nodes) > 0
    assert all([(entry.key, entry.value) for entry in node.metadata_props] == [("macs", "17")] for node in nodes)
    assert [(entry.key, entry.value) for entry in done.metadata_props] == [("gap_us", "3")]
    assert len(done.SerializeToString()) < len(model.SerializeToString()) + 100 * len(nodes)


@pytest.mark.parametrize("change", [{"data_type": 99}, {"dims": [-3]}, {"dims": [2**62]}])
def test_a_tensor_that_holds_nothing_valid_is_refused_in_one_line(tmp_path, change):
    """The zeros of such a tensor would be of no type, or more than any memory holds."""
    model = model_of([helper.make_node("Constant", [], ["y"], value=TensorProto(data_type=1, dims=[3]))])
    tensor = model.graph.node[0].attribute[0].t
    tensor.raw_data = bytes(12)
    tensor.data_type = change.get("data_type", tensor.data_type)
    tensor.dims[:] = change.get("dims", tensor.dims)
    with pytest.raises(PipelineError, match=r"m\.onnx: its graph is not valid ONNX"):
        outlined(tmp_path, model)


@pytest.mark.parametrize("kind", ["GRAPH", "GRAPHS", "STRING"])
def test_a_body_counts_only_where_the_attribute_is_one(tmp_path, kind):
    """A graph in an attribute of another type is none to ONNX; its tensor of no type matters where it is one."""
    constant = helper.make_node("Constant", [], ["y"], value=TensorProto(data_type=0))
    body = helper.make_graph([constant], "b", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])])
    node = helper.make_node("Own", ["x"], ["y"], domain="example")
    attribute = node.attribute.add(name="body", type=onnx.AttributeProto.AttributeType.Value(kind), s=b"text")
    (attribute.graphs.add() if kind == "GRAPHS" else attribute.g).CopyFrom(body)
    made = model_of([node])
    made.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]))
    made.opset_import.append(helper.make_opsetid("example", 1))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    if kind == "STRING":
        annotated(outline(tmp_path / "m.onnx"), {}, {})
    else:
        with pytest.raises(PipelineError, match="the unknown element type 0"):
            outline(tmp_path / "m.onnx")


def test_a_list_of_tensors_among_the_attributes_holds_zeros(tmp_path):
    """The attribute has no single tensor, which would be one of no type."""
    tensors = [numpy_helper.from_array(np.ones(shape, np.float32)) for shape in ((), (2, 3))]
    node = helper.make_node("Own", ["x"], ["y"], domain="example")
    node.attribute.append(helper.make_attribute("tables", tensors))
    made = model_of([node])
    made.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]))
    made.opset_import.append(helper.make_opsetid("example", 1))
    _, done = outlined(tmp_path, made)
    left = [numpy_helper.to_array(tensor) for tensor in done.graph.node[0].attribute[0].tensors]
    assert [array.shape for array in left] == [(), (2, 3)]
    assert not any(array.any() for array in left)


def model_of(nodes, initializers=(), opset=17):
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    graph = helper.make_graph(nodes, "g", [], [output], [*initializers])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_weights_keep_type_and_shape_alone(tmp_path):
    secret = np.full((3, 5), 7.125, np.float32)
    scalar, text = (
        numpy_helper.from_array(np.float32(7.125), "s"),
        helper.make_tensor("t", TensorProto.STRING, [], [b"secret"]),
    )
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(secret)),
        helper.make_node("Constant", [], ["f"], value_float=7.125),
        helper.make_node("Add", ["w", "c"], ["x"]),
        helper.make_node("Mul", ["x", "s"], ["y"]),
        helper.make_node("Identity", ["t"], ["u"]),
    ]
    _, done = outlined(tmp_path, model_of(nodes, [numpy_helper.from_array(secret, "w"), scalar, text]))
    content = done.SerializeToString()
    assert np.float32(7.125).tobytes() not in content
    assert b"secret" not in content
    (sparse,) = done.graph.sparse_initializer
    assert (sparse.values.name, sparse.values.data_type, [*sparse.dims]) == ("w", TensorProto.FLOAT, [3, 5])
    assert [*done.graph.node[0].attribute[0].sparse_tensor.dims] == [3, 5]
    assert {tensor.name for tensor in done.graph.initializer} == {"s", "t"}


def test_shapes_that_are_computed_from_stay(tmp_path):
    shape = numpy_helper.from_array(np.array([2, 3], np.int64), "shape")
    value = helper.make_tensor("v", TensorProto.FLOAT, [1], [7.125])
    _, done = outlined(
        tmp_path, model_of([helper.make_node("ConstantOfShape", ["shape"], ["y"], value=value)], [shape])
    )
    assert numpy_helper.to_array(done.graph.initializer[0]).tolist() == [2, 3]
    assert numpy_helper.to_array(done.graph.node[0].attribute[0].t).tolist() == [0]


def test_constants_of_old_opsets_are_dense(tmp_path):
    constant = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(np.ones((3, 5), np.float32)))
    _, done = outlined(tmp_path, model_of([constant], opset=10))
    assert not numpy_helper.to_array(done.graph.node[0].attribute[0].t).any()


@pytest.mark.parametrize(
    ("text", "scope"),
    [("['', 'm', 'm.c', 'conv2d']", ("m", "m.c", "conv2d")), ("[1]", None), ("[", None), ("'x'", None), ("[]", None)],
)
def test_module_paths_of_the_exporter(tmp_path, text, scope):
    node = helper.make_node("Identity", ["w"], ["y"], name="n")
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=text)
    made, done = outlined(tmp_path, model_of([node], [numpy_helper.from_array(np.ones(3, np.float32), "w")]))
    assert made.scopes.get("n") == scope
    assert [entry.key for entry in done.graph.node[0].metadata_props] == ["macs"]

"""What was learned leaves the executed graph at any depth; what shapes are computed from stays."""

import numpy as np
import onnx
import pytest
from google.protobuf.json_format import MessageToDict
from onnx import TensorProto, helper, numpy_helper

from common.onnx_graph.executed import load_executed_graph, without_weights
from common.onnx_graph.reading.naming import expand, rename_saved
from common.onnx_graph.reading.stripping import strip_weights
from common.runtime.session import SessionSettings, create_session
from models.__main__ import BUILDERS
from tests.support.body_models import body, node
from tests.support.onnx_models import model
from tests.support.quantized_models import FORMS, quantize

SECRET = np.frombuffer(b"SECRET__", np.float32)  # 3.3e17 and 7.1e31
FLOATS = [float(number) for number in SECRET]


def messages(message):
    """Yield every message in a message, as a dictionary with the field names of JSON."""
    yield message
    for value in message.values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from messages(part)


def leaks(content):
    """Return what holds more than a name, a type, a shape and the integers of a shape."""
    found = []
    for message in messages(MessageToDict(onnx.load_from_string(content))):
        is_shape = message.get("dataType") == TensorProto.INT64 and len(message.get("dims", [])) <= 1
        kept = {"rawData", "int64Data"} if is_shape else set()
        payloads = {name for name in message if name.endswith("Data") and name not in kept}
        found += sorted(payloads | message.keys() & {"docString", "metadataProps", "functions", "dataLocation"})
        found += [f"floats of {message['name']}" for number in message.get("floats", []) if number]
    return found


def executed(source, folder, level="all"):
    """Return the path of the graph that the runtime makes of a model."""
    path = folder / "executed.onnx"
    create_session(source, SessionSettings(1, optimization=level), optimized=path)
    return path


def test_the_oracle_sees_weights():
    assert "rawData" in leaks(BUILDERS["tiny-cnn"]().SerializeToString())


def is_large(name):
    return not name.startswith("tiny-")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] if is_large(name) else []) for name in BUILDERS]
)
@pytest.mark.parametrize("level", ["disable", "all"])
def test_no_built_model_leaves_a_weight_and_stage_03_reads_the_same_graph(tmp_path, name, level):
    source, _ = expand(BUILDERS[name]())
    path = executed(source.SerializeToString(), tmp_path, level)
    stripped, _ = rename_saved(without_weights(path, []))
    assert leaks(stripped) == []
    (tmp_path / "stripped.onnx").write_bytes(stripped)
    path.write_bytes(rename_saved(path.read_bytes())[0])
    assert load_executed_graph(tmp_path / "stripped.onnx", {}) == load_executed_graph(path, {})


@pytest.mark.parametrize("form", FORMS)
def test_scales_and_integer_weights_of_a_quantized_model_are_weights(tmp_path, form):
    onnx.save(BUILDERS["tiny-mlp"](), tmp_path / "m.onnx")
    quantized = quantize(tmp_path / "m.onnx", form, tmp_path / "q.onnx", dimensions={"batch": 3})
    assert leaks(without_weights(executed(quantized, tmp_path), [])) == []


def test_payloads_outside_of_the_main_graphs_tensors():
    """A body, attributes, sparse tensors, texts, and a field that ONNX does not know."""
    small, tree = numpy_helper.from_array(SECRET, "w"), {"nodes_values": FLOATS, "nodes_modes": ["SECRET__"]}
    sparse = helper.make_sparse_tensor(small, numpy_helper.from_array(np.array([2, 3]), "at"), [5])
    inner = body([helper.make_node("Constant", [], ["c"], value_floats=FLOATS)], [], [], {"v": SECRET})
    nodes = [
        helper.make_node("Constant", [], ["a"], value=small),
        helper.make_node("Constant", [], ["b"], sparse_value=sparse),
        helper.make_node("Constant", [], ["d"], value_float=FLOATS[0]),
        helper.make_node("Constant", [], ["e"], value_string="SECRET__"),
        helper.make_node("TreeEnsembleRegressor", ["x"], ["t"], domain="ai.onnx.ml", doc_string="SECRET__", **tree),
        helper.make_node("EPContext", ["x"], ["u"], domain="com.microsoft", ep_cache_context="SECRET__" * 200),
        helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner),
        node("Relu", "x", "z", "relu"),
    ]
    proto = model(nodes, {"x": (3,)}, {"z": (3,)}, domains=["ai.onnx.ml", "com.microsoft"])
    proto.graph.sparse_initializer.append(sparse)
    helper.set_model_props(proto, {"about": "SECRET__"})
    unknown = proto.SerializeToString() + bytes([0xFA, 0x3F, 8]) + b"SECRET__"  # field 1023
    proto = onnx.load_from_string(unknown)
    assert proto.SerializeToString().count(SECRET.tobytes()) > 8 and leaks(proto.SerializeToString())
    strip_weights(proto)
    left = proto.SerializeToString()
    assert leaks(left) == []
    assert all(number.tobytes() not in left for number in SECRET)
    assert len(proto.graph.node[4].attribute[0].floats or proto.graph.node[4].attribute[1].floats) == 2


def test_what_shapes_are_computed_from_stays():
    shape, floats = numpy_helper.from_array(np.array([7, -1]), "shape"), numpy_helper.from_array(SECRET, "w")
    nodes = [
        node("Reshape", "x,shape", "r", "reshape"),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(13))),
        helper.make_node("Constant", [], ["d"], value_ints=[17, 19]),
        helper.make_node("LeakyRelu", ["r"], ["y"], alpha=0.25),
    ]
    proto = model(nodes, {"x": (7, 2)}, {"y": (7, 2)})
    proto.graph.initializer.extend([shape, floats])
    strip_weights(proto)
    kept, emptied = proto.graph.initializer
    assert numpy_helper.to_array(kept).tolist() == [7, -1]
    assert (emptied.name, emptied.data_type, [*emptied.dims]) == ("w", TensorProto.FLOAT, [2])
    assert numpy_helper.to_array(proto.graph.node[1].attribute[0].t) == 13
    assert [*proto.graph.node[2].attribute[0].ints] == [17, 19]
    assert proto.graph.node[3].attribute[0].f == 0.25

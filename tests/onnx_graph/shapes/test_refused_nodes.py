"""A node that ONNX Runtime refuses when it loads a model is refused by name; one that only a sample forbids is not."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from tests.support.models.body_models import body, info, node
from tests.support.models.onnx_models import model

BOOL = TensorProto.BOOL
TURN = helper.make_node("Transpose", ["a"], ["t"], name="turn", perm=[0, -2, -1, 1])
REFUSED = r"m\.onnx: node 'turn': not a valid Transpose \(Invalid attribute perm \{0, -2, -1, 1\}"


def around(*nodes, shape=(1, 2, 3, 4)):
    return model([node("Relu", "x", "a", "first"), *nodes, node("Relu", "t", "y", "last")], {"x": shape}, {"y": None})


def loaded(proto, folder, **options):
    onnx.save(proto, folder / "m.onnx")
    return load_model(folder / "m.onnx", {}, **options).graph


def refused_by_the_runtime(proto):
    try:
        onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return True
    return False


def in_a_branch():
    sides = {side: body([TURN], [], [info("t")]) for side in ("then_branch", "else_branch")}
    made = around(helper.make_node("If", ["c"], ["t"], name="if", **sides))
    made.graph.input.append(info("c", BOOL, ()))
    return made


def with_declared_shapes():
    made = around(TURN)
    made.graph.value_info.extend(info(name, shape=(1, 3, 4, 2)) for name in ("t",))
    return made


@pytest.mark.parametrize(
    "proto", [around(TURN), around(TURN, shape=("N", 2, "M", 4)), in_a_branch(), with_declared_shapes()]
)
def test_a_node_that_the_runtime_refuses_is_named(tmp_path, proto):
    assert refused_by_the_runtime(proto)
    with pytest.raises(PipelineError, match=REFUSED):
        loaded(proto, tmp_path, symbolic=True)


@pytest.mark.parametrize(
    ("nodes", "weights", "problem"),
    [
        ([node("Add", "a,w", "t", "sum")], {"w": np.zeros(7, np.float32)}, r"node 'sum': not a valid Add \(Incompat"),
        ([node("MatMul", "a,w", "t", "product")], {"w": np.zeros((7, 5), np.float32)}, "node 'product'.*MatMul"),
        ([node("Concat", "a,a", "t", "join", axis=9)], {}, "node 'join': not a valid Concat"),
    ],
)
def test_operands_that_do_not_fit_are_named(tmp_path, nodes, weights, problem):
    proto = around(*nodes)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    assert refused_by_the_runtime(proto)
    with pytest.raises(PipelineError, match=problem):
        loaded(proto, tmp_path)


def with_fixed_length(*sizes, shape=("N", 3)):
    made = around(helper.make_node("Reshape", ["a", "sizes"], ["t"], name="fold"), shape=shape)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(sizes), "sizes"))
    return made


def test_a_size_that_the_exporter_has_fixed_is_named_with_the_node_before_a_run(tmp_path):
    proto = with_fixed_length(9, 3)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        session.run(None, {"x": np.zeros((7, 3), np.float32)})
    onnx.save(proto, tmp_path / "m.onnx")
    problem = r"node 'fold': not a valid Reshape \(makes \[9, 3\] of \[7, 3\], .*; the exporter has fixed a size: give"
    with pytest.raises(PipelineError, match=problem):
        load_model(tmp_path / "m.onnx", {"N": 7})
    assert load_model(tmp_path / "m.onnx", {"N": 9}).graph.tensors["t"].shape == (9, 3)
    assert load_model(tmp_path / "m.onnx", {}, symbolic=True).unbound == ("N",)


@pytest.mark.parametrize(("sizes", "shape"), [((-1, 1), (7, 3)), ((0, 3), (7, 3)), ((3, 7), (7, 3)), ((0,), (0, 3))])
def test_a_reshape_that_keeps_the_number_of_elements_is_not_refused(tmp_path, sizes, shape):
    assert loaded(with_fixed_length(*sizes, shape=shape), tmp_path).nodes


def test_a_shape_that_the_file_only_declares_refuses_no_reshape(tmp_path):
    """The runtime takes the sizes that it is given, and warns of those that the file declares."""
    proto = with_fixed_length(7, 3, shape=(7, 3))
    proto.graph.value_info.append(info("t", shape=(9, 3)))
    assert loaded(proto, tmp_path).nodes


def test_a_table_of_512_positions_fits_no_sample_and_is_not_refused(tmp_path):
    """At most bindings of N the two extents differ; at 512 they agree."""
    proto = around(node("Add", "a,w", "t", "sum"), shape=("N", 3))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((512, 3), np.float32), "w"))
    graph = loaded(proto, tmp_path, symbolic=True)
    assert graph.by_name["sum"].op_type == "Add"


def test_a_branch_that_no_run_takes_is_not_judged_by_its_extents(tmp_path):
    """Exporters squeeze an axis if it is 1, and leave it otherwise."""
    squeeze = body([node("Squeeze", "a,axis", "t1", "squeeze")], [], [info("t1")])
    keep = body([node("Identity", "a", "t2", "keep")], [], [info("t2")])
    choose = helper.make_node("If", ["c"], ["t"], name="if", then_branch=squeeze, else_branch=keep)
    proto = around(choose)
    proto.graph.input.append(info("c", BOOL, ()))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "axis"))
    assert loaded(proto, tmp_path).by_name["keep"].op_type == "Identity"

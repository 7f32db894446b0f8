"""02 on models that are unusual, broken or very large: a table or one line, and no hang."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper

from common.messages.errors import PipelineError, UnusableValueError
from tests.support.models.onnx_models import model, weight

stage = importlib.import_module("02_shapes_flops_bytes")
LARGEST = 2**63 - 1


def metrics_of(proto, folder, *flags):
    onnx.save(proto, folder / "m.onnx")
    assert stage.main(["--model", str(folder / "m.onnx"), "--out", str(folder), *flags]) == 0
    return pd.read_csv(folder / "op_metrics.csv", index_col="source_node", keep_default_na=False, na_values=[""])


def relu(read="x", written="y", name="relu"):
    return helper.make_node("Relu", [read], [written], name=name)


def while_loop(trips, body_nodes, returned):
    """A Loop of ``trips`` at most whose body returns ``returned`` as its condition, and its state doubled."""
    formal = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        helper.make_tensor_value_info("state", TensorProto.FLOAT, [3, 5]),
    ]
    results = [
        helper.make_tensor_value_info(returned, TensorProto.BOOL, []),
        helper.make_tensor_value_info("doubled", TensorProto.FLOAT, [3, 5]),
    ]
    double = helper.make_node("Add", ["state", "state"], ["doubled"], name="double")
    body = helper.make_graph([double, *body_nodes], "body", formal, results)
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y"], name="loop", body=body)
    return model([loop], {"x": (3, 5)}, {"y": (3, 5)}, {"trips": np.array(trips, np.int64)})


def test_the_largest_trip_count_is_no_limit(tmp_path):
    """Exporters write it for ``while``; 15 additions a pass."""
    test = [
        helper.make_node("ReduceMax", ["doubled"], ["top"], name="top", keepdims=0),
        helper.make_node("Less", ["top", "hundred"], ["more"], name="less"),
        helper.make_node("Constant", [], ["hundred"], name="hundred", value_float=100.0),
    ]
    found = metrics_of(while_loop(LARGEST, [test[2], *test[:2]], "more"), tmp_path)
    assert pd.isna(found.loc["double", ["execution_count", "flops", "upper_bound_flops"]]).all()
    found = metrics_of(while_loop(7, [test[2], *test[:2]], "more"), tmp_path)
    assert found.loc["double", "upper_bound_flops"] == 7 * 15


def test_identities_in_a_circle_are_refused(tmp_path):
    circle = [helper.make_node("Identity", [a], [b], name=a) for a, b in (("p", "q"), ("q", "p"))]
    with pytest.raises(PipelineError, match=r"m\.onnx: .* in a cycle: 'p', 'q', 'p'"):
        metrics_of(while_loop(7, circle, "p"), tmp_path)


@pytest.mark.parametrize("inputs", [[], ["trips"]])
def test_a_loop_without_its_operands_is_one_line_or_a_table(tmp_path, inputs):
    proto = while_loop(7, [], "go")
    del proto.graph.node[0].input[:]
    proto.graph.node[0].input.extend(inputs)
    onnx.save(proto, tmp_path / "m.onnx")
    try:
        assert stage.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path)]) == 0
    except PipelineError as error:
        assert "loop" in str(error)


def test_an_if_with_more_outputs_than_its_branches_names_the_node(tmp_path):
    branch = helper.make_graph(
        [relu("x", "a", "inner")], "b", [], [helper.make_tensor_value_info("a", TensorProto.FLOAT, [3])]
    )
    node = helper.make_node("If", ["go"], ["y", "z"], name="odd", then_branch=branch, else_branch=branch)
    proto = model([node], {"x": (3,), "go": ()}, {"y": None, "z": None})
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.BOOL
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(PipelineError, match=r"node 'odd': not a valid If \(it has 2 outputs, a branch of it 1\)"):
        stage.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path)])


def test_totals_beyond_64_bits_do_not_wrap(tmp_path, capsys):
    """Three ReLU on 2⁶⁰ elements; each moves 2·4·2⁶⁰ bytes, one more than a cell of 64 bits holds."""
    nodes = [relu("x", "a", "one"), relu("a", "b", "two"), relu("b", "y", "three")]
    found = metrics_of(model(nodes, {"x": (2**30, 2**30)}, {"y": None}), tmp_path)
    assert found["flops"].tolist() == [2**60] * 3
    assert found["bytes"].isna().all()
    assert [*map(str, found["bytes_expression"])] == [str(2**63)] * 3
    total = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("total"))
    assert total.split()[1:5] == ["3", "0", "3459", "P"]


def test_a_graph_may_return_a_tensor_twice(tmp_path):
    proto = model([relu()], {"x": (3, 5)}, {"y": None})
    proto.graph.output.append(proto.graph.output[0])
    assert metrics_of(proto, tmp_path).loc["relu", "bytes"] == 2 * 4 * 15


def test_a_domain_that_is_not_imported_is_counted_all_the_same(tmp_path):
    node = helper.make_node("FastGelu", ["x"], ["a"], name="gelu", domain="com.microsoft")
    found = metrics_of(model([node, relu("a")], {"x": (3, 5)}, {"y": None}), tmp_path)
    assert found.loc["relu", "bytes"] == 2 * 4 * 15


def test_an_empty_cache_is_a_binding(tmp_path):
    join = helper.make_node("Concat", ["cache", "x"], ["keys"], name="join", axis=0)
    product = helper.make_node("MatMul", ["keys", "w"], ["y"], name="product")
    inputs = {"cache": ("past", 5), "x": ("seq", 5)}
    proto = model([join, product], inputs, {"y": None}, {"w": weight(5, 7)})
    assert metrics_of(proto, tmp_path, "--dim", "past=0", "--dim", "seq=3").loc["product", "macs"] == 3 * 5 * 7


def test_bindings_that_contradict_each_other_are_refused(tmp_path):
    proto = model([relu()], {"x": ("past", "seq", "past + seq")}, {"y": None})
    onnx.save(proto, tmp_path / "m.onnx")
    flags = ["--dim", "past=5", "--dim", "seq=7", "--dim", "past + seq=99"]
    with pytest.raises(UnusableValueError, match=r"past \+ seq=99: the other dimensions make it 12"):
        stage.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), *flags])


def test_functions_that_inline_to_nothing_are_no_model(tmp_path):
    proto = model([helper.make_node("Empty", ["x"], ["x2"], name="call", domain="own")], {"x": (3,)}, {"x2": None})
    proto.functions.append(helper.make_function("own", "Empty", [], [], [], proto.opset_import))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(PipelineError):
        stage.main(["--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path)])


def test_a_long_tensor_with_one_axis_takes_no_memory(tmp_path):
    """ONNX's data propagation would keep an object for each of its 2⁴⁰ elements."""
    shift = helper.make_node("Add", ["x", "x"], ["y"], name="shift")
    assert metrics_of(model([shift], {"x": (2**40,)}, {"y": None}), tmp_path).loc["shift", "flops"] == 2**40

"""What the trace adds to the saved graph: shapes that the file does not hold, MACs by them, names of unnamed nodes."""

import onnx
import pytest
from onnx import helper

from common.onnx_graph.executed import (
    executed_sizes,
    load_executed_graph,
    with_traced_shapes,
    without_weights,
    work_in_run,
)
from tests.support.models.onnx_models import model, weight


def load(tmp_path, nodes, inputs, outputs, weights):
    path = tmp_path / "executed.onnx"
    onnx.save(model(nodes, inputs, outputs, weights), path)
    return load_executed_graph(path, {})


def row(name, inputs, outputs, *, passes=1, dtype="float32", variants=()):
    return {
        "executed_node": name,
        "input_shapes": inputs,
        "output_shapes": outputs,
        "output_dtypes": [dtype] * len(outputs),
        "events_per_run_count": passes,
        "shape_variants": variants,
    }


def executed_macs(graph, rows):
    ran = with_traced_shapes(graph, rows)
    return {row["executed_node"]: work_in_run(ran, row).macs for row in rows}


@pytest.fixture
def two_products(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["hidden"], name="one"),
        helper.make_node("MatMul", ["hidden", "v"], ["out"], name="two"),
    ]
    return load(tmp_path, nodes, {"x": None}, {"out": None}, {"w": weight(5, 7), "v": weight(7, 11)})


def test_shapes_come_from_the_trace(two_products):
    rows = [row("one", [[3, 5], [5, 7]], [[3, 7]]), row("two", [[3, 7], [7, 11]], [[3, 11]])]
    tensors = with_traced_shapes(two_products, rows).tensors
    assert {name: tensors[name].shape for name in ("x", "hidden", "out")} == {
        "x": (3, 5),
        "hidden": (3, 7),
        "out": (3, 11),
    }
    assert executed_macs(two_products, rows) == {"one": 3 * 5 * 7, "two": 3 * 7 * 11}


def test_shapes_and_passes_that_a_table_does_not_tell_are_unknown(two_products):
    rows = [row("one", [None, [5, 7]], [["rows", 7]], passes=None)]
    assert executed_sizes(two_products, rows)["hidden"] is None
    assert executed_macs(two_products, rows) == {"one": None}
    rows = [row("one", [[3, 5], [5, 7]], [[3, 7]], variants=[[[[3, 5], [5, 7]], [[3, 7]], 0]] * 2)]
    assert executed_macs(two_products, rows) == {"one": None}


def test_packed_weights_that_the_trace_leaves_out(two_products):
    rows = [row("one", [[3, 5]], [[3, 7]]), row("two", [[3, 7]], [[3, 11]])]
    assert executed_macs(two_products, rows) == {"one": 3 * 5 * 7, "two": 3 * 7 * 11}


def test_a_node_that_ran_several_times_in_one_run(two_products):
    rows = [row("one", [[3, 5]], [[3, 7]], passes=13)]
    assert executed_macs(two_products, rows) == {"one": 13 * 3 * 5 * 7}


def test_shapes_that_differ_from_pass_to_pass(two_products):
    """In 11 runs, each with a pass over 3 rows and two over 7."""
    variants = [[[[3, 5], [5, 7]], [[3, 7]], 11], [[[7, 5], [5, 7]], [[7, 7]], 22]]
    rows = [row("one", [[3, 5], [5, 7]], [[3, 7]], passes=3, variants=variants)]
    assert executed_macs(two_products, rows) == {"one": (3 + 2 * 7) * 5 * 7}
    work = work_in_run(with_traced_shapes(two_products, rows), rows[0])
    assert (work.input_bytes, work.output_bytes) == (4 * 5 * 17, 4 * 7 * 17)


def test_a_shape_that_nothing_tells_is_unknown(two_products):
    assert executed_macs(two_products, [row("two", [[1], [2], [3]], [])]) == {"two": None}


def test_padded_channels_count(tmp_path):
    """Ten output channels run as sixteen: the trace says so, and so do the reordered weights."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], name="conv", domain="com.microsoft.nchwc", kernel_shape=[1, 1])
    ]
    graph = load(tmp_path, nodes, {"x": (1, 32, 3, 5)}, {"y": None}, {"w": weight(16, 32, 1, 1)})
    assert executed_macs(graph, [row("conv", [[1, 32, 3, 5]], [[1, 16, 3, 5]])]) == {"conv": 16 * 32 * 3 * 5}


def test_the_extents_of_the_model_replace_padded_ones(tmp_path):
    """Ten of sixteen output channels are the model's; the batch, which data decide, is the one that ran."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], name="conv", domain="com.microsoft.nchwc", kernel_shape=[1, 1])
    ]
    graph = load(tmp_path, nodes, {"x": (None, 32, 3, 5)}, {"y": None}, {"w": weight(16, 32, 1, 1)})
    timed = row("conv", [[7, 32, 3, 5]], [[7, 16, 3, 5]], passes=2)
    model_shapes = ([None, 29, 3, 5], [10, 29, 1, 1]), [[None, 10, 3, 5]]
    work = work_in_run(with_traced_shapes(graph, [timed]), timed, model_shapes)
    sizes = (work.weight_bytes, work.input_bytes, work.output_bytes)
    assert (work.macs, sizes) == (2 * 7 * 15 * 10 * 29, (2 * 4 * 290, 2 * 4 * 7 * 29 * 15, 2 * 4 * 7 * 10 * 15))


def test_unnamed_nodes_get_the_traced_names_in_the_order_of_their_type(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["b"], name="inner")],
        "body",
        [],
        [helper.make_tensor_value_info("b", 1, None)],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"], name="kept"),
        helper.make_node("If", ["k"], ["i"], name="if", then_branch=body, else_branch=body),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    path = tmp_path / "saved.onnx"
    onnx.save(model(nodes, {"x": (3,), "k": ()}, {"y": (3,), "i": (3,)}, {}), path)
    traced = [("inner", "Relu"), ("Relu_0", "Relu"), ("Neg_1", "Neg"), ("kept", "Relu"), ("Relu_4", "Relu")]
    named = onnx.load_from_string(without_weights(path, traced))
    assert [node.name for node in named.graph.node] == ["Relu_0", "Neg_1", "kept", "if", "Relu_4"]

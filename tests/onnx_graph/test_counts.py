"""Figures of one run: executions counted, what depends on data unknown and bounded, unknown never 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.onnx_graph.counts import BOUNDED, FIGURES, bound_on_model, count_nodes, enclosing, times
from common.onnx_graph.load import load_model
from models.small.control_flow import build_tiny_if_loop, build_tiny_loop, build_tiny_loop_condition
from tests.support.models.onnx_models import INT64, Typed, model, weight


@pytest.fixture
def counted(tmp_path):
    def by_name(proto, values=None, **dims):
        onnx.save(proto, tmp_path / "m.onnx")
        loaded = load_model(tmp_path / "m.onnx", dims, values=values)
        return {one.node.name: one for one in count_nodes(loaded.graph, loaded.bounds)}

    return by_name


def node(op_type, inputs, outputs, name, **attributes):
    return helper.make_node(op_type, inputs.split(","), outputs.split(","), name=name, **attributes)


@pytest.mark.parametrize(
    ("figure", "count", "expected"),
    [(5, 1, 5), (5, 7, 35), (0, None, 0), (5, None, None), (None, 1, None), (None, 7, None), (None, None, None)],
)
def test_unknown_times_anything_is_unknown_and_nothing_stays_nothing(figure, count, expected):
    assert times(figure, count) == expected


def test_every_figure_of_a_body_is_multiplied_by_its_trips(counted):
    """3×11 by 11×11 in each of 7 trips: 363 MACs, 132 + 484 + 132 bytes."""
    found = counted(build_tiny_loop(), batch=3)
    product = next(one for one in found.values() if one.node.op_type == "MatMul" and one.node.body)
    assert product.execution_count == 7
    assert {name: product.figure(name) for name in FIGURES} == {
        "macs": 7 * 363,
        "flops": 7 * 726,
        "dequantized": 0,
        "weight_bytes": 7 * 484,
        "input_bytes": 7 * 132,
        "output_bytes": 7 * 132,
        "bytes": 7 * (484 + 132 + 132),
    }
    assert product.bounds == {}
    assert product.is_in_bound
    assert (product.work.macs, product.work.bytes) == (363, 748)
    assert [product.read_bytes(name) for name in product.node.inputs] == [7 * 132, 7 * 484]
    assert product.written_bytes(product.node.outputs[0]) == 7 * 132


def test_what_a_node_does_not_write_costs_nothing(counted):
    found = counted(model([node("Relu", "x", "y", "relu")], {"x": (3, 5)}, {"y": None}))
    assert found["relu"].written_bytes("x") == 0


def downstream(first):
    """What ``first`` selects of x (5, 7) as z, a column per element, times a weight of 5 rows."""
    nodes = [first, node("Transpose", "z", "t", "turn"), node("MatMul", "t,w", "y", "product")]
    inputs = {"x": (5, 7), "c": Typed(TensorProto.BOOL, (7,))}
    return model(nodes, inputs, {"y": None}, {"w": weight(5, 11)})


def test_what_follows_a_compression_is_unknown_and_bounded(counted):
    """At most all 7 columns: 7·5·11 = 385 MACs."""
    proto = downstream(node("Compress", "x,c", "z", "pick", axis=1))
    found = counted(proto)
    product = found["product"]
    assert [product.figure(name) for name in ("macs", "flops", "input_bytes", "output_bytes", "bytes")] == [None] * 5
    assert product.figure("weight_bytes") == 4 * 55
    assert product.bounds == {"macs": 385, "flops": 770, "bytes": 4 * (35 + 55 + 77)}
    assert product.is_in_bound
    assert product.execution_count == 1


@pytest.mark.parametrize("names", [("c",), ("c", "x")])
def test_the_mask_alone_tells_what_a_compression_keeps(counted, names):
    """3 of 7 columns: 3·5·11 = 165 MACs, whatever the data are."""
    proto = downstream(node("Compress", "x,c", "z", "pick", axis=1))
    arrays = {"c": np.array([True, False, True, False, False, True, False]), "x": weight(5, 7)}
    product = counted(proto, {name: arrays[name] for name in names})["product"]
    assert (product.figure("macs"), product.figure("bytes")) == (165, 4 * (15 + 55 + 33))
    assert product.bounds == {}


def test_indices_of_what_is_not_zero_are_bounded_by_all_elements(counted):
    """2 × 35 int64 at most; cast to float32 they are gathered by nobody else."""
    nodes = [node("NonZero", "x", "z", "find"), node("Cast", "z", "f", "cast", to=1), node("Relu", "f", "y", "relu")]
    found = counted(model(nodes, {"x": (5, 7)}, {"y": None}))
    assert found["relu"].figure("flops") is None
    assert found["relu"].bounds == {"macs": 0, "flops": 70, "bytes": 2 * 4 * 70}
    assert found["cast"].bounds["bytes"] == (8 + 4) * 70


def test_without_a_bound_there_is_none(counted):
    nodes = [node("Tile", "x,r", "t", "tile"), node("Relu", "t", "y", "relu")]
    found = counted(model(nodes, {"x": (5, 7), "r": Typed(INT64, (2,))}, {"y": None}))
    assert found["relu"].figure("flops") is None
    assert found["relu"].bounds == dict.fromkeys(BOUNDED)


def test_an_operator_without_a_formula_is_unknown_and_not_zero(counted):
    odd = helper.make_node("Mystery", ["x"], ["y"], name="odd", domain="example")
    found = counted(model([odd], {"x": (5, 7)}, {"y": (5, 7)}, domains=["example"]))["odd"]
    assert not found.work.is_counted
    assert [found.figure(name) for name in ("macs", "flops")] == [None, None]
    assert found.figure("bytes") == 2 * 4 * 35


def test_nothing_unknown_is_zero_in_a_loop_of_unknown_length(counted):
    found = counted(build_tiny_loop_condition(), batch=3)
    inside = [one for one in found.values() if one.node.body and one.node.op_type in ("MatMul", "Add", "Abs")]
    assert len(inside) == 4
    for one in inside:
        assert one.figure("flops") is None
        assert one.figure("bytes") is None
        assert one.bounds["flops"] == 1000 * one.work.flops
        assert one.bounds["bytes"] == 1000 * one.work.bytes


def test_the_bodies_around_a_body(tmp_path):
    onnx.save(build_tiny_if_loop(batch=3), tmp_path / "m.onnx")
    graph = load_model(tmp_path / "m.onnx", {}).graph
    assert enclosing(graph, "") == set()
    assert enclosing(graph, "/Loop.body") == {"/Loop.body"}
    assert enclosing(graph, "/Loop/If.then_branch") == {"/Loop/If.then_branch", "/Loop.body"}


def choice(then_columns, else_columns, name):
    """An If on an input between two products of x (3, 5) with weights of the given columns."""
    sides = []
    for side, columns in (("then", then_columns), ("else", else_columns)):
        stored = [numpy_helper.from_array(weight(5, columns), "w")]
        result = [helper.make_tensor_value_info("r", 1, None)]
        sides.append(helper.make_graph([node("MatMul", "x,w", "r", f"{name}_{side}")], "b", [], result, stored))
    return helper.make_node("If", ["c"], [f"y_{name}"], name=name, then_branch=sides[0], else_branch=sides[1])


def test_each_if_has_its_own_larger_branch(counted):
    """Of two choices the bound takes 13 columns of the first and 17 of the second: 15·(13 + 17) MACs."""
    nodes = [choice(11, 13, "one"), choice(17, 7, "two")]
    inputs = {"x": (3, 5), "c": Typed(TensorProto.BOOL, ())}
    found = counted(model(nodes, inputs, {"y_one": None, "y_two": None}))
    chosen = [name for name, one in found.items() if one.is_in_bound and one.node.op_type == "MatMul"]
    assert chosen == ["one_else", "two_then"]
    assert sum(found[name].bounds["macs"] for name in chosen) == 15 * (13 + 17)
    assert [found[name].figure("macs") for name in ("one_then", "one_else", "two_then", "two_else")] == [None] * 4


def test_branches_of_equal_cost_are_the_cost_of_their_if(counted, tmp_path):
    """Either multiplies 3×5 by 5×11. What the nodes of one branch do is unknown, what the If does is not."""
    inputs = {"x": (3, 5), "c": Typed(TensorProto.BOOL, ())}
    found = counted(model([choice(11, 11, "one"), choice(7, 13, "two")], inputs, {"y_one": None, "y_two": None}))
    assert [found["one"].figure(name) for name in ("macs", "flops", "bytes")] == [165, 330, 4 * (15 + 55 + 33)]
    assert [found["two"].figure(name) for name in ("macs", "bytes")] == [0, 0]
    for name in ("one_then", "one_else"):
        assert (found[name].figure("macs"), found[name].bounds, found[name].is_of_either) == (None, {}, True)
        assert not found[name].is_in_bound
    assert [name for name, one in found.items() if one.node.body and one.is_in_bound] == ["two_else"]
    graph = load_model(tmp_path / "m.onnx", {}).graph
    assert bound_on_model(graph, found.values(), "macs") == 165 + 3 * 5 * 13


def nested(inner, other, name):
    """An If whose branches are two other Ifs."""
    sides = [
        helper.make_graph([choice], "b", [], [helper.make_tensor_value_info(choice.output[0], 1, None)])
        for choice in (inner, other)
    ]
    return helper.make_node("If", ["d"], [f"y_{name}"], name=name, then_branch=sides[0], else_branch=sides[1])


@pytest.mark.parametrize(("columns", "macs"), [((11, 11, 11, 11), 165), ((11, 11, 7, 7), None), ((11, 7, 11, 7), None)])
def test_an_outer_if_holds_what_all_branches_within_it_cost(counted, columns, macs):
    inputs = {"x": (3, 5), "c": Typed(TensorProto.BOOL, ()), "d": Typed(TensorProto.BOOL, ())}
    outer = nested(choice(*columns[:2], "one"), choice(*columns[2:], "two"), "outer")
    found = counted(model([outer], inputs, {"y_outer": None}))
    assert found["outer"].figure("macs") == (macs or 0)
    assert [found[name].figure("macs") for name in ("one", "two")] == [0, 0]
    assert {found[name].is_of_either for name in ("one", "two", "one_then", "two_else")} == {macs is not None}


def test_a_known_model_has_no_bounds(counted):
    nodes = [node("MatMul", "x,w", "z", "product"), node("Relu", "z", "y", "relu")]
    found = counted(model(nodes, {"x": (3, 5)}, {"y": None}, {"w": weight(5, 7)}))
    assert all(one.bounds == {} and one.is_in_bound for one in found.values())
    assert set(BOUNDED) < set(FIGURES)


def test_the_sum_of_many_branches_looks_through_the_bodies_few_times(tmp_path):
    """A model may hold thousands of branches: a look through all of them for each owner would never end."""
    looks = []

    class Watched(dict):
        def values(self):
            looks.append(len(self))
            return super().values()

    choices = [choice(11, 7, f"c{index}") for index in range(40)]
    inputs = {"x": (3, 5), "c": Typed(TensorProto.BOOL, ())}
    onnx.save(model(choices, inputs, {f"y_c{index}": None for index in range(40)}), tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx", {})
    watched = replace(loaded.graph, bodies=Watched(loaded.graph.bodies))
    assert bound_on_model(watched, count_nodes(watched, loaded.bounds), "macs") == 40 * 3 * 5 * 11
    assert 0 < len(looks) < 10

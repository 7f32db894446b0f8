"""Bodies laid out flat, how often they run, and the shapes that go into and come out of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from common.onnx_graph.counts import count_nodes
from common.onnx_graph.shapes import control_flow
from models.small.control_flow import build_tiny_if_loop, build_tiny_loop_nested
from tests.support.models.body_models import (
    BOOL,
    DOUBLE,
    NARROW,
    SCALAR_BOOL,
    SCALAR_INT,
    WIDE,
    body,
    branches,
    constant,
    info,
    loop,
    loop_body,
    node,
)
from tests.support.models.onnx_models import INT64, model


def counts_of(loaded, name):
    found = loaded.graph.bodies[name]
    return found.execution_count, found.execution_bound


# --- Loop: how often ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trips", "expected"), [(7, 7), (1, 1), (0, 0), (-3, 0)])
def test_constant_trips(load, trips, expected):
    loaded = load(loop(weights={"m": np.array(trips)}))
    counted = count_nodes(loaded.graph, loaded.bounds)
    assert {found.node.op_type for found in counted} == ({"Identity", "Add", "Loop"} if expected else {"Loop"})
    if expected:
        assert counts_of(loaded, "loop.body") == (expected, expected)
    assert sum(found.figure("flops") for found in counted) == expected * 15
    assert loaded.graph.tensors["z"].shape == (3, 5)
    assert loaded.bounds is None


def test_trips_from_arithmetic_with_a_shape(load):
    """Rows of x times 11, less 2: 3·11 − 2 = 31."""
    before = [
        node("Shape", "x", "s", "shape"),
        node("Gather", "s,zero", "rows", "gather"),
        node("Mul", "rows,eleven", "p", "times"),
        node("Sub", "p,two", "m", "less"),
    ]
    weights = {"zero": np.array(0), "eleven": np.array(11), "two": np.array(2)}
    assert counts_of(load(loop(before=before, weights=weights)), "loop.body") == (31, 31)


def test_trips_from_an_input(load):
    proto = loop(weights={}, inputs={"m": SCALAR_INT})
    assert counts_of(load(proto), "loop.body") == (None, None)
    assert counts_of(load(proto, {"m": np.array(13)}), "loop.body") == (13, 13)


def test_a_start_condition_that_is_false_runs_nothing(load):
    loaded = load(loop(start="c", weights={"m": np.array(7), "c": np.array(False)}))
    assert [one.op_type for one in loaded.graph.nodes] == ["Loop"]
    assert loaded.graph.tensors["z"].shape == (3, 5)


def test_a_start_condition_from_an_input_leaves_the_count_unknown_and_bounded(load):
    proto = loop(start="c", inputs={"c": SCALAR_BOOL})
    assert counts_of(load(proto), "loop.body") == (None, 7)
    assert counts_of(load(proto, {"c": np.array(True)}), "loop.body") == (7, 7)
    assert "loop.body" not in load(proto, {"c": np.array(False)}).graph.bodies


def test_a_condition_that_passes_through_copies_is_always_true(load):
    nodes = [node("Identity", "going", "a"), node("Identity", "a", "again"), *DOUBLE]
    assert counts_of(load(loop(nodes, condition="again")), "loop.body") == (7, 7)


@pytest.mark.parametrize(("value", "expected"), [(True, (7, 7)), (False, (1, 1))])
def test_a_condition_that_is_a_constant_of_the_body(load, value, expected):
    """The body is asked after each pass: one that says stop at once has run once."""
    nodes = [constant("stop", value), *DOUBLE]
    assert counts_of(load(loop(nodes, condition="stop")), "loop.body") == expected


def test_a_condition_that_depends_on_data_is_bounded_by_the_most_trips(load):
    nodes = [*DOUBLE, node("ReduceSum", "state_out", "sum", keepdims=0), node("Less", "sum,sum", "less")]
    assert counts_of(load(loop(nodes, condition="less")), "loop.body") == (None, 7)
    assert counts_of(load(loop(nodes, condition="less", limit="", weights={})), "loop.body") == (None, None)


def test_nested_loops_multiply(load):
    loaded = load(build_tiny_loop_nested(), batch=3)
    assert counts_of(loaded, "/Loop.body") == (5, 5)
    assert counts_of(loaded, "/Loop/outer/Loop.body") == (15, 15)


# --- Loop: shapes ---------------------------------------------------------------------------------------------------


def test_a_state_that_keeps_its_shape_is_known_and_scan_outputs_are_stacked(load):
    nodes = [*DOUBLE, node("ReduceMax", "state", "row", axes=[0], keepdims=0)]
    loaded = load(loop(nodes, scans=["row"], outputs="z,rows"))
    tensors = loaded.graph.tensors
    assert tensors["z"].shape == (3, 5)
    assert tensors["rows"].shape == (7, 5)
    assert tensors["loop.body:state"].shape == (3, 5)
    assert tensors["loop.body:row"].shape == (5,)


def test_a_state_that_grows_is_unknown_where_it_grows(load):
    nodes = [node("Concat", "state,state", "state_out", "join", axis=0)]
    loaded = load(loop(nodes))
    assert loaded.graph.tensors["loop.body:state"].shape == (None, 5)
    assert loaded.graph.tensors["z"].shape == (None, 5)
    counted = {found.node.op_type: found for found in count_nodes(loaded.graph, loaded.bounds)}
    assert counted["Concat"].figure("bytes") is None
    assert counted["Concat"].execution_count == 7


def test_states_that_swap_their_shapes_are_unknown(load):
    takes = [info("i", INT64, ()), info("going", BOOL, ()), info("a"), info("b")]
    nodes = [node("Identity", "going", "keep"), node("Relu", "a", "ra"), node("Relu", "b", "rb")]
    inner = body(nodes, takes, [info("keep", BOOL, ()), info("rb"), info("ra")])
    one = helper.make_node("Loop", ["m", "", "x", "y"], ["p", "q"], name="loop", body=inner)
    loaded = load(model([one], {"x": (3, 5), "y": (7, 5)}, {"p": None, "q": None}, {"m": np.array(2)}))
    tensors = loaded.graph.tensors
    assert tensors["p"].shape == (None, 5)
    assert tensors["q"].shape == (None, 5)


def test_unknown_trips_leave_the_stack_unknown_and_the_bound_says_the_most(load):
    nodes = [*DOUBLE, node("ReduceSum", "state_out", "sum", keepdims=0), node("Less", "sum,sum", "less"),
             node("Relu", "state", "seen")]  # fmt: skip
    loaded = load(loop(nodes, condition="less", scans=["seen"], outputs="z,all"))
    assert loaded.graph.tensors["all"].shape == (None, 3, 5)
    assert loaded.bounds is not None
    assert loaded.bounds.tensors["all"].shape == (7, 3, 5)


# --- Scan -----------------------------------------------------------------------------------------------------------


def scan(states=1, axes=None, output_axes=None, shape=(7, 3, 5)):
    """Adds each slice to a state of (3, 5), or doubles it where there is no state; gives every result."""
    takes = ([info("state")] if states else []) + [info("slice")]
    first = "state" if states else "slice"
    nodes = [node("Add", f"{first},slice", "sum", "sum"), node("Identity", "sum", "seen")]
    inner = body(nodes, takes, ([info("sum")] if states else []) + [info("seen")])
    inputs = {**({"h": (3, 5)} if states else {}), "x": shape}
    ends = ["last", "all"] if states else ["all"]
    how = {"scan_input_axes": axes, "scan_output_axes": output_axes}
    attributes = {name: value for name, value in how.items() if value is not None}
    one = helper.make_node("Scan", list(inputs), ends, name="scan", body=inner, num_scan_inputs=1, **attributes)
    return model([one], inputs, dict.fromkeys(ends))


@pytest.mark.parametrize("states", [0, 1])
@pytest.mark.parametrize(
    ("axes", "shape", "output_axes", "stacked"),
    [
        (None, (7, 3, 5), None, (7, 3, 5)),
        ([1], (3, 7, 5), [2], (3, 5, 7)),
        ([-1], (3, 5, 7), [-2], (3, 7, 5)),
        ([-1], (3, 5, 7), [-1], (3, 5, 7)),
    ],
)
def test_scan_cuts_along_an_axis_and_stacks_along_another(load, states, axes, shape, output_axes, stacked):
    loaded = load(scan(states, axes, output_axes, shape))
    assert counts_of(loaded, "scan.body") == (7, 7)
    assert loaded.graph.tensors["scan.body:slice"].shape == (3, 5)
    assert loaded.graph.tensors["all"].shape == stacked
    if states:
        assert loaded.graph.tensors["last"].shape == (3, 5)
    assert sum(found.figure("flops") for found in count_nodes(loaded.graph, loaded.bounds)) == 7 * 15


# --- If -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("condition", "columns"), [(True, 11), (False, 13)])
def test_a_known_condition_leaves_the_other_branch_out(load, condition, columns):
    loaded = load(branches(NARROW, WIDE, condition))
    assert [one.op_type for one in loaded.graph.nodes] == ["MatMul", "If"]
    assert loaded.graph.tensors["y"].shape == (3, columns)
    taken = "if.then_branch" if condition else "if.else_branch"
    assert counts_of(loaded, taken) == (1, 1)
    assert len(loaded.graph.bodies) == 1
    assert sum(found.figure("macs") for found in count_nodes(loaded.graph, loaded.bounds)) == 3 * 5 * columns
    assert loaded.bounds is None


def test_a_condition_from_a_shape_is_known(load):
    proto = branches(NARROW, WIDE, True)
    del proto.graph.initializer[2]
    proto.graph.initializer.extend(
        [numpy_helper.from_array(np.array(value), name) for name, value in (("zero", 0), ("four", 4))]
    )
    test = [node("Shape", "x", "s"), node("Gather", "s,zero", "rows"), node("Greater", "rows,four", "c")]
    for one in reversed(test):
        proto.graph.node.insert(0, one)
    assert load(proto).graph.tensors["y"].shape == (3, 13)  # 3 rows are not more than 4


def test_an_unknown_condition_leaves_both_branches_and_what_they_share(load):
    loaded = load(branches(NARROW, WIDE))
    assert counts_of(loaded, "if.then_branch") == (None, 1)
    assert counts_of(loaded, "if.else_branch") == (None, 1)
    assert loaded.graph.tensors["y"].shape == (3, None)
    assert loaded.graph.tensors["if.then_branch:r"].shape == (3, 11)
    assert loaded.graph.tensors["if.else_branch:r"].shape == (3, 13)
    assert loaded.bounds.tensors["y"].shape == (3, 13)
    found = {one.node.body: one for one in count_nodes(loaded.graph, loaded.bounds) if one.node.op_type == "MatMul"}
    assert [one.figure("macs") for one in found.values()] == [None, None]
    assert [found[name].bounds["macs"] for name in ("if.then_branch", "if.else_branch")] == [165, 195]
    assert [found[name].is_in_bound for name in ("if.then_branch", "if.else_branch")] == [False, True]


def test_branches_of_other_ranks_leave_the_rank_unknown(load):
    flat = [node("Flatten", "x", "r", "flat", axis=0)]
    deep = [constant("a", np.array([0])), node("Unsqueeze", "x,a", "r", "deep")]
    assert load(branches(flat, deep)).graph.tensors["y"].shape is None


def test_an_unknown_if_in_a_loop_is_bounded_by_its_trips(load):
    """7 trips; the larger branch has 11·29 + 29·11 MACs a row, the smaller one 11·11."""
    loaded = load(build_tiny_if_loop(), batch=3)
    found = count_nodes(loaded.graph, loaded.bounds)
    assert {one.execution_count for one in found if "If" in one.node.body} == {None}
    bounds = [one.bounds.get("macs") or 0 for one in found if one.is_in_bound]
    assert sum(bounds) == 7 * 3 * (11 * 29 + 29 * 11)
    smaller = [one.bounds.get("macs") or 0 for one in found if not one.is_in_bound]
    assert sum(smaller) == 7 * 3 * 11 * 11


GROW = [node("Concat", "state,state", "state_out", axis=0)]


@pytest.mark.parametrize(("nodes", "shape"), [(DOUBLE, (3, 5)), (GROW, (None, 5))])
def test_time_grows_with_the_depth_and_not_as_its_power(load, monkeypatch, nodes, shape):
    """Twenty Loops in one another; a state that grows takes two passes through each of them."""
    depth, entered, enter = 20, [], control_flow._enter
    monkeypatch.setattr(control_flow, "_enter", lambda state, body: (entered.append(body.name), enter(state, body)))
    for _ in range(depth - 1):
        nodes = [helper.make_node("Loop", ["i", "", "state"], ["state_out"], body=loop_body(nodes))]
    loaded = load(loop(nodes))
    assert len(loaded.graph.bodies) == depth
    assert len(entered) <= 2 * depth * depth
    assert loaded.graph.tensors["z"].shape == shape


def test_a_loop_of_very_many_passes_is_not_run_to_find_a_value(load):
    """y is x in the shape that 2⁶² additions give; nobody waits for them."""
    sums = helper.make_node("Loop", ["m", "", "one"], ["n"], name="sums", body=loop_body(DOUBLE))
    weights = {"m": np.array(2**62), "one": np.array([1.0], np.float32)}
    nodes = [sums, node("Cast", "n", "s", "cast", to=INT64), node("Reshape", "x,s", "y", "view")]
    loaded = load(model(nodes, {"x": (3, 5)}, {"y": None}, weights))
    assert loaded.graph.tensors["y"].shape == (None,)

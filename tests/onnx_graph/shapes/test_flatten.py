"""Bodies laid out flat: order, names, aliases, kinds of tensors, edges."""

from __future__ import annotations

import numpy as np
from onnx import helper

from common.graphs.graph import Edge
from common.onnx_graph.counts import count_nodes
from models.small.control_flow import build_tiny_same_names
from tests.support.models.body_models import (
    BOOL,
    NARROW,
    WIDE,
    body,
    branches,
    constant,
    info,
    loop,
    node,
)
from tests.support.models.onnx_models import INT64, model, weight


def test_a_body_stands_before_its_owner_which_reads_its_results(load):
    loaded = load(branches(NARROW, WIDE))
    graph = loaded.graph
    assert [one.op_type for one in graph.nodes] == ["MatMul", "MatMul", "If"]
    owner = graph.nodes[-1]
    assert owner.inputs[0] == "c"
    assert set(owner.inputs[1:]) == {"if.then_branch:r", "if.else_branch:r"}
    assert {graph.producer["if.then_branch:r"], graph.producer["if.else_branch:r"]} == {
        graph.nodes[0].name,
        graph.nodes[1].name,
    }
    assert graph.consumers["x"] == (graph.nodes[0].name, graph.nodes[1].name)  # captured from outside
    assert graph.outputs == ("y",)


def test_what_a_body_is_handed_is_an_alias_of_the_operand(load):
    """x -> Relu -> r -> Loop; inside, r is called state."""
    proto = loop(before=[node("Relu", "x", "r", "relu")])
    proto.graph.node[1].input[2] = "r"
    graph = load(proto).graph
    assert graph.aliases["loop.body:state"] == "r"
    assert graph.producer["loop.body:state"] == "relu"
    assert "loop.body:i" not in graph.aliases
    double = next(one for one in graph.nodes if one.op_type == "Add")
    assert Edge("loop.body:state", "relu", double.name) in list(graph.edges())
    assert Edge("loop.body:state_out", double.name, "loop") in list(graph.edges())
    assert graph.tensors["loop.body:state"].kind == "activation"
    assert graph.tensors["m"].kind == "weight"
    assert graph.tensors["x"].kind == "input"


def test_weights_in_a_body_are_weights(load):
    inner = body(
        [node("Identity", "going", "keep"), node("MatMul", "state,own", "p"), node("Add", "p,b", "state_out")],
        [info("i", INT64, ()), info("going", BOOL, ()), info("state")],
        [info("keep", BOOL, ()), info("state_out")],
        {"own": weight(5, 5)},
    )
    inner.node.insert(0, constant("b", np.float32(1)))
    one = helper.make_node("Loop", ["m", "", "x"], ["z"], name="loop", body=inner)
    loaded = load(model([one], {"x": (3, 5)}, {"z": None}, {"m": np.array(7)}))
    tensors = loaded.graph.tensors
    assert (tensors["loop.body:own"].kind, tensors["loop.body:own"].shape) == ("weight", (5, 5))
    assert tensors["loop.body:b"].kind == "weight"
    product = next(one for one in count_nodes(loaded.graph, loaded.bounds) if one.node.op_type == "MatMul")
    assert product.figure("weight_bytes") == 7 * 4 * 25
    assert product.figure("input_bytes") == 7 * 4 * 15
    assert product.figure("bytes") == 7 * 4 * (25 + 15 + 15)


def test_bodies_in_bodies_name_the_tensors_of_both(load):
    graph = load(build_tiny_same_names(), batch=3).graph
    assert len({one.name for one in graph.nodes}) == len(graph.nodes)
    written = [name for one in graph.nodes for name in one.outputs if name]
    assert len(set(written)) == len(written)
    place = {one.name: index for index, one in enumerate(graph.nodes)}
    for edge in graph.edges():
        if edge.producer and edge.consumer:
            assert place[edge.producer] < place[edge.consumer], edge
    assert {found.owner for found in graph.bodies.values()} <= set(place)


def test_one_outer_tensor_reaches_a_body_in_a_body(load):
    innermost = body([node("MatMul", "x,w", "r", "deep")], [], [info("r")])
    other = body([node("MatMul", "x,w", "r", "deep")], [], [info("r")])
    choice = helper.make_node("If", ["c"], ["state_out"], name="if", then_branch=innermost, else_branch=other)
    proto = loop([choice], weights={"m": np.array(7), "w": weight(5, 5), "c": np.array(True)})
    loaded = load(proto)
    deep = next(one for one in loaded.graph.nodes if one.op_type == "MatMul")
    assert deep.inputs == ("x", "w")
    assert loaded.graph.bodies[deep.body].execution_count == 7
    assert sum(found.figure("macs") for found in count_nodes(loaded.graph, loaded.bounds)) == 7 * 3 * 25

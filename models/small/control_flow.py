"""Small models with Loop, Scan and If: nested graphs that capture outer tensors, in prime sizes.

A state of 11 values is multiplied by an 11×11 matrix in every body, so its rows of weights cannot be mistaken for the
trip counts 7, 5 and 3. Bodies name their nodes as exporters do, with the path of the node that owns them in front.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx

from models.graph_builder import BOOL, FLOAT, INT64, Dim, GraphBuilder, Spec

OPSET = 17
STATE, FEATURES, WIDE = 11, 13, 29
TRIPS, OUTER_TRIPS, INNER_TRIPS = 7, 5, 3
LIMIT = 100.0
MOST_TRIPS = 1000


def build_tiny_loop(*, seed: int = 0, batch: Dim = "batch", trips: int | None = TRIPS) -> onnx.ModelProto:
    """Loop of 7 iterations: a state times a captured matrix, plus a captured product; a scan output of every state."""
    builder = GraphBuilder("tiny-loop", seed=seed)
    drive = builder.node("MatMul", ["input", _matrix(builder, "drive", FEATURES, STATE)], "drive")
    count = "trips" if trips is None else builder.constant("", trips)
    body = builder.body("loop_body")
    x = body.node("MatMul", ["state_in", _matrix(builder, "recurrent", STATE, STATE)], "Loop/step")
    body.node("Tanh", [body.node("Add", [x, drive], "Loop/step")], "Loop/step", output="state_out")
    body.node("Identity", ["state_out"], "Loop/step", output="seen")
    graph = _loop_body(body, batch, scans=["seen"])
    states: Spec = (FLOAT, (TRIPS if trips is None else trips, batch, STATE))
    builder.multi_node("Loop", [count, "", "initial"], "", ["final", "states"], body=graph)
    inputs: dict[str, Spec] = {"input": (FLOAT, (batch, FEATURES)), "initial": (FLOAT, (batch, STATE))}
    if trips is None:
        inputs["trips"], states = (INT64, ()), (FLOAT, ("trips", batch, STATE))
    return builder.model(inputs, {"final": (FLOAT, (batch, STATE)), "states": states}, opset=OPSET)


def build_tiny_loop_input(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """The tiny loop with its trip count as the input ``trips``, an int64 scalar."""
    return build_tiny_loop(seed=seed, batch=batch, trips=None)


def build_tiny_loop_condition(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """Loop until the sum of a growing state passes 100, so that the number of iterations depends on the data."""
    builder = GraphBuilder("tiny-loop-condition", seed=seed)
    limit = builder.constant("", LIMIT, np.float32)
    body = builder.body("loop_body")
    x = body.node("MatMul", ["state_in", _matrix(builder, "recurrent", STATE, STATE)], "Loop/step")
    x = body.node("Add", [body.node("Abs", [x], "Loop/step"), "state_in"], "Loop/step", output="state_out")
    x = body.node("Add", [x, body.constant("Loop/step", 1, np.float32)], "Loop/grow", output="grown")
    total = body.node("ReduceSum", [x], "Loop/test", keepdims=0)
    body.node("Less", [total, limit], "Loop/test", output="going_on")
    start, most = builder.constant("", True, np.bool_), builder.constant("", MOST_TRIPS)
    graph = _loop_body(body, batch, condition="going_on", state="grown")
    builder.node("Loop", [most, start, "initial"], "", output="final", body=graph)
    return _state_to_state(builder, batch)


def build_tiny_loop_nested(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """Loop of 3 iterations in a Loop of 5, a product in each: 15 inner and 5 outer ones of 11×11."""
    builder = GraphBuilder("tiny-loop-nested", seed=seed)
    outer_matrix, inner_matrix = (_matrix(builder, name, STATE, STATE) for name in ("outer", "inner"))
    outer, inner = builder.body("outer_body"), builder.body("inner_body")
    x = inner.node("MatMul", ["inner_in", inner_matrix], "Loop/outer/Loop/inner")
    inner.node("Tanh", [x], "Loop/outer/Loop/inner", output="inner_out")
    inner_graph = _loop_body(inner, batch, before="inner_in", state="inner_out", prefix="inner")
    x = outer.node("MatMul", ["state_in", outer_matrix], "Loop/outer")
    trips = outer.constant("Loop/outer", INNER_TRIPS)
    outer.node("Loop", [trips, "", x], "Loop/outer", output="state_out", body=inner_graph)
    graph = _loop_body(outer, batch)
    builder.node("Loop", [builder.constant("", OUTER_TRIPS), "", "initial"], "", output="final", body=graph)
    return _state_to_state(builder, batch)


def build_tiny_loop_unnamed(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """The tiny loop with no node named, in the main graph and in the body."""
    model = build_tiny_loop(seed=seed, batch=batch)
    for graph in (model.graph, *_bodies(model.graph)):
        for node in graph.node:
            node.ClearField("name")
    return model


def build_tiny_scan(*, seed: int = 0, batch: Dim = "batch", seq: Dim = "seq") -> onnx.ModelProto:
    """Two Scans of a recurrent cell, forward and reverse, joined: (seq, batch, 13) to (seq, batch, 22)."""
    builder = GraphBuilder("tiny-scan", seed=seed)
    hidden = []
    for way, name in enumerate(("forward", "reverse")):
        body = _cell(builder, batch, name)
        hidden += builder.multi_node(
            "Scan",
            ["initial", "input"],
            name,
            [f"{name}_final", f"{name}_states"],
            body=body,
            num_scan_inputs=1,
            scan_input_directions=[way],
            scan_output_directions=[way],
        )[1:]
    builder.node("Concat", hidden, "", output="output", axis=2)
    inputs = {"input": (FLOAT, (seq, batch, FEATURES)), "initial": (FLOAT, (batch, STATE))}
    return builder.model(inputs, {"output": (FLOAT, (seq, batch, 2 * STATE))}, opset=OPSET)


def build_tiny_if(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """If on the input ``wide``, a bool: 13 → 29 → 11 by two products, or 13 → 11 by one; equal tensor names in both."""
    builder = GraphBuilder("tiny-if", seed=seed)
    then, otherwise = _branches(builder, "input", batch, FEATURES, "If")
    builder.node("If", ["wide"], "", output="output", then_branch=then, else_branch=otherwise)
    inputs: dict[str, Spec] = {"input": (FLOAT, (batch, FEATURES)), "wide": (BOOL, ())}
    return builder.model(inputs, {"output": (FLOAT, (batch, STATE))}, opset=OPSET)


def build_tiny_if_loop(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """If in a Loop of 7 iterations: two products in the first 3 of them, one in the other 4."""
    builder = GraphBuilder("tiny-if-loop", seed=seed)
    body = builder.body("loop_body")
    early = body.node("Less", ["iteration", body.constant("Loop", INNER_TRIPS)], "Loop")
    then, otherwise = _branches(builder, "state_in", batch, STATE, "Loop/If")
    x = body.node("If", [early], "Loop", then_branch=then, else_branch=otherwise)
    body.node("Tanh", [x], "Loop", output="state_out")
    graph = _loop_body(body, batch)
    builder.node("Loop", [builder.constant("", TRIPS), "", "initial"], "", output="final", body=graph)
    return _state_to_state(builder, batch)


def build_tiny_same_names(*, seed: int = 0, batch: Dim = "batch") -> onnx.ModelProto:
    """The If in a Loop after a product; names are unique within each graph only: MatMul_0 is in three of them."""
    model = build_tiny_if_loop(seed=seed, batch=batch)
    matrix = onnx.numpy_helper.from_array(np.eye(STATE, dtype=np.float32), "before")
    model.graph.initializer.append(matrix)
    model.graph.node.insert(0, onnx.helper.make_node("MatMul", ["initial", "before"], ["prepared"]))
    model.graph.node[-1].input[2] = "prepared"
    for graph in (model.graph, *_bodies(model.graph)):
        seen: Counter[str] = Counter()
        for node in graph.node:
            node.name = f"{node.op_type}_{seen[node.op_type]}"
            seen[node.op_type] += 1
    return model


def _matrix(builder: GraphBuilder, name: str, rows: int, columns: int) -> str:
    """Weights of variance 1 / rows, which keep a state's size."""
    values = builder.random.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(rows))
    return builder.weight(f"{name}.weight", values)


def _loop_body(
    body: GraphBuilder,
    batch: Dim,
    *,
    before: str = "state_in",
    state: str = "state_out",
    condition: str = "",
    scans: Sequence[str] = (),
    prefix: str = "",
) -> onnx.GraphProto:
    """Close the body of a Loop with one carried state; without a condition it passes on the one it got."""
    iteration, given = f"{prefix}iteration", f"{prefix}condition"
    condition = condition or body.node("Identity", [given], f"{body.name}/condition")
    carried: Spec = (FLOAT, (batch, STATE))
    inputs: dict[str, Spec] = {iteration: (INT64, ()), given: (BOOL, ()), before: carried}
    return body.graph(inputs, {condition: (BOOL, ()), state: carried} | dict.fromkeys(scans, carried))


def _cell(builder: GraphBuilder, batch: Dim, name: str) -> onnx.GraphProto:
    """tanh(x·W + h·R), the simple recurrent cell; both weights are captured from outside."""
    weights, recurrent = _matrix(builder, f"{name}.w", FEATURES, STATE), _matrix(builder, f"{name}.r", STATE, STATE)
    body = builder.body(f"{name}_cell")
    x = body.node("MatMul", ["frame", weights], f"{name}/Scan/input")
    h = body.node("MatMul", ["state_in", recurrent], f"{name}/Scan/state")
    body.node("Tanh", [body.node("Add", [x, h], f"{name}/Scan")], f"{name}/Scan", output="state_out")
    body.node("Identity", ["state_out"], f"{name}/Scan", output="seen")
    state: Spec = (FLOAT, (batch, STATE))
    inputs: dict[str, Spec] = {"state_in": state, "frame": (FLOAT, (batch, FEATURES))}
    return body.graph(inputs, {"state_out": state, "seen": state})


def _branches(builder: GraphBuilder, x: str, batch: Dim, width: int, path: str) -> list[onnx.GraphProto]:
    """Two products or one; both branches call their first product ``product`` and their result ``result``."""
    first, second, direct = (
        _matrix(builder, name, *shape)
        for name, shape in (("first", (width, WIDE)), ("second", (WIDE, STATE)), ("direct", (width, STATE)))
    )
    result: dict[str, Spec] = {"result": (FLOAT, (batch, STATE))}
    wide, narrow = builder.body("wide"), builder.body("narrow")
    y = wide.node("Relu", [wide.node("MatMul", [x, first], f"{path}/then", output="product")], f"{path}/then")
    wide.node("MatMul", [y, second], f"{path}/then", output="result")
    y = narrow.node("MatMul", [x, direct], f"{path}/else", output="product")
    narrow.node("Relu", [y], f"{path}/else", output="result")
    return [wide.graph({}, result), narrow.graph({}, result)]


def _state_to_state(builder: GraphBuilder, batch: Dim) -> onnx.ModelProto:
    state: Spec = (FLOAT, (batch, STATE))
    return builder.model({"initial": state}, {"final": state}, opset=OPSET)


def _bodies(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    inside = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return inside + [body for part in inside for body in _bodies(part)]

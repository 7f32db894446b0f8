"""Traces of Loop, Scan and If as ONNX Runtime writes them: every event in one row, every microsecond once."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.onnx_graph.reading.naming import named_model, rename_saved
from common.profiling.correction import correct
from common.profiling.runs.loop import Budget, SessionPlan, prepare, take_turns
from common.profiling.runs.measurement import conclude
from common.profiling.trace.reader import read_trace
from common.runtime.sessions.session import SessionSettings, create_session, run
from tests.support.models.fused_bodies import fused_everywhere

ROWS = 7  # the scanned axis
WIDTH = 5
X = np.linspace(-3, 2, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)


def value(name, shape, element_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def body(nodes, takes, gives):
    return helper.make_graph(nodes, "body", takes, gives)


def loop(name="loop", inner=()):
    """Halves and rectifies v, m times; ``inner`` runs between, from h to g."""
    nodes = [
        helper.make_node("Identity", ["go"], ["on"], name=f"{name}.on"),
        helper.make_node("Mul", ["v", "half"], ["h"], name=f"{name}.mul"),
        *(inner or [helper.make_node("Relu", ["h"], ["g"], name=f"{name}.relu")]),
    ]
    takes = [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("v", [ROWS, WIDTH])]
    gives = [value("on", [], TensorProto.BOOL), value("g", [ROWS, WIDTH])]
    return helper.make_node("Loop", ["m", "", "x"], ["y"], name=name, body=body(nodes, takes, gives))


def scan():
    """A running sum over the rows of x."""
    nodes = [
        helper.make_node("Add", ["s", "row"], ["next"], name="scan.add"),
        helper.make_node("Identity", ["next"], ["out"], name="scan.out"),
    ]
    inner = body(nodes, [value("s", [WIDTH]), value("row", [WIDTH])], [value("next", [WIDTH]), value("out", [WIDTH])])
    return helper.make_node("Scan", ["zero", "x"], ["last", "y"], name="scan", body=inner, num_scan_inputs=1)


def choice(name="if", reads="x", writes="y", condition="flag"):
    """Relu or two times Neg; both branches call their first node the same."""
    then = [helper.make_node("Relu", [reads], ["a"], name="step")]
    other = [helper.make_node("Neg", [reads], ["n"], name="step"), helper.make_node("Neg", ["n"], ["b"], name="more")]
    branches = {
        "then_branch": body(then, [], [value("a", [ROWS, WIDTH])]),
        "else_branch": body(other, [], [value("b", [ROWS, WIDTH])]),
    }
    return helper.make_node("If", [condition], [writes], name=name, **branches)


def saved(folder, node):
    """The model of one node of control flow, with m and flag as inputs."""
    weights = [
        numpy_helper.from_array(np.array(0.5, np.float32), "half"),
        numpy_helper.from_array(np.zeros(WIDTH, np.float32), "zero"),
    ]
    nodes = [node, helper.make_node("Relu", ["y"], ["z"], name="last_relu")]
    takes = [value("x", [ROWS, WIDTH]), value("m", [], TensorProto.INT64), value("flag", [], TensorProto.BOOL)]
    proto = helper.make_graph(nodes, "g", takes, [value("z", [ROWS, WIDTH])], weights)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def feeds(trips=11, flag=True):
    return {"x": X, "m": np.array(trips, np.int64), "flag": np.array(flag)}


def traced(folder, node, *runs, optimization="disable"):
    """The trace of these runs, and its raw events."""
    path = saved(folder, node)
    named = named_model(path)
    content = named.content if named else None
    settings = SessionSettings(1, optimization=optimization)
    session = create_session(path, settings, content=content, trace_prefix=folder / "trace")
    for given in runs:
        run(session, given)
    file = Path(session.end_profiling())
    return read_trace(file), json.loads(file.read_text())


def top_level_us(events, *names):
    """The durations of these nodes, which stand in the main graph."""
    wanted = {f"{name}_kernel_time" for name in (*names, "last_relu")}
    return sum(event["dur"] for event in events if event["name"] in wanted)


def all_us(trace):
    return sum(sum(node.run_us) for node in trace.nodes.values())


def events_of(trace):
    return {node.name: node.run_events for node in trace.nodes.values()}


def test_the_body_of_a_loop_has_an_event_in_each_trip(tmp_path):
    trace, events = traced(tmp_path, loop(), feeds(11), feeds(3), feeds(0), feeds(2))
    trips = [11, 3, 0, 2]
    assert events_of(trace) == {
        "loop": [1] * 4,
        **dict.fromkeys(("loop.mul", "loop.relu", "loop.on"), trips),
        "last_relu": [1] * 4,
    }
    assert {node.owner for node in trace.nodes.values()} == {"", "loop"}
    assert all_us(trace) == top_level_us(events, "loop")
    assert next(iter(trace.nodes)) == "loop"  # it starts before its body
    assert [node.execution_index for node in trace.nodes.values()] == [*range(5)]


def test_the_body_of_a_scan_has_an_event_for_each_row(tmp_path):
    trace, events = traced(tmp_path, scan(), feeds(), feeds())
    assert events_of(trace) == {"scan": [1, 1], "scan.add": [7, 7], "scan.out": [7, 7], "last_relu": [1, 1]}
    assert all_us(trace) == top_level_us(events, "scan")


def test_the_branches_of_an_if_are_told_apart(tmp_path):
    trace, events = traced(tmp_path, choice(), feeds(flag=True), feeds(flag=False), feeds(flag=False))
    kinds = {node.name: (node.op_type, node.owner, node.run_events) for node in trace.nodes.values()}
    other, then = sorted(set(kinds) - {"if", "more", "last_relu"}, key=lambda name: kinds[name][0])
    assert kinds == {
        "if": ("If", "", [1, 1, 1]),
        then: ("Relu", "if", [1, 0, 0]),
        other: ("Neg", "if", [0, 1, 1]),
        "more": ("Neg", "if", [0, 1, 1]),
        "last_relu": ("Relu", "", [1, 1, 1]),
    }
    assert "step" in (then, other)
    assert all_us(trace) == top_level_us(events, "if")


@pytest.mark.parametrize("optimization", ["disable", "all"])
def test_an_if_inside_a_loop(tmp_path, optimization):
    node = loop(inner=[choice(reads="h", writes="g", condition="flag")])
    trace, events = traced(tmp_path, node, feeds(13), feeds(13, flag=False), optimization=optimization)
    assert trace.nodes["if"].owner == "loop"
    assert trace.nodes["if"].run_events == [13, 13]
    assert {node.owner for node in trace.nodes.values()} == {"", "loop", "if"}
    assert all_us(trace) == top_level_us(events, "loop")


@pytest.mark.slow
def test_names_that_are_missing_or_taken_do_not_hinder_the_measurement(tmp_path):
    node = loop(name="", inner=[choice(name="", reads="h", writes="g")])
    path = saved(tmp_path, node)
    named = named_model(path)
    assert named.renamed_count == 3  # the loop, the choice, and one of its two steps; .on and .mul are names
    sessions = prepare(SessionPlan(path, feeds(5), SessionSettings(1), named.content), tmp_path)
    (runs,) = take_turns([sessions], Budget(2, 5), lambda done, total: None)
    found = conclude(sessions.traced.end(), runs)
    counts = {name: len(node.input_shapes) for name, node in found.trace.nodes.items()}
    latencies = {latency.node.name: latency for latency in correct(found, counts, tmp_path)}
    owner = latencies["Loop_0"]
    assert latencies["Loop_0/If_2"].node.owner == "Loop_0"
    assert latencies["Loop_0/If_2"].events_per_run == 5
    assert owner.events_per_run == 1
    assert owner.correction.low_us <= owner.correction.median_us <= owner.correction.high_us
    assert owner.correction.median_us > 0
    saved_names = {one.name for one in onnx.load(tmp_path / "executed.onnx", load_external_data=False).graph.node}
    assert "Loop_0" in saved_names


@pytest.mark.parametrize("flag", [True, False])
def test_what_the_runtime_fuses_under_one_name_is_told_apart(tmp_path, flag):
    given = {"x": X, "flag": np.array(flag)}
    path = tmp_path / "m.onnx"
    onnx.save(fused_everywhere([ROWS, WIDTH]), path)
    sessions = prepare(SessionPlan(path, given, SessionSettings(1)), tmp_path)
    (runs,) = take_turns([sessions], Budget(2, 5), lambda done, total: None)
    found = conclude(sessions.traced.end(), runs)
    content, bodies = rename_saved((tmp_path / "executed.onnx").read_bytes())
    nodes = {one.name: one for one in onnx.load_from_string(content).graph.node}
    branches = {attribute.name: attribute.g.node for attribute in nodes["if"].attribute}
    taken = {one.name for one in branches["then_branch" if flag else "else_branch"]}
    assert len(taken) == (1 if flag else 2)
    trace = found.renamed(bodies).trace
    assert set(trace.nodes) == {"Gelu", "if"} | taken
    assert {node.op_type for node in trace.nodes.values()} == {"Gelu", "If"} | (set() if flag else {"Neg"})
    assert {tuple(node.run_events) for node in trace.nodes.values()} == {(1,) * 7}
    assert all_us(trace) == all_us(found.trace)

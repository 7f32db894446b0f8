"""The OpenVINO provider for real. Run by ``make openvino``, in the environment that has it."""

import importlib
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest
from onnx import TensorProto, helper

from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from common.profiling.fused_graph import complete_executed_graph, write_static
from common.profiling.provider_layers import RUNS, layer_node, provider_layers
from common.profiling.trace.reader import read_trace
from common.runtime.providers.openvino_layers import count_layers, find_openvino
from common.runtime.providers.provider_check import assigned_nodes
from common.runtime.providers.provider_table import CPU, OPENVINO, probe
from common.runtime.sessions.session import GIVEN_GRAPH, SessionSettings, create_session, run
from models.small.control_flow import build_tiny_loop

pytestmark = pytest.mark.skipif(
    OPENVINO not in ort.get_available_providers(), reason="this onnxruntime has no OpenVINO; make openvino sets it up"
)
SETTINGS = SessionSettings(1, OPENVINO)
SIDE = 509  # of the MatMul below: 509³ = 131,872,229 MACs


def idle():
    """Nothing, where runs take turns with it."""


def node(op_type, reads, writes, name):
    return helper.make_node(op_type, reads, writes, name)


def saved(path, nodes, shape, weights=()):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.fixture
def perceptron(tmp_path):
    """x[N, 509] → MatMul by w[509, 509] → Softmax → y, N unbound."""
    random = np.random.default_rng(7)
    w = helper.make_tensor("w", TensorProto.FLOAT, [SIDE, SIDE], random.standard_normal(SIDE * SIDE))
    nodes = [node("MatMul", ["x", "w"], ["t"], "dense"), node("Softmax", ["t"], ["y"], "soft")]
    return saved(tmp_path / "perceptron.onnx", nodes, ["N", SIDE], [w])


def rows_of(count):
    return {"x": np.random.default_rng(11).standard_normal((count, SIDE)).astype(np.float32)}


def refusable(tmp_path, *middle):
    """Relu, some operators, Sigmoid."""
    names = [f"t{index}" for index in range(len(middle) + 1)]
    inner = [node(op, [names[index]], [names[index + 1]], f"m{index}") for index, op in enumerate(middle)]
    ends = node("Relu", ["x"], ["t0"], "first"), node("Sigmoid", [names[-1]], ["y"], "last")
    return saved(tmp_path / "model.onnx", [ends[0], *inner, ends[1]], [7])


def test_it_is_there():
    assert probe(OPENVINO) == "runs"


def test_a_model_that_it_takes_wholly(perceptron):
    session = create_session(perceptron, SETTINGS)
    assert {node.name: node.provider for node in assigned_nodes(session)} == {"dense": OPENVINO, "soft": OPENVINO}
    expected = create_session(perceptron, SessionSettings(1)).run(None, rows_of(13))[0]
    np.testing.assert_allclose(session.run(None, rows_of(13))[0], expected, rtol=1e-3, atol=1e-6)


def test_nodes_that_it_leaves_are_named(tmp_path):
    """OpenVINO has no Unique of any shape; what stands before it stays on the CPU with it."""
    with pytest.raises(PipelineError, match=r"<provider> OpenVINO\w+: did not take .*m0 \(Unique on CPUExecution"):
        create_session(refusable(tmp_path, "Unique"), SETTINGS)


def test_a_model_that_it_fails_on_is_refused_with_its_reason(tmp_path):
    """A Loop whose body reads a weight from outside: OpenVINO does not find it."""
    path = tmp_path / "loop.onnx"
    onnx.save(build_tiny_loop(batch=1), path)
    with pytest.raises(PipelineError, match=r"refuses it .*OpenVINO-EP.* Exception .*profile on the CPU, which may"):
        create_session(path, SETTINGS)


def test_it_lists_itself_while_the_cpu_runs_nodes(tmp_path):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    path = saved(tmp_path / "unique.onnx", [node("Unique", ["x"], ["y"], "unique")], [7])
    session = ort.InferenceSession(str(path), options, providers=[OPENVINO])
    assert session.get_providers()[0] == OPENVINO
    assert {node.name: node.provider for node in assigned_nodes(session)} == {"unique": CPU}


def test_the_executed_graph_is_one_node_per_part(perceptron, tmp_path):
    outputs = {"trace_prefix": tmp_path / "trace", "optimized": tmp_path / "executed.onnx"}
    session = create_session(perceptron, SETTINGS, **outputs)
    run(session, rows_of(3))
    trace = read_trace(Path(session.end_profiling()))
    complete_executed_graph(tmp_path / "executed.onnx", assigned_nodes(session), OPENVINO, trace)
    (fused,) = onnx.load(tmp_path / "executed.onnx").graph.node
    assert ([*trace.nodes], [*fused.input], [*fused.output]) == ([fused.name], ["x"], ["y"])
    assert trace.nodes[fused.name].provider == OPENVINO
    assert trace.nodes[fused.name].output_shapes == [[3, SIDE]]


def test_layers_hold_the_time_of_the_runs(perceptron, tmp_path):
    create_session(perceptron, SETTINGS, optimized=tmp_path / "executed.onnx")
    write_static(tmp_path / GIVEN_GRAPH, tmp_path / "static.onnx", rows_of(SIDE))
    counters = count_layers(find_openvino(), tmp_path / "static.onnx", rows_of(SIDE), 1, 11, 2, idle)
    times = {layer.layer_type: layer.mean_us for layer in counters.layers}
    assert times["FullyConnected"] > times["Softmax"]  # 131,872,229 MACs against 259,081 elements
    assert 0 < counters.total_us <= counters.latency_us + len(times) * counters.resolution_us
    assert counters.version[:2] == "20"
    source = load_model(perceptron, {"N": SIDE}, {}).graph
    assert {"dense", "soft"} <= {layer_node(layer, source) for layer in counters.layers}


def test_what_openvino_refuses_is_one_line_and_a_note(tmp_path):
    (tmp_path / "no.onnx").write_bytes(b"no model")
    with pytest.raises(PipelineError, match="OpenVINO's counters: ov_core_read_model fails"):
        count_layers(find_openvino(), tmp_path / "no.onnx", {}, 1, 1, 1, idle)


def test_an_input_of_another_size_is_refused(perceptron, tmp_path):
    create_session(perceptron, SETTINGS, optimized=tmp_path / "executed.onnx")
    write_static(tmp_path / GIVEN_GRAPH, tmp_path / "static.onnx", rows_of(3))
    with pytest.raises(PipelineError, match=f"input x: it takes {3 * SIDE * 4} bytes, not {5 * SIDE * 4}"):
        count_layers(find_openvino(), tmp_path / "static.onnx", rows_of(5), 1, 1, 1, idle)


def test_rows_and_a_note_for_the_table(perceptron, tmp_path):
    create_session(perceptron, SETTINGS, optimized=tmp_path / "executed.onnx")
    source = load_model(perceptron, {"N": 3}, {}).graph
    found = provider_layers(tmp_path, rows_of(3), SETTINGS, source)
    assert sum(row["layer_share"] for row in found.rows) == pytest.approx(1)
    assert "dense" in {row["layer_node"] for row in found.rows}
    assert f"over {RUNS} runs of the same graph and settings, in turn with the session's" in found.notes[0]


def test_the_stage_profiles_on_it(perceptron, tmp_path, capsys):
    stage = importlib.import_module("01_profile_onnx")
    flags = ["--model", str(perceptron), "--dim", "N=101", "--runs", "11", "--threads", "1"]
    assert stage.main([*flags, "--provider", "openvino", "--out", str(tmp_path / "out")]) == 0
    nodes = pd.read_csv(tmp_path / "out" / "op_latency.csv")
    assert ([*nodes["provider"]], nodes["op_type"][0][:12]) == ([OPENVINO], "OpenVINO-EP-")
    assert json.loads((tmp_path / "out" / "latency_summary.json").read_text())["provider"] == OPENVINO
    assert "OpenVINOExecutionProvider" in capsys.readouterr().out

"""Which provider ran what: the table, the evidence before and after a run, and graphs that a provider compiles."""

import re

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.graphs.graph import Graph, Node, Tensor
from common.messages.errors import PipelineError, UnusableValueError
from common.profiling import provider_layers
from common.profiling.fused_graph import complete_executed_graph, write_static
from common.profiling.runs.measurement import left_on_cpu, require_provider
from common.profiling.trace.reader import NodeTrace, Trace
from common.runtime.providers import openvino_layers
from common.runtime.providers.openvino_layers import LayerCounters, ProviderLayer
from common.runtime.providers.provider_check import AssignedNode, assigned_nodes, require_assignment
from common.runtime.providers.provider_table import (
    CPU,
    PROVIDERS,
    chosen_provider,
    compiles,
    find_provider,
    offered_providers,
    probe,
    provider_options,
    provider_rows,
    resolve_provider,
)
from common.runtime.sessions import session
from common.runtime.sessions.session import GIVEN_GRAPH, SessionSettings, create_session
from common.view.profile.provider_text import layer_report, provider_report
from tests.support.paths import ROOT

AZURE = "AzureExecutionProvider"  # in every build, and takes no node of an ordinary model
CUDA = "CUDAExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
needs_azure = pytest.mark.skipif(AZURE not in ort.get_available_providers(), reason="this build has no Azure provider")


def chain(*op_types):
    """x → op → op → … → y, all float32 [3, 5]."""
    names = ["x", *(f"t{index}" for index in range(len(op_types) - 1)), "y"]
    nodes = [
        helper.make_node(op_type, [names[index]], [names[index + 1]], f"n{index}")
        for index, op_type in enumerate(op_types)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 5]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()


# --- the table ------------------------------------------------------------------------------------------------------


def test_the_table_has_seven_providers_and_says_of_each_what_it_needs():
    rows = provider_rows()
    assert [row["name"] for row in rows] == ["cpu", "cuda", "tensorrt", "directml", "openvino", "qnn", "coreml"]
    assert all(text for row in rows for text in row.values())
    assert {row.full_name for row in PROVIDERS} <= set(ort.get_all_providers())


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("cpu", CPU),
        ("CUDA", CUDA),
        ("TensorrtExecutionProvider", "TensorrtExecutionProvider"),
        ("dml", "DmlExecutionProvider"),
        ("DirectML", "DmlExecutionProvider"),
    ],
)
def test_a_provider_by_any_of_its_names(name, found):
    assert find_provider(name).full_name == found


def test_the_text_fits_and_names_all():
    text = provider_report(provider_rows())
    assert max(map(len, text.splitlines())) <= 80
    assert all(row.full_name in text for row in PROVIDERS)
    assert re.search(r"^cpu +CPUExecutionProvider +runs$", text, re.MULTILINE)


def test_presence_is_what_a_session_shows():
    assert probe(CPU) == "runs"
    absent = [row.full_name for row in PROVIDERS if row.full_name not in offered_providers()]
    assert absent
    assert {probe(name) for name in absent} == {"absent"}


@needs_azure
def test_an_offered_provider_that_takes_nothing_is_not_called_present():
    assert AZURE in offered_providers()
    assert probe(AZURE) == "offered, but it takes no node"


def test_an_absent_provider_is_refused_with_its_package():
    row = next(row for row in PROVIDERS if row.full_name not in offered_providers())
    with pytest.raises(UnusableValueError, match=f"<provider>: {row.name} is not in this build of .*; it comes with"):
        resolve_provider(row.name)
    assert resolve_provider("Cpu") == CPU


@needs_azure
def test_a_provider_that_the_table_lacks_is_found_in_the_build():
    assert resolve_provider("azure") == resolve_provider(AZURE) == AZURE
    with pytest.raises(UnusableValueError, match=r"<provider>: quantum is not in this build .*; it has .*CPU"):
        resolve_provider("quantum")


def test_what_a_session_tells_a_provider():
    assert provider_options(OPENVINO, 7) == {"device_type": "CPU", "num_of_threads": "7"}
    assert provider_options(CUDA, 7) == {"enable_cuda_graph": "0"}
    assert provider_options("NoExecutionProvider", 7) == {}
    assert [row.name for row in PROVIDERS if compiles(row.full_name)] == ["tensorrt", "openvino", "qnn", "coreml"]


def test_directml_gets_no_memory_patterns():
    patterns = {
        name: session._options(SessionSettings(1, name), None, None).enable_mem_pattern
        for name in ("DmlExecutionProvider", CUDA)
    }
    assert patterns == {"DmlExecutionProvider": False, CUDA: True}


# --- evidence before a run ------------------------------------------------------------------------------------------


@needs_azure
def test_a_provider_that_lists_itself_while_the_cpu_runs_all():
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    made = ort.InferenceSession(chain("Relu", "Sigmoid"), options, providers=[AZURE])
    assert made.get_providers()[0] == AZURE
    assert {node.name: node.provider for node in assigned_nodes(made)} == {"n0": CPU, "n1": CPU}
    left = r"did not take n0 \(Relu on CPUExecutionProvider\), n1 \(Sigmoid on CPUExecutionProvider\); profile on"
    with pytest.raises(PipelineError, match=f"<provider> {AZURE}: {left}"):
        create_session(chain("Relu", "Sigmoid"), SessionSettings(1, AZURE))


@needs_azure
def test_of_very_many_nodes_a_hundred_are_named():
    with pytest.raises(PipelineError, match=r"n0 .* n99 \(Sigmoid on CPUExecutionProvider\) and 3 more"):
        create_session(chain(*["Sigmoid"] * 103), SessionSettings(1, AZURE))


class Part:
    """What the runtime says of one part of a graph."""

    def __init__(self, ep_name, *nodes):
        self.ep_name, self.nodes = ep_name, nodes

    def get_nodes(self):
        return [type("N", (), {"name": name, "op_type": op_type, "domain": ""}) for name, op_type in self.nodes]


class Assigned:
    """A session at the runtime's boundary."""

    def __init__(self, providers, *parts):
        self.providers, self.parts = providers, parts

    def get_providers(self):
        return self.providers

    def get_provider_graph_assignment_info(self):
        return self.parts


def test_a_provider_s_own_reason_is_kept_without_the_runtime_s_source():
    where = "/onnxruntime/onnxruntime/core/providers/openvino/ov_interface.cc:28 auto onnxruntime::Boundary(Func&&) "
    signature = f"{where}[with Func = Compile(const std::string&)::<lambda()>; Args = {{}}] "
    error = RuntimeError(f"[ONNXRuntimeError] : 1 : FAIL : Exception: {where}{signature}[OpenVINO-EP] x not found\n\n")
    assert session.reason_of(error) == "1 : FAIL : Exception: [OpenVINO-EP] x not found"


def test_a_library_that_does_not_load_is_an_error_with_what_it_needs():
    with pytest.raises(PipelineError, match=r"its library does not load, .*; it needs an NVIDIA GPU and driver; CUDA"):
        require_assignment(Assigned([CPU], Part(CPU, ("a", "Conv"))), CUDA)


def test_shape_arithmetic_may_stay_on_the_cpu_for_cuda_but_nothing_else():
    shapes = Part(CPU, ("s", "Shape"), ("g", "Gather"))
    require_assignment(Assigned([CUDA, CPU], Part(CUDA, ("a", "Conv")), shapes), CUDA)
    with pytest.raises(PipelineError, match=r"did not take u \(Unique on CPUExecutionProvider\); "):
        require_assignment(Assigned([CUDA, CPU], shapes, Part(CPU, ("u", "Unique"))), CUDA)
    with pytest.raises(PipelineError, match=r"did not take s \(Shape .*, g \(Gather "):
        require_assignment(Assigned([OPENVINO, CPU], shapes), OPENVINO)


def test_a_plug_in_is_chosen_by_its_device(monkeypatch):
    device = type("D", (), {"ep_name": "PlugExecutionProvider"})()
    monkeypatch.setattr(ort, "get_ep_devices", lambda: [device])
    given = []
    options = type("O", (), {"add_provider_for_devices": lambda _, *arguments: given.append(arguments)})()
    assert chosen_provider(options, "PlugExecutionProvider", 1) == {}
    assert given == [([device], {})]
    assert resolve_provider("plugexecutionprovider") == "PlugExecutionProvider"


# --- evidence after the runs ----------------------------------------------------------------------------------------


def traced(name, op_type, provider, shape=(3,), dtype="int64"):
    return NodeTrace(name, op_type, provider, 0, [], [list(shape)], [dtype])


def trace_of(*nodes):
    return Trace({node.name: node for node in nodes}, 1, 1)


@pytest.mark.parametrize(
    ("node", "accepted"),
    [
        (traced("a", "Concat", CPU, (2, 50)), True),
        (traced("a", "Concat", CPU, (101,)), False),  # more than the runtime itself calls small
        (traced("a", "Concat", CPU, (2,), "float32"), False),
        (traced("a", "TopK", CPU, (2,)), False),
    ],
)
def test_small_integers_on_the_cpu_are_no_nodes_left_by_cuda(node, accepted):
    trace = trace_of(node, traced("conv", "Conv", CUDA, (1, 7, 11, 13), "float32"))
    assert [left.name for left in left_on_cpu(trace, CUDA)] == (["a"] if accepted else [])
    if accepted:
        require_provider(trace, CUDA)
    else:
        with pytest.raises(PipelineError, match=rf"did not take a \({node.op_type} on CPUExecutionProvider\); "):
            require_provider(trace, CUDA)


def test_openvino_may_leave_nothing():
    with pytest.raises(PipelineError, match="did not take a"):
        require_provider(trace_of(traced("a", "Shape", CPU)), OPENVINO)


# --- graphs that a provider compiles --------------------------------------------------------------------------------


def given_graph(path):
    """x[N,3] → MatMul by w[3,5] → Relu → t → Sigmoid → y, and t is an output too."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "matmul"),
        helper.make_node("Relu", ["m"], ["t"], "relu"),
        helper.make_node("Sigmoid", ["t"], ["y"], "sigmoid"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name, size in (("x", 3), ("y", 5))]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [3, 5], np.ones(15))]
    graph = helper.make_graph(nodes, "g", ends[:1], [ends[1], helper.make_empty_tensor_value_info("t")], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def assigned(**parts):
    return [AssignedNode(name, "", OPENVINO, number) for name, number in parts.items()]


def test_each_part_becomes_one_node_named_as_in_the_trace(tmp_path):
    given_graph(tmp_path / "given.onnx")
    nodes = [traced("EP_sub_9_10", "EP-sub_9", OPENVINO), traced("EP_sub_9_2", "EP-sub_8", OPENVINO)]
    parts = assigned(matmul=4, relu=4, sigmoid=7)
    complete_executed_graph(tmp_path / "executed.onnx", parts, OPENVINO, trace_of(*nodes))
    written = onnx.load(tmp_path / "executed.onnx").graph
    found = [(node.name, node.op_type, [*node.input], [*node.output]) for node in written.node]
    assert found == [("EP_sub_9_2", "EP-sub_8", ["x"], ["t"]), ("EP_sub_9_10", "EP-sub_9", ["t"], ["y"])]
    assert not written.initializer


def test_one_part_needs_no_names(tmp_path):
    given_graph(tmp_path / "given.onnx")
    model = onnx.load(tmp_path / "given.onnx")
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, tmp_path / "given.onnx")
    parts = [AssignedNode("", "", OPENVINO, 0)] * 3
    complete_executed_graph(tmp_path / "out.onnx", parts, OPENVINO, trace_of(traced("a_0", "a", OPENVINO)))
    (node,) = onnx.load(tmp_path / "out.onnx").graph.node
    assert ([*node.input], sorted(node.output)) == (["x"], ["t", "y"])
    parts[0] = AssignedNode("", "", OPENVINO, 1)
    with pytest.raises(PipelineError, match="nodes of one name in several parts"):
        complete_executed_graph(tmp_path / "out.onnx", parts, OPENVINO, trace_of(traced("a_0", "a", OPENVINO)))


def test_a_trace_or_an_assignment_of_another_graph_is_refused(tmp_path):
    given_graph(tmp_path / "given.onnx")
    target = tmp_path / "executed.onnx"
    two = trace_of(traced("a", "a", OPENVINO), traced("b", "b", OPENVINO))
    with pytest.raises(PipelineError, match="has 2 nodes, the provider took 1 parts"):
        complete_executed_graph(target, assigned(matmul=0, relu=0, sigmoid=0), OPENVINO, two)
    with pytest.raises(PipelineError, match="is not the one that the provider took"):
        complete_executed_graph(target, assigned(matmul=0, relu=0), OPENVINO, trace_of(traced("a", "a", OPENVINO)))
    assert not target.exists()


def test_what_the_runtime_saved_itself_is_left_alone(tmp_path):
    """Another provider's graph, and that of a session whose trace was lost."""
    complete_executed_graph(tmp_path / "executed.onnx", [], CUDA, trace_of(traced("a", "Relu", CUDA)))
    complete_executed_graph(tmp_path / "executed.onnx", [], OPENVINO, trace_of())
    assert not [*tmp_path.iterdir()]


def test_shapes_are_bound_as_fed(tmp_path):
    given_graph(tmp_path / "given.onnx")
    write_static(tmp_path / "given.onnx", tmp_path / "static.onnx", {"x": np.zeros((7, 3), np.float32)})
    (value,) = onnx.load(tmp_path / "static.onnx").graph.input
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [7, 3]
    assert value.type.tensor_type.elem_type == TensorProto.FLOAT


def test_the_graph_that_a_compiling_provider_is_given_is_saved_beside(tmp_path, monkeypatch):
    """The CPU stands in for it: what is saved is the graph before any optimization of the provider's own."""
    monkeypatch.setattr(session, "compiles", lambda name: name == "Fake")
    monkeypatch.setattr(session, "chosen_provider", lambda *_: {"providers": [CPU]})
    monkeypatch.setattr(session, "require_assignment", lambda made, provider: None)
    create_session(chain("Relu", "Sigmoid"), SessionSettings(1, "Fake"), optimized=tmp_path / "executed.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / GIVEN_GRAPH).graph.node] == ["Relu", "Sigmoid"]
    assert not (tmp_path / "executed.onnx").exists()


def test_the_weights_of_an_executed_graph_are_in_no_file(tmp_path):
    weight = numpy_helper.from_array(np.arange(23 * 29, dtype=np.float32).reshape(23, 29), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [7, size]) for name, size in (("x", 23), ("y", 29))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    create_session(model.SerializeToString(), SessionSettings(1), optimized=tmp_path / "executed.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["executed.onnx"]
    (saved,) = onnx.load(tmp_path / "executed.onnx", load_external_data=False).graph.initializer
    assert (saved.raw_data, [*saved.dims]) == (b"", [23, 29])
    assert weight.raw_data[100:200] not in (tmp_path / "executed.onnx").read_bytes()


# --- OpenVINO's counters --------------------------------------------------------------------------------------------


def test_a_counter_is_a_mean_over_all_runs_from_which_the_warm_up_is_taken():
    """3 runs of 101 µs, then 7 of 31 µs: the counter says 101, then (3·101 + 7·31) / 10 = 52."""
    warm, rows = [("a", "Relu", "jit", 101), ("b", "Add", "jit", 0)], [("a", "Relu", "jit", 52), ("b", "Add", "jit", 0)]
    assert openvino_layers._means(warm, rows, 3, 7) == [(10 * 52 - 3 * 101) / 7, 0]
    assert (10 * 52 - 3 * 101) / 7 == 31


def counters(run_us=50.0, beside_us=53.0):
    layers = (
        ProviderLayer("conv/WithoutBiases", "Convolution", "brgconv_avx2_f32", 29.0),
        ProviderLayer("y", "FullyConnected", "gemm_f32", 13.0),
        ProviderLayer("Multiply_27", "Reorder", "reorder_f32", 5.0),
    )
    return LayerCounters(layers, (run_us,), (beside_us,), 1.1, "2025.4.1")


def source():
    nodes = (Node("conv", "Conv", "", ("x",), ("t",), {}), Node("gemm", "Gemm", "", ("t",), ("y",), {}))
    return Graph(nodes, {name: Tensor(name, "float32", 32, (3,), "activation") for name in "xty"}, ("y",))


@pytest.mark.slow
def test_layers_are_named_after_nodes_or_their_outputs():
    rows = provider_layers.layer_rows(counters(), source())
    assert [row["layer_node"] for row in rows] == ["conv", "gemm", ""]
    assert [row["layer_index"] for row in rows] == [0, 1, 2]
    assert [row["layer_mean_us"] for row in rows] == [29, 13, 5]
    assert [row["layer_share"] for row in rows] == [29 / 47, 13 / 47, 5 / 47]


def test_the_slowest_layers_are_printed():
    lines = layer_report(provider_layers.layer_rows(counters(), source())).strip().splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["conv/WithoutBiases", "y", "Multiply_27", "all"]
    assert lines[1].split()[-4:] == ["29.0", "µs", "61.7", "%"]  # 29 of 47
    assert lines[-1].split()[-4:] == ["47.0", "µs", "100.0", "%"]
    assert layer_report([]) == ""


@pytest.mark.parametrize(
    ("run_us", "beside_us", "said"),
    [
        (50.0, 53.0, "against the session's 0.05 ms"),  # 47 of 50, 50 of 53: within 10 %
        (50.0, 59.0, "or the host was busy"),
        (61.0, 61.0, "too coarse for this model"),
    ],
)
def test_whether_the_counters_add_up_is_said(run_us, beside_us, said):
    note = provider_layers.agreement(counters(run_us, beside_us))
    assert f"the 3 layers sum to {4700 / run_us:.1f} % of the counted runs" in note
    assert note.endswith(said)
    assert ("read them as shares only" in note) == (beside_us != 53)


def test_two_things_are_timed_in_turn():
    calls = []
    times = openvino_layers._in_turn(lambda: calls.append("a"), lambda: calls.append("b"), 3)
    assert calls == ["a", "b"] * 3
    assert [len(series) for series in times] == [3, 3]
    assert min(map(min, times)) > 0


def test_without_counters_a_note_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(provider_layers, "find_openvino", lambda: None)
    for provider, said in ((OPENVINO, "by OpenVINO's own counters"), ("TensorrtExecutionProvider", "TensorRT's own")):
        found = provider_layers.provider_layers(tmp_path, {}, SessionSettings(1, provider), source())
        assert (found.rows, said in found.notes[0]) == ((), True)
    assert provider_layers.provider_layers(tmp_path, {}, SessionSettings(1), source()).notes == ()


# --- its environment ------------------------------------------------------------------------------------------------


def pins(name):
    """Package → version of a lock."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ")[0].split("==") for line in lines if re.match(r"[a-z].*==", line))


def test_the_environment_of_openvino_differs_in_the_runtime_alone():
    """Whoever adds a package to requirements.in adds it there."""
    ours, theirs = pins("requirements.txt"), pins("requirements-openvino.txt")
    assert ours.keys() - theirs.keys() == {"onnxruntime"}
    assert {name for name in theirs if name in ours and theirs[name] != ours[name]} == set()
    assert theirs["onnxruntime-openvino"] == "1.24.1"

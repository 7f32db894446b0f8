"""Profiles that PyTorch recorded, and made ones with kernels of an accelerator."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.foreign_traces.owners import owners
from common.foreign_traces.programs import recognised
from common.foreign_traces.readers.calls import read_pytorch_layers
from common.foreign_traces.readers.kineto import read_calls
from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from tests.support.profiles.foreign_graphs import graph_of

DATA = Path(__file__).parent / "data" / "pytorch"
VERSIONS = ("1.8.1-steps.json", "1.9.1-legacy.json", "1.10.2-steps.json", "1.12.1-plain.json", "2.2.2-plain.json")
CALLS = ["conv2d", "batch_norm", "relu", "conv2d", "add", "relu", "mean", "linear"]


@pytest.fixture(scope="module")
def graph():
    return load_model(DATA / "model.onnx", {}).graph


def outermost(path):
    """The outermost operators of a profile, each with its time, by another algorithm: all pairs."""
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"]
    spans = [(event["ts"], event["ts"] + event["dur"], event) for event in events]
    return [
        event
        for begin, end, event in sorted(spans, key=lambda span: span[0])
        if not any(b <= begin and end <= e and other is not event for b, e, other in spans)
    ]


@pytest.mark.parametrize("name", ["steps.json", "plain.json"])
def test_calls_and_times_of_a_real_profile(name):
    found = read_calls(DATA / name)
    assert [call.operator for call in found.calls] == CALLS
    assert len(found.times_us) == 3
    expected = [event["dur"] for event in outermost(DATA / name) if not event["name"].startswith("Optimizer")]
    assert [time for run in found.times_us for time in run] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["steps.json", "plain.json"])
def test_calls_are_aligned_with_the_exported_model(name, graph):
    profile = read_pytorch_layers(DATA / name, graph)
    types = [[graph.by_name[source].op_type for source in layer.sources] for layer in profile.layers]
    assert types == [["Conv"], [], ["Relu"], ["Conv"], ["Add"], ["Relu"], ["ReduceMean"], ["Gemm"]]
    assert [layer.sources for layer in profile.layers if layer.name == "conv2d"] == [("/a/Conv",)]
    assert profile.run_count == 3
    assert [len(layer.run_us) for layer in profile.layers] == [3] * len(CALLS)
    sums_us = [sum(times) for times in zip(*(layer.run_us for layer in profile.layers), strict=True)]
    assert all(run_us >= sum_us - 1 for run_us, sum_us in zip(profile.run_us, sums_us, strict=True))


@pytest.mark.parametrize("name", VERSIONS)
def test_versions_write_one_program_in_several_forms(name, graph):
    """Categories, the words for shapes, whole µs, steps as operators, and the list without Kineto differ."""
    assert recognised(DATA / name) == "PyTorch"
    recorded = read_calls(DATA / name)
    calls = [call.operator for call in recorded.calls if call.operator not in ("empty", "zeros")]
    assert (calls, len(recorded.times_us), recorded.left_out) == (CALLS, 3, 0)
    profile = read_pytorch_layers(DATA / name, graph)
    types = [graph.by_name[source].op_type for layer in profile.layers for source in layer.sources]
    assert types == ["Conv", "Relu", "Conv", "Add", "Relu", "ReduceMean", "Gemm"]


def test_an_operator_that_whole_microseconds_cut_off_its_caller(tmp_path):
    """The view within the second linear seems to begin when that one ends."""
    events = [
        call("aten::linear", 10, 20, 1),
        call("aten::view", 28, 1, 2),
        call("aten::relu", 40, 4, 3),
        call("aten::linear", 50, 20, 4),
        call("aten::view", 70, 1, 5),
        call("aten::relu", 80, 4, 6),
    ]
    recorded = read_calls(written(tmp_path, events))
    assert [entry.operator for entry in recorded.calls] == ["linear", "relu"]
    assert len(recorded.times_us) == 2


def test_an_annotation_of_the_program_is_no_operator(tmp_path):
    events = [
        {**call("model_inference", 0, 100, 1), "cat": "Operator"},
        {**call("aten::relu", 10, 5, 2), "cat": "Operator"},
        {**call("triton_poi_fused_add_0", 20, 7, 3), "cat": "Operator"},
    ]
    assert [entry.operator for entry in read_calls(written(tmp_path, events)).calls] == [
        "relu",
        "triton_poi_fused_add_0",
    ]


def test_the_shapes_of_a_list_of_operands_are_those_of_its_tensors(tmp_path):
    events = [
        call("aten::einsum", 0, 9, 1, [[], [[2, 3, 5], [2, 5, 7]], []]),
        call("aten::relu", 10, 3, 2, [[2, 3, 7]]),
    ]
    assert [entry.shapes for entry in read_calls(written(tmp_path, events)).calls] == [
        ((), (2, 3, 5), (2, 5, 7), ()),
        ((2, 3, 7),),
    ]


def test_a_contraction_without_a_call_of_its_own_is_of_another_model(tmp_path):
    """A deeper network has the calls of a shallower one in order; the call behind does not compute what is missing."""
    graph = graph_of(
        ("Conv", "first", ("x", "w")),
        ("Relu", "relu1", ("first:0",)),
        ("Conv", "second", ("relu1:0", "w")),
        ("Relu", "relu2", ("second:0",)),
        outputs=["relu2:0"],
    )
    path = written(tmp_path, [call("aten::conv2d", 0, 9, 1), call("aten::relu", 10, 3, 2)])
    profile = read_pytorch_layers(path, graph)
    assert owners(path, graph, profile).matched.contraction_share == 0.5


def test_a_kernel_without_the_id_of_its_operator_is_found_by_its_launch(tmp_path):
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 15, "dur": 2}
    events = [
        call("aten::relu", 10, 20, 1),
        call("aten::linear", 40, 20, 2),
        {**launch, "args": {"correlation": 7}},
        {**launch, "args": {"correlation": 8, "External id": 2}},
        {**launch, "ts": 35, "args": {"correlation": 9}},
        *(
            {**kernel(100, time_us, 0), "args": {"correlation": number}}
            for number, time_us in ((7, 11), (8, 13), (9, 3))
        ),
    ]
    assert read_calls(written(tmp_path, events)).times_us == ((11.0, 13.0),)


def call(name, start_us, time_us, number=0, dims=None, thread=1):
    args = {"External id": number} | ({"Input Dims": dims} if dims else {})
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start_us,
        "dur": time_us,
        "args": args,
    }


def kernel(start_us, time_us, number, cat="kernel"):
    args = {"External id": number}
    return {"ph": "X", "cat": cat, "name": "gemm", "pid": 0, "tid": 7, "ts": start_us, "dur": time_us, "args": args}


def written(tmp_path, events):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_with_kernels_their_time_counts_for_the_outermost_call(tmp_path):
    events = [
        call("aten::linear", 10, 20, 1),
        call("aten::addmm", 12, 5, 2),
        call("aten::relu", 31, 4, 3),
        kernel(40, 101, 2),
        kernel(141, 3, 2, "gpu_memcpy"),
        kernel(150, 7, 3),
        kernel(170, 9, 99),
        call("aten::backward", 11, 1, 5, thread=2),
    ]
    found = read_calls(written(tmp_path, events))
    assert [call.operator for call in found.calls] == ["linear", "relu"]
    assert found.times_us == ((104.0, 7.0),)
    assert found.has_kernels


def training(backward_thread=1, gradients=("autograd::engine::evaluate_function: AddmmBackward0", "MulBackward1")):
    """Three iterations as PyTorch 2.13 records them: forward pass, gradients, and an optimizer in its annotation."""
    events = []
    for start_us in (0, 1000, 2000):
        optimizer = {**call("Optimizer.step#SGD.step", start_us + 700, 90), "cat": "user_annotation"}
        events += [
            call("aten::linear", start_us, 50),
            call("aten::add_", start_us + 60, 2),
            call("aten::batch_norm", start_us + 70, 20),
            call("aten::add_", start_us + 100, 11),
            *(
                call(name, start_us + 200 + 250 * place, 200, thread=backward_thread)
                for place, name in enumerate(gradients)
            ),
            call("aten::mul", start_us + 210, 100, thread=backward_thread),
            optimizer,
            call("aten::_foreach_add_", start_us + 710, 30),
            call("aten::_foreach_mul_", start_us + 750, 39),
        ]
    return events


@pytest.mark.parametrize("backward_thread", [1, 2])
def test_of_a_program_that_trains_the_forward_pass_has_layers(tmp_path, backward_thread):
    """Gradients run on a thread of their own where an accelerator works, and longer than the forward pass."""
    found = read_calls(written(tmp_path, training(backward_thread)))
    assert [entry.operator for entry in found.calls] == ["linear", "batch_norm", "add_"]
    assert found.times_us == ((50, 20, 11),) * 3
    assert found.training_share == pytest.approx(1 - 81 / (83 + 400 + 69))
    profile = read_pytorch_layers(written(tmp_path, training()), graph_of(("MatMul", "a", ("x", "w")), outputs=["a:0"]))
    assert "85.3% of the time is in gradients and optimizers, and is left out" in profile.notes


def test_an_addition_before_a_normalization_is_no_counter_unless_each_has_one(tmp_path):
    frozen = [call("aten::batch_norm", start_us + 55, 3) for start_us in (0, 1000, 2000)]
    found = read_calls(written(tmp_path, [*training(), *frozen]))
    assert [entry.operator for entry in found.calls] == ["linear", "batch_norm", "add_", "batch_norm", "add_"]
    inference = [call("aten::linear", 0, 5), call("aten::add_", 10, 5), call("aten::batch_norm", 20, 5)]
    assert len(read_calls(written(tmp_path, inference)).calls) == 3


def test_runs_with_other_calls_are_left_out(tmp_path):
    steps = [{**call(f"ProfilerStep#{place}", 100 * place, 90), "cat": "user_annotation"} for place in range(3)]
    calls = [call("aten::relu", 100 * place + 10, 5 + place) for place in range(3)]
    found = read_calls(written(tmp_path, [*steps, *calls, call("aten::sum", 220, 1)]))
    assert (found.times_us, found.left_out) == (((5.0,), (6.0,)), 1)


def blocks_model(tmp_path, blocks):
    """A chain of equal products, each with an activation."""
    weight = numpy_helper.from_array(np.ones((6, 6), np.float32), "w")
    nodes = []
    for place in range(blocks):
        nodes.append(helper.make_node("MatMul", [f"t{place}", "w"], [f"m{place}"], name=f"product{place}"))
        nodes.append(helper.make_node("Relu", [f"m{place}"], [f"t{place + 1}"], name=f"relu{place}"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 6]) for name in ("t0", f"t{blocks}")]
    model = helper.make_model(
        helper.make_graph(nodes, "blocks", ends[:1], ends[1:], [weight]), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(model, tmp_path / "blocks.onnx")
    return load_model(tmp_path / "blocks.onnx", {}).graph


def test_equal_blocks_are_not_taken_for_runs(tmp_path):
    events = []
    for place in range(3 * 4):  # four runs of three blocks
        events.append(call("aten::linear", 100 * place, 50 + place, dims=[[5, 6], [6, 6], [6]]))
        events.append(call("aten::relu", 100 * place + 70, 7, dims=[[5, 6]]))
    profile = read_pytorch_layers(written(tmp_path, events), blocks_model(tmp_path, 3))
    assert profile.run_count == 4
    assert [layer.sources for layer in profile.layers] == [
        (name,) for place in range(3) for name in (f"product{place}", f"relu{place}")
    ]
    assert profile.layers[0].run_us == (50, 53, 56, 59)


def test_other_sizes_than_the_models(tmp_path):
    events = [call("aten::linear", 0, 5, dims=[[7, 6], [6, 6], [6]])]
    with pytest.raises(
        PipelineError, match=r"'linear' was recorded with operands \[\[7, 6\], \[6, 6\]\], which no node"
    ):
        read_pytorch_layers(written(tmp_path, events), blocks_model(tmp_path, 1))


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([], "holds no operator"),
        ([3], "has an event that is no object: 3"),
        ([call("aten::relu", "soon", 1)], "the event 'aten::relu' has no time: 'soon'"),
        ([call("aten::relu", 1, -5)], "the event 'aten::relu' lasts -5"),
        ([call("aten::relu", 1, 1e300)], "has no time"),
        ([{"ph": "X", "cat": "cpu_op", "name": "a"}], "has no time: None"),
        ([call("aten::relu", 1, 5, 1), kernel(3, 4, 99)], "holds no operator whose kernels have a time"),
        ([call("aten::relu", 1, 0, 1)], "holds no operator with a time"),
        ([call("autograd::engine::evaluate_function: ReluBackward0", 1, 5)], "holds no operator of a forward pass"),
        ([{**call("aten::relu", 1, 5, 1), "cat": ["cpu_op"]}], "holds no operator"),
    ],
)
def test_profiles_that_cannot_be_used(tmp_path, events, problem):
    with pytest.raises(PipelineError, match=problem) as caught:
        read_calls(written(tmp_path, events))
    assert "\n" not in str(caught.value)


def test_a_profile_that_is_cut_short(tmp_path):
    path = tmp_path / "cut.json"
    path.write_bytes((DATA / "plain.json").read_bytes()[:-900])
    with pytest.raises(PipelineError, match=r"cut\.json: is cut short"):
        read_calls(path)


@pytest.mark.parametrize(("middle", "share"), [("aten::gelu", 1.0), ("aten::tanh", 0.4), ("aten::conv2d", 0.4)])
def test_without_shapes_the_order_of_operations_says_whether_it_is_the_model(tmp_path, middle, share):
    """A GELU is three nodes here, the bias is a node of its own, and the transposition counts for neither."""
    graph = graph_of(
        ("MatMul", "first", ("x", "w")),
        ("Add", "bias", ("first:0", "w")),
        ("Div", "scale", ("bias:0",)),
        ("Erf", "erf", ("scale:0",)),
        ("Mul", "gate", ("bias:0", "erf:0")),
        ("Transpose", "turn", ("gate:0",)),
        ("MatMul", "second", ("turn:0", "w")),
        outputs=["second:0"],
    )
    names = ("aten::linear", middle, "aten::contiguous", "aten::linear")
    events = [call(name, 100 * place, 50, place) for place, name in enumerate(names)]
    assert read_pytorch_layers(written(tmp_path, events), graph).operation_share == share

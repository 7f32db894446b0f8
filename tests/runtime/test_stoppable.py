"""Runs on a device with memory of its own: the CPU is one to the runtime's I/O binding, so that the real calls run."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from common.messages.errors import PipelineError
from common.runtime.providers.provider_table import PROVIDERS, device_of
from common.runtime.sessions.session import SessionSettings, create_session
from common.runtime.sessions.stoppable import StoppableRuns, stages_on


@pytest.fixture
def session():
    """``x [N, 3] + y [3]``, and its negative."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [3]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in ("sum", "less")]
    nodes = [helper.make_node("Add", ["x", "y"], ["sum"]), helper.make_node("Neg", ["sum"], ["less"])]
    model = helper.make_model(
        helper.make_graph(nodes, "graph", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    return create_session(model.SerializeToString(), SessionSettings(1))


def feeds(rows, first=0.0):
    x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3) + np.float32(first)
    return {"x": x, "y": np.array([100, 200, 300], np.float32)}


def test_a_bound_run_computes_what_a_plain_one_does_and_leaves_its_inputs_alone(session):
    bound, plain = StoppableRuns(session, "model", "cpu"), StoppableRuns(session, "model")
    assert (len(bound.stages), len(plain.stages)) == (3, 1)
    for given in (feeds(2), feeds(5), feeds(2, first=17)):
        before = {name: array.copy() for name, array in given.items()}
        outputs, spent_ns = bound.run(given)
        expected, one_ns = plain.run(given)
        assert [output.tolist() for output in outputs] == [output.tolist() for output in expected]
        assert (outputs[0] == before["x"] + before["y"]).all() and (outputs[1] == -outputs[0]).all()
        assert len(spent_ns) == 3 and min(spent_ns) > 0 and len(one_ns) == 1
        assert all((array == before[name]).all() for name, array in given.items())


def test_rows_that_do_not_lie_one_after_the_other_are_copied_right(session):
    wide = np.arange(12, dtype=np.float32).reshape(2, 6)
    outputs, _ = StoppableRuns(session, "model", "cpu").run({"x": wide[:, ::2], "y": np.zeros(3, np.float32)})
    assert outputs[0].tolist() == [[0, 2, 4], [6, 8, 10]]


def test_memory_on_the_device_is_used_again_until_a_run_is_stopped(session):
    runs = StoppableRuns(session, "model", "cpu")
    runs.run(feeds(2))
    first = runs._copied("y", feeds(2)["y"])
    runs.run(feeds(2, first=5))
    assert runs._copied("y", feeds(2)["y"]) is first
    runs.stop()  # a run that goes on in a thread that was given up may still write there
    assert runs._copied("y", feeds(2)["y"]) is not first
    outputs, _ = runs.run(feeds(2))
    assert outputs[0].tolist() == [[100, 201, 302], [103, 204, 305]]


def test_an_error_of_a_bound_run_has_the_runtimes_reason(session):
    with pytest.raises(PipelineError, match=r"model: ONNX Runtime fails to run it \(.*(dimension|shape|rank)"):
        StoppableRuns(session, "model", "cpu").run({"x": np.zeros((2, 5), np.float32), "y": np.zeros(3, np.float32)})


def test_providers_of_gpus_alone_have_memory_of_their_own():
    assert {row.name: row.device for row in PROVIDERS if row.device} == {
        "cuda": "cuda",
        "tensorrt": "cuda",
        "directml": "dml",
    }
    assert device_of("CPUExecutionProvider") == "" and device_of("CUDAExecutionProvider") == "cuda"
    assert stages_on("cuda") == ("host_to_device", "session_run", "device_to_host")

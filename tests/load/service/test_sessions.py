"""The service on real sessions: what it feeds them, what it refuses, and how a run is stopped."""

import contextlib

import numpy as np
import pytest
from onnx import TensorProto, helper

from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import Batch
from common.load.service import sessions
from common.load.service.sessions import Inputs, SessionService, batched_inputs, require_batches, warm_up
from common.messages.errors import PipelineError, UnusableValueError
from common.runtime.sessions.session import SessionSettings, create_session
from common.runtime.sessions.stoppable import StoppableRuns
from tests.support.models.endless_models import endless_loop


def session_of(shapes, body, outputs=("sum",)):
    """A session of one operator on float inputs of these shapes."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(body, "graph", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return create_session(model.SerializeToString(), SessionSettings(1))


@pytest.fixture
def added():
    """``rows [N, S, 3] + shift [3]``: the shift is the same for all requests."""
    return session_of({"rows": ["N", "S", 3], "shift": [3]}, [helper.make_node("Add", ["rows", "shift"], ["sum"])])


class Watched(SessionService):
    """A service that keeps what it fed."""

    def _assembled(self, worker, batch, rows):
        self.fed = super()._assembled(worker, batch, rows)
        return self.fed


def samples(count):
    shift = np.array([1, 2, 3], np.float32)
    return [{"rows": np.full((1, 5, 3), 10 + k, np.float32), "shift": shift} for k in range(count)]


def test_requests_are_stacked_cut_and_filled_up(added):
    inputs = Inputs(samples(2), batched_inputs(added), {"rows": 1})
    assert inputs.batched == {"rows"}
    service = Watched([added], "model", inputs)
    stages_ns = service.run(0, Batch(0, [4, 5, 7], 4, 2))
    assert len(stages_ns) == len(service.stages) and min(stages_ns) > 0
    assert service.fed["rows"].shape == (4, 2, 3)
    assert service.fed["rows"][:, 0, 0].tolist() == [10, 11, 11, 0]
    assert service.fed["shift"].tolist() == [1, 2, 3]
    kept = service.fed["rows"]
    service.run(0, Batch(1, [1, 2, 3], 4, 2))
    assert service.fed["rows"] is kept and kept[:, 0, 0].tolist() == [11, 10, 11, 0]


def test_replicas_share_sessions_and_have_buffers_of_their_own(added):
    service = Watched([added, added], "model", Inputs(samples(1), batched_inputs(added), {}), replicas=3)
    assert service.worker_count == 6
    service.run(0, Batch(0, [0, 1], 2, 0))
    first = service.fed["rows"]
    service.run(5, Batch(1, [2, 3], 2, 0))
    assert service.fed["rows"] is not first


def test_every_worker_is_warmed_up_with_every_size(added):
    sizes = []

    class Counted(SessionService):
        def run(self, worker, batch):
            sizes.append((worker, batch.padded_size, batch.length))
            return super().run(worker, batch)

    service = Counted([added], "model", Inputs(samples(1), batched_inputs(added), {"rows": 1}), replicas=2)
    warm_up(service, BatchPolicy(most=4, preferred=(2,), buckets=(3, 5)), 5)
    assert sizes == [(worker, size, length) for size in (1, 2, 4) for length in (3, 5) for worker in (0, 1)]


class Failing:
    """A service that fails the calls of some numbers, in the order of all calls."""

    def __init__(self, worker_count, fails):
        self.worker_count, self._fails, self.workers = worker_count, fails, []

    def run(self, worker, batch):
        self.workers.append(worker)
        if self._fails(len(self.workers) - 1):
            raise PipelineError("the service", "fails")
        return ()


@pytest.mark.parametrize(
    ("worker_count", "fails", "workers"),
    [
        (3, lambda call: call == 1, [0, 1, 2]),
        (3, lambda call: call < 4, [0, 1, 2, 0, 1]),
        (1, lambda call: call < 3, [0, 0, 0, 0]),
        (6, lambda call: call != 2, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_service_some_of_whose_calls_fail_is_warmed_up(worker_count, fails, workers):
    service = Failing(worker_count, fails)
    warm_up(service, BatchPolicy(), 0)
    assert service.workers == workers


def test_a_service_all_of_whose_calls_fail_is_not_loaded():
    service = Failing(2, lambda call: True)
    with pytest.raises(PipelineError, match="the service: fails"):
        warm_up(service, BatchPolicy(), 0)
    assert service.workers == [0, 1] * 32


def test_a_model_without_a_free_first_axis_takes_no_batches(tmp_path):
    fixed = session_of({"x": [1, 3]}, [helper.make_node("Relu", ["x"], ["sum"])])
    inputs = Inputs([{"x": np.zeros((1, 3), np.float32)}], batched_inputs(fixed), {})
    require_batches("fixed.onnx", inputs, 1)
    with pytest.raises(UnusableValueError, match=r"<batch_max>: 2, but no input of fixed.onnx .* use <replicate>"):
        require_batches("fixed.onnx", inputs, 2)


def test_batches_that_memory_does_not_hold_are_refused(tmp_path):
    inputs = Inputs([{"x": np.zeros((1, 1000), np.float32)}], frozenset({"x"}), {})
    require_batches("m.onnx", inputs, 8)
    with pytest.raises(
        UnusableValueError, match=r"<batch_max>: 65,536, but the inputs of its batches take 2.62e\+08 GB"
    ):
        require_batches("m.onnx", inputs, 65_536, 10**9)


@pytest.mark.parametrize("free", [None, 8 * 4000])
def test_free_memory_is_what_the_process_may_take_where_that_is_known(tmp_path, monkeypatch, free):
    """A control group may leave less than the host has."""
    monkeypatch.setattr(sessions, "free_bytes", lambda: free)
    inputs = Inputs([{"x": np.zeros((1, 1000), np.float32)}], frozenset({"x"}), {})
    require_batches("m.onnx", inputs, 8)
    refused = contextlib.nullcontext() if free is None else pytest.raises(UnusableValueError, match="GB are free")
    with refused:
        require_batches("m.onnx", inputs, 9)


def test_a_failing_run_says_why():
    session = session_of({"x": ["N"], "y": ["M"]}, [helper.make_node("Add", ["x", "y"], ["sum"])])
    runs = StoppableRuns(session, "model.onnx")
    runs.run({"x": np.zeros(2, np.float32), "y": np.zeros(2, np.float32)})
    with pytest.raises(PipelineError, match=r"model.onnx: ONNX Runtime fails to run it \("):
        runs.run({"x": np.zeros(2, np.float32), "y": np.zeros(3, np.float32)})


def test_a_run_is_stopped_between_two_nodes():
    """A loop without an end: only the stop ends it, and the session can run again."""
    import threading

    runs = StoppableRuns(create_session(endless_loop().SerializeToString(), SessionSettings(1)), "loop.onnx")
    x = np.zeros(3, np.float32)
    ended, stopped = threading.Event(), []

    def stop():
        while not ended.wait(0.01):  # the run may not have begun at the first call
            runs.stop()
            stopped.append(True)

    watch = threading.Thread(target=stop)
    watch.start()
    with pytest.raises(PipelineError, match=r"loop.onnx: ONNX Runtime fails to run it"):
        runs.run({"x": x, "count": np.array(10**15)})
    ended.set()
    watch.join()
    assert stopped
    runs.run({"x": x, "count": np.array(2)})

"""What a session does with its threads: the options that the runtime gets."""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

from common.messages.errors import PipelineError, UnusableValueError
from common.runtime.providers.provider_table import CPU
from common.runtime.sessions import thread_pools
from common.runtime.sessions.session import SessionSettings, create_session, run
from common.runtime.sessions.thread_pools import AFFINITIES, ThreadPools, inter_threads_of
from common.runtime.sessions.threads import available_processors
from tests.support.models.onnx_models import model


def options_of(pools, threads=3):
    options = ort.SessionOptions()
    pools.enter(options, threads)
    return options


def entry(options, name):
    try:
        return options.get_session_config_entry(name)
    except RuntimeError:  # it has none
        return None


@pytest.mark.parametrize(
    ("spinning", "stops", "intra", "inter"),
    [("runs", "1", None, None), ("always", None, "1", "1"), ("never", None, "0", "0")],
)
def test_threads_spin_while_runs_last_always_or_never(spinning, stops, intra, inter):
    options = options_of(ThreadPools(spinning=spinning))
    assert entry(options, "session.force_spinning_stop") == stops
    assert entry(options, "session.intra_op.allow_spinning") == intra
    assert entry(options, "session.inter_op.allow_spinning") == inter


def test_nodes_are_computed_one_by_one_or_several_at_once():
    one_by_one, at_once = options_of(ThreadPools()), options_of(ThreadPools(inter_threads=5))
    assert one_by_one.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    assert at_once.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert (at_once.intra_op_num_threads, at_once.inter_op_num_threads) == (3, 5)
    assert one_by_one.use_per_session_threads and at_once.use_per_session_threads


def test_the_runtime_counts_processors_from_1_and_leaves_the_caller_out():
    first = available_processors()[0]
    assert entry(options_of(ThreadPools(processors=(first,) * 3)), AFFINITIES) == f"{first + 1};{first + 1}"
    assert entry(options_of(ThreadPools(processors=(first,)), threads=1), AFFINITIES) is None


def test_a_processor_that_is_not_ours_is_refused():
    with pytest.raises(UnusableValueError, match=r"<affinity>: processor 9999 is not among those of this process"):
        options_of(ThreadPools(processors=(available_processors()[0], 9999, 10000)))


def test_a_shared_pool_cannot_be_replaced(monkeypatch):
    """Nothing here creates one: this process could never again give a session a pool of its own."""
    monkeypatch.setattr(thread_pools, "_shared", [(4, 0)])
    options = options_of(ThreadPools(shared_threads=4))
    assert not options.use_per_session_threads and options.intra_op_num_threads == 0
    with pytest.raises(PipelineError, match="has 4 threads, which cannot be changed"):
        options_of(ThreadPools(shared_threads=5))


def test_parallel_execution_has_two_nodes_at_once_unless_asked_otherwise():
    assert inter_threads_of("sequential", None, CPU) == 0
    assert inter_threads_of("parallel", None, CPU) == 3
    assert inter_threads_of("parallel", 5, CPU) == 5
    with pytest.raises(UnusableValueError, match="no effect on sequential"):
        inter_threads_of("sequential", 2, CPU)
    with pytest.raises(UnusableValueError, match="for the CPU alone"):
        inter_threads_of("parallel", 2, "CUDAExecutionProvider")


@pytest.mark.slow
@pytest.mark.parametrize(("inter_threads", "at_once"), [(0, 0), (2, 1), (3, 2)])
def test_of_the_threads_of_parallel_execution_one_waits(inter_threads, at_once, tmp_path):
    """Eight products that need nothing of each other: the caller computes none, and at most N - 1 threads do."""
    random = np.random.default_rng(3)
    weights = {f"w{index}": random.standard_normal((256, 256)).astype(np.float32) for index in range(8)}
    nodes = [helper.make_node("MatMul", ["x", name], [f"y{name}"], name) for name in weights]
    proto = model(nodes, {"x": (256, 256)}, {f"y{name}": (256, 256) for name in weights}, weights)
    settings = SessionSettings(1, pools=ThreadPools(inter_threads))
    session = create_session(proto.SerializeToString(), settings, trace_prefix=tmp_path / "trace")
    for _ in range(5):
        run(session, {"x": np.ones((256, 256), np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    callers = {event["tid"] for event in events if event["name"] == "model_run"}
    computing = {event["tid"] for event in events if event["name"].endswith("_kernel_time")}
    assert len(computing - callers) <= at_once
    assert computing == callers if not inter_threads else not computing & callers

"""What a session does with its threads: the options that the runtime gets."""

import onnxruntime as ort
import pytest

from common.messages.errors import PipelineError, UnusableValueError
from common.runtime.sessions import thread_pools
from common.runtime.sessions.thread_pools import AFFINITIES, ThreadPools
from common.runtime.sessions.threads import available_processors


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
    with pytest.raises(PipelineError, match="has 4 threads for good"):
        options_of(ThreadPools(shared_threads=5))

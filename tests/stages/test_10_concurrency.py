"""Stage 10 with sessions that share the host in every way."""

import pytest

from tests.support.processes.load_runs import load_test


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "stated"),
    [
        (("--pool", "shared"), {"thread_pool": "shared", "spinning": "always"}),
        (("--workers", "processes", "--spinning", "never"), {"session_workers": "processes", "spinning": "never"}),
        (("--execution", "parallel"), {"execution_mode": "parallel", "inter_op_threads": 3}),
        (("--affinity", "free"), {"affinity": "free", "execution_mode": "sequential", "inter_op_threads": 0}),
    ],
)
def test_the_summary_states_how_sessions_share_the_host(mlp, tmp_path, flags, stated):
    left = load_test(mlp, tmp_path, *flags, "--sessions", "2", "--rate", "100", "--duration", "300ms")
    assert {name: left.summary[name] for name in stated} == stated
    assert left.summary["completed_count"] == left.summary["sent_count"] > 5


@pytest.mark.slow
def test_sessions_in_processes_answer_with_classes(cnn, tmp_path):
    left = load_test(cnn, tmp_path, "--rate", "50", "--duration", "400ms", "--workers", "processes", "--top-k", "3")
    assert (left.batches["postprocess_us"] > 0).all() and left.summary["failed_count"] == 0

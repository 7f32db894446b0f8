"""Stage 10 with sessions that share the host in every way: what it states, what it compares."""

import pandas as pd
import pytest

from tests.support.command_lines import run_stage
from tests.support.load_runs import SCRIPT, document, load_test


@pytest.mark.parametrize(
    ("flags", "stated"),
    [
        (("--pool", "shared"), {"thread_pool": "shared", "spinning": "always"}),
        (("--workers", "processes", "--spinning", "never"), {"session_workers": "processes", "spinning": "never"}),
        (("--execution", "parallel"), {"execution_mode": "parallel", "inter_op_threads": 2}),
        (("--affinity", "free"), {"affinity": "free", "execution_mode": "sequential", "inter_op_threads": 0}),
    ],
)
def test_the_summary_states_how_sessions_share_the_host(mlp, tmp_path, flags, stated):
    left = load_test(mlp, tmp_path, *flags, "--sessions", "2", "--rate", "100", "--duration", "300ms")
    assert {name: left.summary[name] for name in stated} == stated
    assert left.summary["completed_count"] == left.summary["sent_count"] > 5


@pytest.mark.slow
def test_one_search_compares_ways_to_share_the_host(mlp, tmp_path):
    several = ("--workers", "threads,processes", "--pool", "own,shared", "--spinning", "always,never")
    flags = ("--search", "--p99-bound", "1s", "--budget", "10s", "--batch-max", "1", "--threads", "1")
    done = run_stage(SCRIPT, "--model", mlp, *several, *flags, "--duration", "200ms", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    timed = pd.read_csv(tmp_path / "load_batch_times.csv")
    kinds = ["session_workers", "thread_pool", "spinning"]
    possible = {(own, "own", spins) for own in ("threads", "processes") for spins in ("always", "never")}
    possible |= {("threads", "shared", "always")}
    found = {tuple(row) for row in timed[kinds].to_numpy()}
    best = document(tmp_path / "load_best.json")
    assert found <= possible
    assert len(possible) - len(found) == best["untimed_shape_count"]  # a slow host may not reach all of them
    searched = {tuple(row) for row in pd.read_csv(tmp_path / "load_search.csv")[kinds].to_numpy()}
    assert searched <= found and len(searched) <= 2

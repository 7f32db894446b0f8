"""Stage 10 with sessions that share the host in every way: what it states, what it refuses, what it compares."""

import json

import pandas as pd
import pytest

from models.__main__ import BUILDERS
from tests.support.command_lines import run_stage

SCRIPT = "10_load_test.py"


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    path = tmp_path_factory.mktemp("load") / "mlp.onnx"
    path.write_bytes(BUILDERS["tiny-mlp"]().SerializeToString())
    return path


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
    flags = (*flags, "--sessions", "2", "--threads", "1", "--rate", "100", "--duration", "300ms")
    done = run_stage(SCRIPT, "--model", mlp, *flags, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "load_summary.json").read_text())
    assert {name: summary[name] for name in stated} == stated
    assert summary["completed_count"] == summary["sent_count"] == len(pd.read_csv(tmp_path / "load_requests.csv")) > 5
    batches = pd.read_csv(tmp_path / "load_batches.csv")
    spent_us = batches["assemble_us"] + batches["session_run_us"]
    assert (spent_us <= batches["ended_us"] - batches["started_us"] + 1e-3).all()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--pool", "shared", "--spinning", "never"), "--spinning: never is unavailable for a shared pool"),
        (("--pool", "shared", "--affinity", "pinned"), "--affinity: pinned is unavailable for a shared pool"),
        (("--pool", "shared", "--workers", "processes"), "--pool: shared, but"),
        (("--inter-threads", "2"), "--inter-threads: has no effect on sequential execution; give --execution parallel"),
        (("--spinning", "sometimes"), "'sometimes' is not one of runs, always, never"),
        (("--spinning", "runs,never"), "give one value each, or --search"),
        (("--affinity", "pinned", "--replicate", "2"), "leave --replicate out"),
        (("--search", "--pool", "shared", "--workers", "processes"), "--pool: shared, but"),
    ],
)
def test_what_the_runtime_does_not_do_is_one_line(mlp, tmp_path, flags, text):
    done = run_stage(SCRIPT, "--model", mlp, *flags, "--threads", "1", "--duration", "100ms", "--out", tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert text in done.stderr


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
    best = json.loads((tmp_path / "load_best.json").read_text())
    assert found <= possible
    assert len(possible) - len(found) == best["untimed_shape_count"]  # a slow host may not reach all of them
    searched = {tuple(row) for row in pd.read_csv(tmp_path / "load_search.csv")[kinds].to_numpy()}
    assert searched <= found and len(searched) <= 2

"""A signal ends load tests in a process of its own, at a known event: what was measured stands there, and says so."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from tests.support.paths import ROOT

# The script as a process, in which the call of this number to this function first sends the signal.
PROGRAM = """
import importlib, itertools, os, runpy, signal, sys
module, owner, name, call, number = sys.argv[1:6]
sys.argv = sys.argv[6:]
place = importlib.import_module(module)
for part in filter(None, owner.split(".")):
    place = getattr(place, part)
calls, inner = itertools.count(1), getattr(place, name)

def signalling(*given, **named):
    if next(calls) == int(call):
        os.kill(os.getpid(), int(number))
    return inner(*given, **named)

setattr(place, name, signalling)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SERVED = ("common.load.service.sessions", "SessionService", "run")
SEARCHED, LOADED = (
    ("common.load.search.trials", "", "serve"),
    ("common.load.generator.harness", "", "serve_together"),
)
REQUESTS = ("load_requests.csv", "load_batches.csv", "load_summary.json", "load_steps.csv", "load_histogram.hlog")
ONE_LOAD = (*REQUESTS, "load_disturbances.csv")
SEARCH = ("--p99-bound", "300ms", "--budget", "2s", "--batch-max", "1")


def signalled(script, place, call, number, *flags):
    program = [sys.executable, "-c", PROGRAM, *place, str(call), str(number), script, *map(str, flags)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=300, check=False)


def incomplete(path):
    return json.loads(path.with_suffix(".meta.json").read_text())["incomplete"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 15], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("script", "flags", "files"),
    [
        ("10_load_test.py", ("--rate", "50"), ONE_LOAD),
        ("19_endurance_test.py", ("--rate", "50"), (*REQUESTS, "endurance.csv", "endurance_summary.json")),
        ("21_loadgen_scenario.py", ("--rate", "50"), REQUESTS),
        ("10_load_test.py", ("--users", "2"), ONE_LOAD),
    ],
    ids=["one load", "endurance", "LoadGen", "users"],
)
def test_a_signal_during_a_load_leaves_what_was_measured(mlp, tmp_path, script, flags, files, number):
    if script.startswith("21"):
        pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")
    flags = ("--model", mlp, "--threads", "1", "--duration", "1h", *flags, "--out", tmp_path)
    ended = signalled(script, SERVED, 20, number, *flags)
    assert ended.returncode == 0, ended.stderr
    assert "a signal ended" in ended.stderr and "Traceback" not in ended.stderr
    summary, requests = json.loads((tmp_path / "load_summary.json").read_text()), pd.read_csv(tmp_path / files[0])
    assert summary["is_interrupted"] and summary["completed_count"] >= 10
    outcomes = ("completed", "rejected", "failed", "cancelled")
    assert summary["sent_count"] == sum(summary[f"{name}_count"] for name in outcomes) == len(requests)
    assert {path.name for path in tmp_path.iterdir() if path.suffix in (".csv", ".txt")} == {
        name for name in files if name.endswith(".csv")
    }
    assert all("a signal ended" in incomplete(tmp_path / name)[0] for name in files)


@pytest.mark.slow
@pytest.mark.parametrize(("call", "trials"), [(2, 0), (4, 1)], ids=["while batches are timed", "while it searches"])
def test_a_signal_during_a_search_leaves_its_runs(mlp, tmp_path, call, trials):
    """The first two loads time batches of one request; the third one is the first run of the search."""
    (tmp_path / "load_best.json").write_text("of an earlier command")
    ended = signalled(
        "14_load_search.py", SEARCHED, call, 15, "--model", mlp, *SEARCH, "--threads", "1", "--out", tmp_path
    )
    if not trials:
        assert ended.returncode == 130 and "Traceback" not in ended.stderr
        assert (tmp_path / "load_best.json").read_text() == "of an earlier command"
        return
    assert ended.returncode == 0, ended.stderr
    assert "a signal ended the search" in ended.stderr
    assert len(pd.read_csv(tmp_path / "load_search.csv")) == trials
    assert len(pd.read_csv(tmp_path / "load_batch_times.csv")) == 1
    assert all(incomplete(tmp_path / f"{name}.csv") for name in ("load_search", "load_batch_times"))
    assert incomplete(tmp_path / "load_best.json")


@pytest.mark.slow
def test_a_signal_between_two_parts_leaves_those_before(mlp, tmp_path):
    flags = ("--rate", "100", "--duration", "1h", "--part", "300ms", "--threads", "1")
    ended = signalled("19_endurance_test.py", LOADED, 3, 15, "--model", mlp, *flags, "--out", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "a signal ended the load in part 2 of 12000" in ended.stderr
    parts = pd.read_csv(tmp_path / "endurance.csv")
    assert parts["part_index"].tolist() == [0, 1]
    assert (parts["sent_count"] == parts["completed_count"]).all()
    assert incomplete(tmp_path / "endurance.csv") and incomplete(tmp_path / "endurance_summary.json")
    assert not incomplete(tmp_path / "load_requests.csv")  # the second part is whole

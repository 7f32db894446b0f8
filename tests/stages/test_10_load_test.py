"""Stage 10 on real sessions of tiny models: what it writes, what it refuses, and what a signal leaves."""

import errno
import json
import os
import signal
import threading
import time

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper

from common.errors import PipelineError
from common.load import sessions
from models.__main__ import BUILDERS
from tests.support.command_lines import run_stage

SCRIPT = "10_load_test.py"


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    path = tmp_path_factory.mktemp("load") / "mlp.onnx"
    path.write_bytes(BUILDERS["tiny-mlp"]().SerializeToString())
    return path


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """``x [batch, seq, 3]`` times a matrix of 3 × 5: 30 FLOPs per token."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, (3, 5), np.ones(15, np.float32).tolist())
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "seq", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "seq", 5])],
        [weights],
    )
    path = tmp_path_factory.mktemp("load") / "tokens.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def load(model, out, *flags):
    done = run_stage(SCRIPT, "--model", model, "--threads", "1", *flags, "--out", out)
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "load_summary.json").read_text(), parse_constant=pytest.fail)
    return done, summary, pd.read_csv(out / "load_requests.csv"), pd.read_csv(out / "load_batches.csv")


def balances(summary, requests, batches):
    outcomes = requests["outcome"].value_counts()
    for name in ("completed", "rejected", "failed", "cancelled"):
        assert summary[f"{name}_count"] == outcomes.get(name, 0)
    assert summary["sent_count"] == len(requests) == outcomes.sum()
    served = requests.dropna(subset="load_batch_index").groupby("load_batch_index").size()
    assert served.tolist() == batches["request_count"].tolist()


def test_the_tables_of_an_open_loop(mlp, tmp_path):
    flags = ("--rate", "400", "--duration", "500ms", "--batch-max", "4", "--batch-wait", "2ms", "--seed", "3")
    done, summary, requests, batches = load(mlp, tmp_path, *flags)
    balances(summary, requests, batches)
    assert summary["completed_count"] == len(requests) > 100
    assert (summary["arrivals"], summary["batch_wait_us"], summary["provider"]) == (
        "poisson",
        2000,
        "CPUExecutionProvider",
    )
    assert batches["request_count"].max() <= 4
    for earlier, later in (("intended", "queued"), ("queued", "batched"), ("batched", "started"), ("started", "ended")):
        assert (requests[f"{earlier}_us"] <= requests[f"{later}_us"]).all(), (earlier, later)
    latency = requests["ended_us"] - requests["intended_us"]
    assert np.allclose(requests["request_latency_us"], latency, atol=1e-3)
    parts = batches["assemble_us"] + batches["session_run_us"]
    assert (parts <= batches["ended_us"] - batches["started_us"] + 1e-3).all()
    assert f"{len(requests)} requests sent (poisson): {len(requests)} completed, 0 rejected" in done.stdout
    assert (batches["padding_share"] == 0).all() and (batches["padding_flops_share"] == 0).all()


def test_requests_of_different_lengths_are_padded_to_buckets(tokens, tmp_path):
    (tmp_path / "arrivals.csv").write_text("0,3\n0,5\n0,8\n0,20\n0.001,2\n")
    flags = ("--replay", tmp_path / "arrivals.csv", "--length-dim", "seq", "--buckets", "8,32", "--batch-max", "3")
    _, summary, requests, batches = load(tokens, tmp_path, *flags, "--batch-wait", "20ms")
    balances(summary, requests, batches)
    by_length = batches.set_index("padded_length").sort_index()
    assert by_length["request_count"].tolist()[0] == 3 and by_length.index[-1] == 32
    first = batches[(batches["padded_length"] == 8) & (batches["request_count"] == 3)].iloc[0]
    assert first["padding_share"] == pytest.approx(1 - 16 / 24)
    assert first["padding_flops_share"] == pytest.approx(1 - 16 / 24)
    assert requests["request_length"].tolist() == [3, 5, 8, 20, 2]
    assert summary["arrivals"] == "replay"


def test_requests_have_lengths_of_a_distribution(tokens, tmp_path):
    flags = ("--lengths", "uniform:2,9", "--length-dim", "seq", "--rate", "200", "--duration", "1s", "--batch-max", "4")
    _, summary, requests, batches = load(tokens, tmp_path, *flags)
    balances(summary, requests, batches)
    assert {*requests["request_length"]} == {*range(2, 10)}
    longest = requests.groupby("load_batch_index")["request_length"].max()
    assert longest.tolist() == batches["padded_length"].tolist()
    done = batches["padded_request_count"] * batches["padded_length"]
    asked = requests.groupby("load_batch_index")["request_length"].sum()
    assert np.allclose(batches["padding_share"], 1 - asked.to_numpy() / done)
    assert summary["padding_share"] == pytest.approx(1 - asked.sum() / done.sum())


def test_users_of_a_closed_loop(mlp, tmp_path):
    flags = ("--users", "3", "--duration", "100ms", "--sessions", "2", "--replicate", "2", "--think", "1ms")
    _, summary, requests, batches = load(mlp, tmp_path, *flags)
    balances(summary, requests, batches)
    assert (summary["arrivals"], summary["session_count"], summary["replica_count"]) == ("closed", 2, 2)
    assert requests["intended_us"].max() < 100_000


@pytest.mark.parametrize("scenario", ["server", "single-stream", "multi-stream", "offline"])
def test_loadgen_sends_the_requests_and_judges_the_run(mlp, tmp_path, scenario):
    pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")
    flags = ("--scenario", scenario, "--rate", "300", "--duration", "300ms", "--batch-max", "8", "--p99-bound", "1s")
    done, summary, requests, batches = load(mlp, tmp_path, *flags)
    balances(summary, requests, batches)
    found = summary["loadgen_results"]
    assert summary["arrivals"] == f"LoadGen {scenario}"
    assert summary["completed_count"] == summary["sent_count"] > 0
    assert f"MLPerf LoadGen: {found['result_validity']}; its rules: " in done.stdout
    for name, rule in (("result_min_duration_met", "duration"), ("early_stopping_met", "early stopping")):
        assert (f"{rule} met" in done.stdout) == found[name]
    assert "MLPerf Results Summary" in (tmp_path / "loadgen_summary.txt").read_text()
    # Its queries begin before ours enter the queue, and end after ours are answered.
    assert found["result_max_latency_ns"] >= 1e3 * requests["request_latency_us"].max()
    assert found["result_min_latency_ns"] >= 1e3 * requests["request_latency_us"].min()
    load(mlp, tmp_path, "--rate", "300", "--duration", "50ms")
    assert not (tmp_path / "loadgen_summary.txt").exists()  # it is of no run that stands in the folder


def test_a_run_leaves_no_table_of_an_earlier_command(mlp, tmp_path):
    fast = ("--rate", "300", "--duration", "50ms")
    load(mlp, tmp_path, *fast, "--provider-matrix")
    assert (tmp_path / "provider_comparison.csv").exists()
    load(mlp, tmp_path, *fast)
    assert not [*tmp_path.glob("provider_comparison*")]
    kept = {"load_requests.csv", "load_batches.csv", "load_summary.json"}
    assert {path.name for path in tmp_path.iterdir() if ".meta." not in path.name and path.is_file()} >= kept


def test_a_signal_leaves_what_was_measured(mlp, tmp_path, monkeypatch):
    """SIGINT as Ctrl-C and a batch system's SIGTERM both raise KeyboardInterrupt in the main thread."""
    came = threading.Event()
    serve = sessions.SessionService.run

    def interrupting(self, worker, batch):
        if batch.index == 5 and not came.is_set():
            came.set()
            os.kill(os.getpid(), signal.SIGINT)
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", interrupting)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done, summary, requests, batches = load(mlp, tmp_path, "--rate", "50", "--duration", "1h")
    finally:
        signal.signal(signal.SIGINT, before)
    balances(summary, requests, batches)
    assert summary["is_interrupted"] is True and summary["completed_count"] >= 5
    assert "a signal ended the run after" in done.stderr
    sidecar = json.loads((tmp_path / "load_requests.meta.json").read_text())
    assert sidecar["incomplete"]


def test_a_slow_call_has_a_row_with_what_disturbed_it(mlp, tmp_path, monkeypatch):
    """One call of 100 waits; nothing else on the host needs to hold it up."""
    serve = sessions.SessionService.run

    def waiting(self, worker, batch):
        if batch.index == 57:
            time.sleep(0.2)
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", waiting)
    flags = ("--rate", "100", "--duration", "1s", "--arrivals", "constant")
    done, _, _, batches = load(mlp, tmp_path, *flags)
    table = pd.read_csv(tmp_path / "load_disturbances.csv").set_index("load_batch_index")
    assert table.loc[57, "latency_us"] == pytest.approx(batches["ended_us"][57] - batches["started_us"][57], abs=1)
    assert table.loc[57, "excess_us"] > 150_000
    assert (table.loc[57, "worker_index"], table.loc[57, "request_count"]) == (0, 1)
    assert "note: call 57 (+" in done.stderr


def test_two_models_are_loaded_alone_and_together(mlp, tokens, tmp_path):
    flags = ("--rate", "200", "--duration", "2s", "--with", tokens, "--with-rate", "100", "--with-dim", "seq=7")
    done, summary, requests, batches = load(mlp, tmp_path, *flags)
    balances(summary, requests, batches)  # those of the last run together
    table = pd.read_csv(tmp_path / "load_interference.csv")
    assert [*zip(table["model_role"], table["load_state"], strict=True)] == [
        ("main", "alone"),
        ("main", "together"),
        ("other", "alone"),
        ("other", "together"),
    ]
    assert table["served_model"].tolist() == ["mlp.onnx"] * 2 + ["tokens.onnx"] * 2
    outcomes = table[[f"{name}_count" for name in ("completed", "rejected", "failed", "cancelled")]].sum(axis=1)
    assert (table["sent_count"] == outcomes).all()
    assert table["sent_count"][0] == table["sent_count"][1] > 300  # the same requests
    assert table["sent_count"][2] == table["sent_count"][3] > 130
    assert table["answered_rate_factor"].notna().tolist() == [False, True, False, True]
    figures = summary["interference"]
    assert {*figures} == {"main", "other"} and figures["other"]["served_model"] == "tokens.onnx"
    assert figures["main"]["answered_rate_factor"] == pytest.approx(table["answered_rate_factor"][1], rel=1e-6)
    assert "x: together over alone" in done.stdout and "tokens" in done.stdout


def test_a_session_that_throws_in_one_of_a_hundred_requests(mlp, tmp_path, monkeypatch):
    serve = sessions.SessionService.run

    def throwing(self, worker, batch):
        if batch.index % 100 == 41:
            raise PipelineError("mlp.onnx", "one of a hundred")
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", throwing)
    _, summary, requests, batches = load(mlp, tmp_path, "--rate", "500", "--duration", "1s", "--arrivals", "constant")
    balances(summary, requests, batches)
    assert (summary["sent_count"], summary["failed_count"], summary["completed_count"]) == (500, 5, 495)
    assert summary["failure_reasons"] == {"one of a hundred": 5}
    assert requests[requests["outcome"] == "failed"]["request_latency_us"].isna().all()


def test_a_stuck_request_fails_after_the_timeout_and_the_others_balance(mlp, tmp_path, monkeypatch):
    given_up, serve = threading.Event(), sessions.SessionService.run

    def stuck(self, worker, batch):
        if batch.index == 3 and not given_up.is_set():
            given_up.wait(60)
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", stuck)
    monkeypatch.setattr(sessions.SessionService, "give_up", lambda self, worker: given_up.set())
    flags = ("--rate", "50", "--duration", "500ms", "--arrivals", "constant", "--timeout", "2s")
    _, summary, requests, batches = load(mlp, tmp_path, *flags)
    balances(summary, requests, batches)
    assert summary["failure_reasons"] == {"no answer within 2 s": 1}
    assert summary["sent_count"] == 25 and requests["outcome"][3] == "failed"
    assert given_up.is_set()


def test_a_disk_that_fills_while_tables_are_written_leaves_the_earlier_ones(mlp, tmp_path, monkeypatch):
    load(mlp, tmp_path, "--rate", "300", "--duration", "50ms")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    def fill(name, frame, file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("common.artifacts.transaction.write_csv", fill)
    done = run_stage(SCRIPT, "--model", mlp, "--rate", "300", "--duration", "50ms", "--out", tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "the disk is full; free some space or use --out FOLDER" in done.stderr
    assert {path: path.read_bytes() for path in before} == before


def test_space_for_the_tables_is_set_aside_before_the_load(mlp, tmp_path, monkeypatch):
    reserved, serve = [], sessions.SessionService.run

    def looking(self, worker, batch):
        reserved.extend(path.stat().st_size for path in tmp_path.rglob("reserve"))
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", looking)
    _, _, requests, _ = load(mlp, tmp_path, "--rate", "300", "--duration", "50ms")
    tables = sum((tmp_path / name).stat().st_size for name in ("load_requests.csv", "load_batches.csv"))
    assert max(reserved) >= 4 * 64 * len(requests) > 0
    assert max(reserved) > tables and not [*tmp_path.rglob("reserve")]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--rate", "0"), "--rate: '0' is not a finite number above 0"),
        (("--rate", "-3"), "--rate: '-3' is not a finite number above 0"),
        (("--rate", "nan"), "--rate: 'nan' is not a finite number above 0"),
        (("--rate", "1e9", "--duration", "10s"), "--rate, --duration: 1e+10 requests are more than 50,000,000"),
        (("--batch-max", "2", "--batch-preferred", "3"), "--batch-preferred: 3 is above the largest batch, 2"),
        (("--batch-preferred", "0"), "'0' is not a whole number of at least 1"),
        (("--buckets", "8,16"), "--buckets: has lengths; name the dimension that they are of: --length-dim"),
        (("--length-dim", "seq"), "--length-dim: needs requests with lengths"),
        (("--arrivals", "bursty", "--burst", "4;1"), "--burst: '4;1' is not PEAK,SHARE,SECONDS"),
        (("--arrivals", "bursty", "--burst", "20,0.1,1"), "exceeds the rate; the peak is at most 10"),
        (("--users", "2", "--replay", "x.csv"), "exclude each other"),
        (("--users", "2", "--scenario", "server"), "exclude each other"),
        (("--users", "9", "--queue-max", "4"), "--queue-max: 4 is below the 9 users"),
        (("--dim", "batch=3"), "--dim: batch=3"),
        (("--users", "2", "--with", "x.onnx"), "--users and --with-model: exclude each other"),
        (("--users", "99999999999"), "--users: 99999999999; it takes a whole number from 1 to 1,000,000"),
        (
            ("--batch-max", "99999999999999999999"),
            "--batch-max: 99999999999999999999; it takes a number of at most 65,536",
        ),
        (("--sessions", "999", "--replicate", "99"), "--sessions, --replicate: 999 sessions with 99 runs at a time"),
        (("--length-dim", ""), "--length-dim: needs requests with lengths"),
        (("--with", "tiny-mlp.onnx", "--with-rate", "0"), "--with-rate: '0' is not a finite number above 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(mlp, tmp_path, flags, problem):
    done = run_stage(SCRIPT, "--model", mlp, *flags, "--out", tmp_path)
    assert done.returncode == 2
    assert problem in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "load_summary.json").exists()


def test_a_size_that_the_other_model_lacks_is_named_by_its_flag(mlp, tmp_path):
    done = run_stage(SCRIPT, "--model", mlp, "--with", mlp, "--with-dim", "seq=3", "--out", tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "--with-dim: seq=3" in done.stderr and "no dynamic dimension 'seq'" in done.stderr


def test_another_model_without_a_name_is_one_line(mlp, tmp_path):
    done = run_stage(SCRIPT, "--model", mlp, "--with", "", "--out", tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "--with takes" in done.stderr


def test_another_model_that_is_missing_is_one_line(mlp, tmp_path):
    done = run_stage(SCRIPT, "--model", mlp, "--with", tmp_path / "x.onnx", "--out", tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "x.onnx: no such model file" in done.stderr and "--with takes" in done.stderr


def test_a_replay_whose_times_go_back_is_refused(mlp, tmp_path):
    (tmp_path / "arrivals.csv").write_text("1\n2\n1\n")
    done = run_stage(SCRIPT, "--model", mlp, "--replay", tmp_path / "arrivals.csv", "--out", tmp_path)
    assert done.returncode == 1
    assert "arrivals.csv: line 3: time goes back from 2 to 1 s" in done.stderr


def test_a_model_of_one_batch_size_names_the_remedy(tmp_path):
    model = tmp_path / "fixed.onnx"
    model.write_bytes(BUILDERS["tiny-mlp"](batch=1).SerializeToString())
    done = run_stage(SCRIPT, "--model", model, "--batch-max", "4", "--out", tmp_path)
    assert done.returncode == 2
    assert "--batch-max: 4, but no input of fixed.onnx" in done.stderr and "use --replicate" in done.stderr

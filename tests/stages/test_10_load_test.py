"""Stage 10 on real sessions of tiny models: what it writes, what it refuses, and what a signal leaves."""

import errno
import json
import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.transaction import RESERVED_BYTES, Transaction
from common.load.service import sessions
from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from tests.support.processes.command_lines import run_stage
from tests.support.processes.load_runs import SCRIPT, document, load_test
from tests.support.tables.energy import provenance


@pytest.mark.slow
def test_the_tables_of_an_open_loop(mlp, tmp_path):
    flags = ("--rate", "400", "--duration", "500ms", "--batch-max", "4", "--batch-wait", "2ms", "--seed", "3")
    left = load_test(mlp, tmp_path, *flags)
    assert left.summary["completed_count"] == len(left.requests) > 100
    assert (left.summary["arrivals"], left.summary["batch_wait_us"], left.summary["provider"]) == (
        "poisson",
        2000,
        "CPUExecutionProvider",
    )
    assert left.batches["request_count"].max() <= 4
    for earlier, later in (("intended", "queued"), ("queued", "batched"), ("batched", "started"), ("started", "ended")):
        assert (left.requests[f"{earlier}_us"] <= left.requests[f"{later}_us"]).all(), (earlier, later)
    latency = left.requests["ended_us"] - left.requests["intended_us"]
    assert np.allclose(left.requests["request_latency_us"], latency, atol=1e-3)
    assert (
        f"{len(left.requests)} requests sent (poisson): {len(left.requests)} completed, 0 rejected" in left.done.stdout
    )
    assert (left.batches["padding_share"] == 0).all() and (left.batches["padding_flops_share"] == 0).all()


@pytest.mark.slow
def test_a_load_with_a_goal_says_how_near_its_limits_are(mlp, tmp_path):
    left = load_test(mlp, tmp_path, "--rate", "300", "--duration", "4s", "--until", "p50 90%")
    share = left.summary["precision_reached_share"]
    assert left.summary["precision_goal"] == "p50 90%"
    if left.summary["validity"] != "valid":
        assert share is None and len(left.requests) > 1000  # such a load does not end early
    else:
        value, low, high = (left.summary[f"request_p50{end}_us"] for end in ("", "_low", "_high"))
        assert share == pytest.approx(max(high - value, value - low) / value)
        assert "goal p50 90%: limits within" in left.done.stdout


def test_requests_of_different_lengths_are_padded_to_buckets(tokens, tmp_path):
    (tmp_path / "arrivals.csv").write_text("0,3\n0,5\n0,8\n0,20\n0.001,2\n")
    flags = ("--replay", tmp_path / "arrivals.csv", "--length-dim", "seq", "--buckets", "8,32", "--batch-max", "3")
    left = load_test(tokens, tmp_path, *flags, "--batch-wait", "20ms")
    by_length = left.batches.set_index("padded_length").sort_index()
    assert by_length["request_count"].tolist()[0] == 3 and by_length.index[-1] == 32
    first = left.batches[(left.batches["padded_length"] == 8) & (left.batches["request_count"] == 3)].iloc[0]
    assert first["padding_share"] == pytest.approx(1 - 16 / 24)
    assert first["padding_flops_share"] == pytest.approx(1 - 16 / 24)
    assert left.requests["request_length"].tolist() == [3, 5, 8, 20, 2]
    assert left.summary["arrivals"] == "replay"


def test_batches_are_filled_up_to_the_next_preferred_size(mlp, tmp_path):
    (tmp_path / "arrivals.csv").write_text("0\n0\n0\n0\n0\n0\n0\n0.05\n")
    flags = ("--batch-max", "5", "--batch-preferred", "2", "--batch-wait", "5ms", "--batch-pad")
    batches = load_test(mlp, tmp_path, "--replay", tmp_path / "arrivals.csv", *flags).batches
    assert batches["request_count"].tolist() == [5, 2, 1]
    assert batches["padded_request_count"].tolist() == [5, 2, 2]
    assert batches["padding_share"].tolist() == batches["padding_flops_share"].tolist() == [0, 0, 0.5]


@pytest.mark.slow
def test_requests_have_lengths_of_a_distribution(tokens, tmp_path):
    flags = ("--lengths", "uniform:2,9", "--length-dim", "seq", "--rate", "200", "--duration", "1s", "--batch-max", "4")
    left = load_test(tokens, tmp_path, *flags)
    assert {*left.requests["request_length"]} == {*range(2, 10)}
    longest = left.requests.groupby("load_batch_index")["request_length"].max()
    assert longest.tolist() == left.batches["padded_length"].tolist()
    done = left.batches["padded_request_count"] * left.batches["padded_length"]
    asked = left.requests.groupby("load_batch_index")["request_length"].sum()
    assert np.allclose(left.batches["padding_share"], 1 - asked.to_numpy() / done)
    assert left.summary["padding_share"] == pytest.approx(1 - asked.sum() / done.sum())


@pytest.mark.slow
def test_a_profile_has_a_row_per_step_and_the_log_all_latencies(mlp, tmp_path):
    flags = ("--profile", "200ms:50,400ms:50-250,100ms:0,200ms:100", "--arrivals", "constant")
    left = load_test(mlp, tmp_path, *flags)
    steps = pd.read_csv(tmp_path / "load_steps.csv")
    assert (
        steps["sent_count"].tolist()
        == [10, 60, 0, 20]
        == left.requests.groupby("step_index").size().reindex(range(4), fill_value=0).tolist()
    )
    assert left.summary["arrivals"] == "constant profile"
    assert "50.0 to 250" in left.done.stdout and left.done.stdout.count("valid") >= 4
    lines = (tmp_path / "load_histogram.hlog").read_text().splitlines()
    largest_ms = max(float(line.split(",")[2]) for line in lines if line[0].isdigit())
    assert largest_ms == pytest.approx(left.requests["request_latency_us"].max() / 1e3, abs=1e-3)


@pytest.mark.slow
def test_users_of_a_closed_loop(mlp, tmp_path):
    flags = ("--users", "3", "--duration", "100ms", "--sessions", "2", "--replicate", "2", "--think", "1ms")
    left = load_test(mlp, tmp_path, *flags)
    assert (left.summary["arrivals"], left.summary["session_count"], left.summary["replica_count"]) == ("closed", 2, 2)
    assert left.requests["intended_us"].max() < 100_000


@pytest.mark.slow
def test_a_signal_leaves_what_was_measured(mlp, tmp_path, monkeypatch):
    """SIGINT as Ctrl-C and a batch system's SIGTERM both raise KeyboardInterrupt in the main thread."""
    serve = sessions.SessionService.run

    def interrupting(self, worker, batch):
        if batch.index == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", interrupting)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        left = load_test(mlp, tmp_path, "--rate", "50", "--duration", "1h")
    finally:
        signal.signal(signal.SIGINT, before)
    assert left.summary["is_interrupted"] is True and left.summary["completed_count"] >= 5
    assert "a signal ended the load after" in left.done.stderr
    sidecar = json.loads((tmp_path / "load_requests.meta.json").read_text())
    assert sidecar["incomplete"]


@pytest.mark.slow
def test_a_slow_call_has_a_row_with_what_disturbed_it(mlp, tmp_path, monkeypatch):
    """One call of 100 waits, and no warm-up is long enough to hold it: the steady part begins at 75 at the latest."""
    serve = sessions.SessionService.run

    def waiting(self, worker, batch):
        if batch.index == 90:
            time.sleep(0.2)
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", waiting)
    flags = ("--rate", "100", "--duration", "1s", "--arrivals", "constant")
    left = load_test(mlp, tmp_path, *flags)
    table = pd.read_csv(tmp_path / "load_disturbances.csv").set_index("load_batch_index")
    assert table.loc[90, "latency_us"] == pytest.approx(
        left.batches["ended_us"][90] - left.batches["started_us"][90], abs=1
    )
    assert table.loc[90, "excess_us"] > 150_000
    assert (table.loc[90, "worker_index"], table.loc[90, "request_count"]) == (0, 1)
    assert "note: call 90 (+" in left.done.stderr


@pytest.mark.slow
def test_a_session_that_throws_in_one_of_a_hundred_requests(mlp, tmp_path, monkeypatch):
    serve = sessions.SessionService.run

    def throwing(self, worker, batch):
        if batch.index % 100 == 41:
            raise PipelineError("mlp.onnx", "one of a hundred")
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", throwing)
    flags = ("--rate", "500", "--duration", "1s", "--arrivals", "constant", "--all-notes")
    left = load_test(mlp, tmp_path, *flags, code=4)
    assert (left.summary["sent_count"], left.summary["failed_count"], left.summary["completed_count"]) == (500, 5, 495)
    assert left.summary["failure_reasons"] == {"one of a hundred": 5}
    assert left.requests[left.requests["outcome"] == "failed"]["request_latency_us"].notna().all()
    assert left.summary["error_share"] == 0.01
    assert "1 % of the requests failed (5 x one of a hundred)" in left.summary["validity_reason"]
    assert "note: threshold broken: 1 % of the requests got no answer; --max-error-share is 0.1 %" in left.done.stderr
    allowed = load_test(mlp, tmp_path, *flags, "--max-error-share", "1%")
    assert allowed.summary["validity"] != "failing" and allowed.summary["max_error_share"] == 0.01


@pytest.mark.slow
def test_a_load_whose_answers_come_too_late_has_an_exit_code(mlp, tmp_path):
    """Each request waits for another one for 20 ms in vain, so no answer comes within 10."""
    load = ("--rate", "10", "--duration", "1s", "--arrivals", "constant")
    flags = (*load, "--batch-max", "9", "--batch-wait", "20ms", "--all-notes")
    asked = ("--goodput-bound", "10ms", "--min-goodput", "5")
    left = load_test(mlp, tmp_path, *flags, *asked, code=4)
    assert (left.summary["goodput_requests_per_s"], left.summary["goodput_bound_us"]) == (0, 10_000)
    assert "note: threshold broken: 0 requests/s were answered within 10 ms; --min-goodput is 5" in left.done.stderr
    assert "0 cancelled; 0 requests/s within 10.0 ms" in left.done.stdout
    wider = load_test(mlp, tmp_path, *flags, "--goodput-bound", "1h", "--min-goodput", "5")
    assert wider.summary["goodput_requests_per_s"] == pytest.approx(wider.summary["offered_requests_per_s"])


def test_a_stuck_request_fails_after_the_timeout_and_the_others_balance(mlp, tmp_path, monkeypatch):
    given_up, serve = threading.Event(), sessions.SessionService.run

    def stuck(self, worker, batch):
        if batch.index == 3 and not given_up.is_set():
            given_up.wait(60)
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", stuck)
    monkeypatch.setattr(sessions.SessionService, "give_up", lambda self, worker: given_up.set())
    flags = ("--rate", "50", "--duration", "500ms", "--arrivals", "constant", "--timeout", "2s")
    left = load_test(mlp, tmp_path, *flags, code=4)
    assert left.summary["failure_reasons"] == {"no answer within 2 s": 1}
    assert left.summary["sent_count"] == 25 and left.requests["outcome"][3] == "failed"
    assert left.summary["validity"] in ("failing", "invalid") and left.requests["request_latency_us"][3] >= 2e6
    assert given_up.is_set()


@pytest.mark.slow
def test_a_disk_that_fills_while_tables_are_written_leaves_the_earlier_ones(mlp, tmp_path, monkeypatch):
    load_test(mlp, tmp_path, "--rate", "300", "--duration", "50ms")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    def fill(name, frame, file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("common.artifacts.checks.schema.write_csv", fill)
    done = run_stage(SCRIPT, "--model", mlp, "--rate", "300", "--duration", "50ms", "--out", tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "the disk is full; free some space or use --out FOLDER" in done.stderr
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
@pytest.mark.parametrize("brings_images", [False, True])
def test_space_for_the_tables_is_set_aside_before_the_load(cnn, photos, tmp_path, monkeypatch, brings_images):
    reserved, serve = [], sessions.SessionService.run

    def looking(self, worker, batch):
        reserved.extend(path.stat().st_size for path in tmp_path.rglob("reserve"))
        return serve(self, worker, batch)

    monkeypatch.setattr(sessions.SessionService, "run", looking)
    images = ("--images", photos, "--top-k", "3") if brings_images else ()
    load_test(cnn, tmp_path, "--rate", "300", "--duration", "50ms", *images)
    tables = sum((tmp_path / name).stat().st_size for name in ("load_requests.csv", "load_batches.csv"))
    assert max(reserved) - RESERVED_BYTES > tables and not [*tmp_path.rglob("reserve")]


SETUP = {
    **{"batch_max_count": 3, "batch_wait_us": 2000.0, "session_count": 2, "threads": 1, "session_workers": "threads"},
    **{"thread_pool": "own", "execution_mode": "sequential", "inter_op_threads": 0, "spinning": "never"},
    "affinity": "free",
}


def add_best(folder, model, rate_hz, bound_us):
    """Write what a search of a model leaves."""
    model_id = load_model(model, {}, symbolic=True).model_id
    found = {"best_by": {"rate": {**SETUP, "sustained_requests_per_s": rate_hz}}, "bound_us": bound_us}
    empty = {"runner_up": {}, "nearest": {}, "prediction_doubts": [], "invalid_trial_reason": None}
    counts = dict.fromkeys(("untimed_shape_count", "trial_count", "invalid_trial_count", "failing_trial_count"), 0)
    empty |= {"failing_trial_reason": None, "max_error_share": 0.001}
    margins = dict.fromkeys(("margin_share", "margin_low_share", "margin_high_share"))
    columns = (column.name for column in ARTIFACTS["load_search"].columns)
    trial = {**dict.fromkeys(columns), **SETUP, "trial_index": 0, "trial_kind": "search", "validity": "valid"}
    trial |= {"answered_requests_per_s": 1.0, "offered_requests_per_s": 1.0, "prediction_doubt": ""}
    trial |= {"is_within_bound": True, "is_on_load_front": True, "goodput_requests_per_s": 1.0, "failed_count": 0}
    with Transaction(folder, provenance("14_load_search.py", model_id=model_id)) as transaction:
        transaction.add_rows("load_search", [trial])
        transaction.add_document("load_best", {**found, **empty, **counts, **margins, "is_bound_met": True})


@pytest.mark.slow
def test_the_configuration_of_a_search_is_loaded(mlp, cnn, tmp_path):
    add_best(tmp_path, mlp, rate_hz=200.0, bound_us=1.0)
    done = run_stage(SCRIPT, "--model", mlp, "--best", "--duration", "300ms", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    summary = document(tmp_path / "load_summary.json")
    assert {name: summary[name] for name in SETUP} == SETUP
    assert summary["arrivals"] == "poisson" and 20 < summary["sent_count"] < 120
    assert summary["goodput_bound_us"] == 1.0  # that of the search
    if summary["validity"] == "valid" and summary["request_p99_us"] is not None:
        assert "the load with the best configuration did not hold its rate: its p99 is" in done.stderr
    other = run_stage(SCRIPT, "--model", cnn, "--best", "--out", tmp_path)
    assert other.returncode == 3 and other.stderr.count("\n") == 1
    assert "load_best.json: of another model; run 14_load_search.py with it" in other.stderr

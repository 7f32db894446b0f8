"""Models as tasks: each is measured alone on a host, which its row names, and a model that fails has a row, too."""

import fcntl
import os
import pickle
import socket
import threading
from pathlib import Path

import onnx
import pytest

from common.load import fleet
from common.load.fleet import COLUMNS, Bound, ModelTask, tasks_of
from common.load.requests.batching import BatchPolicy
from common.load.requests.demand import Demand
from common.load.service.served_model import SessionShape
from common.runtime.sessions.session import SessionSettings
from models.__main__ import BUILDERS


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "mlp.onnx"
    path.write_bytes(BUILDERS["tiny-mlp"]().SerializeToString())
    return path


def of_sessions(count):
    return SessionShape(count, SessionSettings(0))


def task_of(path, sent=None, **changed):
    asked = {"demand": Demand(200.0, 0.2, seed=3), "policy": BatchPolicy(), "shape": of_sessions(1), **changed}
    return ModelTask(path, sent or {}, {}, {}, **asked)


def test_a_row_names_the_host_and_balances(mlp):
    row = task_of(mlp, shape=of_sessions(2)).measured()
    assert tuple(row) == COLUMNS
    assert (row["hostname"], row["model_file"]) == (socket.gethostname(), str(mlp))
    assert row["sent_count"] == row["completed_count"] > 10
    assert row["sent_count"] == sum(row[f"{name}_count"] for name in ("completed", "rejected", "failed", "cancelled"))
    assert (row["session_count"], row["session_workers"], row["processor_count"] >= 1) == (2, "threads", True)


def test_a_worker_without_the_file_is_sent_one(mlp):
    (task,) = tasks_of([mlp], [{}], task_of(Path()), is_sent=True)
    elsewhere = pickle.loads(pickle.dumps(task))
    assert elsewhere.sent == {"mlp.onnx": mlp.read_bytes()}
    moved = task_of(Path("no/such/folder/mlp.onnx"), elsewhere.sent)
    assert moved.measured()["completed_count"] > 10


def with_weights_at(folder, location):
    """A model whose weights are in a file of their own."""
    path = folder / "apart.onnx"
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    model, kept = BUILDERS["tiny-mlp"](), {"save_as_external_data": True, "size_threshold": 0}
    onnx.save_model(model, path, location=location, **kept)
    return path


def test_weights_in_a_file_of_their_own_are_sent_too(tmp_path):
    path = with_weights_at(tmp_path, "apart.bin")
    (task,) = tasks_of([path], [{}], task_of(Path()), is_sent=True)
    assert task.sent == {name: (tmp_path / name).read_bytes() for name in ("apart.onnx", "apart.bin")}
    moved = task_of(Path("no/such/folder/apart.onnx"), task.sent)
    assert moved.measured()["completed_count"] > 10


def test_weights_that_are_missing_are_told_by_whoever_loads_the_model(tmp_path):
    path = with_weights_at(tmp_path, "apart.bin")
    (tmp_path / "apart.bin").unlink()
    (task,) = tasks_of([path], [{}], task_of(Path()), is_sent=True)
    assert [*task.sent] == ["apart.onnx"]
    row = task.measured()
    assert (row["validity"], row["sent_count"]) == ("invalid", 0) and "External data" in row["validity_reason"]


@pytest.mark.parametrize("place", ["../secret.bin", "{}/secret.bin"])
def test_a_file_outside_of_the_model_s_folder_is_never_sent(tmp_path, place):
    path = with_weights_at(tmp_path, "apart.bin")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        next(entry for entry in tensor.external_data if entry.key == "location").value = place.format(tmp_path)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "apart.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "secret.bin").write_bytes((tmp_path / "apart.bin").read_bytes())
    (task,) = tasks_of([inner / "apart.onnx"], [{}], task_of(Path()), is_sent=True)
    assert [*task.sent] == ["apart.onnx"]


def test_a_model_that_cannot_be_served_has_a_row_with_the_reason(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    row = task_of(tmp_path / "bad.onnx").measured()
    assert tuple(row) == COLUMNS
    assert row["validity"] == "invalid" and row["hostname"] == socket.gethostname()
    assert "is not an ONNX model" in row["validity_reason"]
    assert row["sent_count"] == 0 and row["request_p99_us"] is None


def test_a_host_measures_one_model_at_a_time(mlp, tmp_path, monkeypatch):
    """Whoever holds the lock is another worker of this host."""
    monkeypatch.setattr(fleet.tempfile, "tempdir", str(tmp_path))
    began, rows = threading.Event(), []
    load = fleet.served_model

    def loading(*args, **kwargs):
        began.set()
        return load(*args, **kwargs)

    monkeypatch.setattr(fleet, "served_model", loading)
    with (tmp_path / f"onnx-profile-{os.getuid()}.lock").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=lambda: rows.append(task_of(mlp).measured()))
        waiting.start()
        assert not began.wait(0.3)
    waiting.join()
    assert began.is_set() and rows[0]["completed_count"] > 10


@pytest.mark.slow
def test_a_search_on_the_host_chooses_rate_and_set_up(mlp):
    row = task_of(mlp, bound=Bound(1e6, 2.0, 2)).measured()
    assert row["batch_max_count"] in (1, 2) and row["session_count"] * row["threads"] >= 1
    assert row["offered_requests_per_s"] != pytest.approx(200.0, rel=0.2)

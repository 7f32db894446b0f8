"""A load test that posts to a real dashboard, over a real socket."""

import json

import pytest

for package in ("fastapi", "uvicorn", "websockets"):
    pytest.importorskip(package, reason="needs requirements-dashboard.txt: make test-dashboard")

from tests.support.processes.live_server import TOKEN, Running  # noqa: E402
from tests.support.processes.load_runs import load_test, refused  # noqa: E402


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dashboard")
    with Running(folder, is_attached=True) as running:
        (folder / "dashboard.token").write_text(TOKEN)
        running.token_file = folder / "dashboard.token"
        yield running


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let a busy host take its time: no message is lost to the clock."""
    monkeypatch.setattr("common.load.telemetry.TIMEOUT_S", 60)


def test_the_dashboard_counts_every_request_of_the_load(mlp, dashboard, tmp_path):
    flags = ("--post", f"http://127.0.0.1:{dashboard.port}", "--post-token", dashboard.token_file)
    left = load_test(mlp, tmp_path, "--rate", "300", "--duration", "500ms", "--batch-max", "4", *flags)
    assert dashboard.source.model == mlp.name
    assert dashboard.source.feed.count == left.summary["completed_count"]
    _, told_ns, _ = dashboard.source.feed.runs(0)
    expected_us = left.requests["request_latency_us"]
    assert sorted(told_ns / 1e3) == pytest.approx(sorted(expected_us), abs=1e-3)
    assert "messages to the dashboard were lost" not in left.done.stderr
    assert TOKEN not in (tmp_path / "load_summary.meta.json").read_text()


def test_a_wrong_token_ends_before_the_load(mlp, dashboard, tmp_path):
    (tmp_path / "dashboard.token").write_text("wrong-" * 8)
    text = refused(mlp, tmp_path, "--post", f"http://127.0.0.1:{dashboard.port}")
    assert "answers 401: the token is wrong; give --post-token FILE" in text


def test_a_dashboard_with_a_model_of_its_own_takes_no_load(mlp, tmp_path):
    with Running(tmp_path, is_attached=False) as running:
        (tmp_path / "dashboard.token").write_text(TOKEN)
        text = refused(mlp, tmp_path, "--post", f"http://127.0.0.1:{running.port}")
    assert "the dashboard runs a model of its own; start it with 12_dashboard.py --attach" in text


def test_the_form_of_a_message_is_the_one_that_is_documented(dashboard):
    """The dashboard refuses a field that it does not know."""
    assert dashboard.post({"model": "x", "durations_us": [], "failed_run_count": 0, "figures": {}})[0] == 200
    status, content, _ = dashboard.post({"model": "x", "unknown": 1})
    assert status == 422 and json.loads(content)

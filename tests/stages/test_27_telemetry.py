"""Streams of tokens and a loop of generation that post to a real dashboard, over a real socket."""

from __future__ import annotations

import importlib
import json

import pandas as pd
import pytest

for package in ("fastapi", "uvicorn", "websockets"):
    pytest.importorskip(package, reason="needs requirements-dashboard.txt: make test-dashboard")

from models.__main__ import BUILDERS, save  # noqa: E402
from tests.support.processes.live_server import TOKEN, Running  # noqa: E402

STREAMS, GENERATE = (importlib.import_module(name) for name in ("27_token_streams", "26_generation"))


@pytest.fixture
def dashboard(tmp_path, monkeypatch):
    monkeypatch.setattr("common.load.telemetry.TIMEOUT_S", 60)  # no message is lost to the clock
    monkeypatch.setattr("common.monitor.monitor.POSTED_S", 3600)
    monkeypatch.setattr("common.generation.streams.live.WINDOW_S", 3600)
    (tmp_path / "dashboard.token").write_text(TOKEN)
    with Running(tmp_path, is_attached=True) as running:
        yield running


def posted(stage, dashboard, tmp_path, *flags):
    save(BUILDERS["tiny-decoder"](), tmp_path / "m.onnx")
    common = ("--model", str(tmp_path / "m.onnx"), "--out", str(tmp_path), "--threads", "1")
    assert stage.main([*common, "--post", f"http://127.0.0.1:{dashboard.port}", *flags]) == 0
    return dashboard.source


def shown(dashboard, name):
    """The figure of the first tick that has it."""
    with dashboard.connect() as connection:
        for _ in range(1000):
            if (value := json.loads(connection.recv()).get("figures", {}).get(name)) is not None:
                return value
    raise AssertionError(f"no tick has {name}")


def test_the_dashboard_counts_every_stream_and_shows_tokens(dashboard, tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(f"0,4,{5 + index}\n" for index in range(9)), encoding="utf-8")
    source = posted(STREAMS, dashboard, tmp_path, "--replay", str(trace))
    assert source.model == "m.onnx"
    assert source.feed.count == 9  # the warm-up is not among them
    requests = pd.read_csv(tmp_path / "stream_requests.csv")
    _, told_ns, _ = source.feed.runs(0)
    assert sorted(told_ns / 1e3) == pytest.approx(sorted(requests["request_latency_us"]), abs=1e-3)
    gauges = source.gauges
    assert gauges["output_tokens_per_s"] > 0
    assert 0 < gauges["time_to_first_token_us"] <= requests["time_to_first_token_us"].mean()  # entered a little earlier
    assert (gauges["in_flight_count"], gauges["queue_depth_count"]) == (0, 0)
    assert shown(dashboard, "output_tokens_per_s") == pytest.approx(gauges["output_tokens_per_s"], rel=1e-4)
    assert b"onnx_output_tokens_per_second " in dashboard.ask("/metrics")[1]
    assert "messages to the dashboard were lost" not in capsys.readouterr().err


def test_the_loop_of_generation_posts_its_answers(dashboard, tmp_path):
    source = posted(GENERATE, dashboard, tmp_path, "--prompt", "5", "--tokens", "4", "--answers", "3")
    tokens = pd.read_csv(tmp_path / "generation.csv")
    answers_us = tokens.groupby("answer_index")["token_us"].sum()
    _, told_ns, _ = source.feed.runs(0)
    assert sorted(told_ns / 1e3) == pytest.approx(sorted(answers_us), abs=1e-3)
    decode_us = tokens[tokens["token_index"] > tokens["token_index"].min()]["token_us"]
    assert source.gauges["inter_token_us"] == pytest.approx(decode_us.mean())
    assert "offered_runs_per_s" not in source.gauges


def test_the_figures_have_documented_names(dashboard):
    figures = {"output_tokens_per_s": 41.5, "time_to_first_token_us": 9e4, "inter_token_us": 2e4}
    assert dashboard.post({"figures": figures})[0] == 200
    assert {name: shown(dashboard, name) for name in figures} == figures

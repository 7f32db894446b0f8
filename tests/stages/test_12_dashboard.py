"""The dashboard as a command: what it refuses, and, where its server is installed, a whole life of it."""

from __future__ import annotations

import http.client
import importlib.util
import json
import sys

import onnx
import pytest

from common.artifacts.catalogue import ARTIFACTS
from models.small.tiny import build_tiny_mlp
from tests.support.models.endless_models import endless_loop
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage
from tests.support.processes.dashboard_process import dashboard

SCRIPT = "12_dashboard.py"
needs_server = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn", "websockets")),
    reason="needs requirements-dashboard.txt: make test-dashboard",
)


def test_without_its_server_it_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    done = run_stage(SCRIPT, "--out", tmp_path)
    assert done.returncode == 1
    expected = "fastapi: is not installed; run: python -m pip install -r requirements-dashboard.txt"
    assert done.stderr == f"{SCRIPT}: error: {expected}\n"
    assert not any(tmp_path.iterdir())
    assert (ROOT / "requirements-dashboard.txt").is_file()


@needs_server
@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--public", "host.example"), "needs TLS; give --tls-cert FILE and --tls-key FILE"),
        (("--public", "host.example", "--tls-cert", "{file}", "--tls-key", "{file}"), "needs a token in"),
        (("--tls-cert", "{file}"), "is one of two files"),
        (("--tls-cert", "{file}.missing", "--tls-key", "{file}"), "is no file"),
        (("--attach", "--alarms", "{file}"), "is missing"),
        (("--attach", "--port", "70000"), "is above 65535"),
        (("--model", "{file}", "--port", "0"), "ONNX"),
        (("--model", "missing.onnx", "--port", "0"), "missing.onnx"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path, flags, problem):
    file = tmp_path / "file.yaml"
    file.write_text("x: 1\n")
    done = run_stage(SCRIPT, *(flag.format(file=file) for flag in flags), "--out", tmp_path / "out")
    assert done.returncode in (1, 2)
    assert problem in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out" / "dashboard_summary.json").exists()


@needs_server
@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--optimization", "foo"), "--optimization: 'foo' is no level; it takes disable, "),
        (("--provider", "foo"), "--provider: "),
        (("--dim", "bach=1"), "bach"),
        (("--input", "input=missing.npy"), "missing.npy"),
        (("--out", "{file}"), "cannot be made (File exists); give another --out"),
        (("--out", "{file}/out"), "cannot be made (Not a directory); give another --out"),
    ],
)
def test_what_the_model_cannot_be_run_with_is_one_line(tmp_path, flags, problem):
    model = tmp_path / "tiny-mlp.onnx"
    onnx.save(build_tiny_mlp(), model)
    given = ("--model", model, "--dim", "batch=1", "--port", "0", "--out", tmp_path / "out")
    done = run_stage(SCRIPT, *given, *(flag.format(file=model) for flag in flags))
    assert done.returncode in (1, 2)
    assert problem in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""  # no address of a server that will not answer


@needs_server
@pytest.mark.parametrize("checks", [(), ("--check",)])
def test_a_dimension_without_a_size_is_refused_before_the_address_is_printed(tmp_path, checks):
    model = tmp_path / "tiny-mlp.onnx"
    onnx.save(build_tiny_mlp(), model)
    done = run_stage(SCRIPT, "--model", model, "--port", "0", "--out", tmp_path / "out", *checks)
    assert (done.returncode, done.stdout) == (2, "")
    assert "add for example --dim batch=1" in done.stderr
    assert not (tmp_path / "out").exists()


@needs_server
def test_the_first_signal_ends_a_model_that_never_ends(tmp_path):
    """It runs in the thread of the model, and :func:`dashboard` looks how it ends."""
    model = tmp_path / "endless.onnx"
    onnx.save(endless_loop(2**60), model)
    with dashboard("--model", model, "--dim", "N=2", "--threads", "1", "--out", tmp_path / "out") as (address, _):
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        connection.request("GET", "/healthz")
        assert json.loads(connection.getresponse().read())["status"] == "waiting"
        connection.close()


@needs_server
def test_a_run_beyond_the_time_limit_ends_the_dashboard_with_one_line(tmp_path):
    model = tmp_path / "endless.onnx"
    onnx.save(endless_loop(2**60), model)
    flags = ("--model", model, "--dim", "N=2", "--threads", "1", "--port", "0", "--out", tmp_path / "out")
    done = run_stage(SCRIPT, *flags, "--run-timeout", "300ms")
    assert done.returncode == 1
    assert "a run took more than 0.3 s" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@needs_server
def test_from_its_start_to_ctrl_c(tmp_path):
    model, out = tmp_path / "tiny-mlp.onnx", tmp_path / "out"
    onnx.save(build_tiny_mlp(), model)
    flags = ("--model", model, "--dim", "batch=1", "--avg-power-w", "20", "--out", out)
    with dashboard(*flags) as (address, token):
        host, tick = address.removeprefix("http://"), {"figures": {}}
        while (tick["figures"].get("whole_run_count") or 0) < 100:  # enough for a median with its limits
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.request("GET", "/api/metrics/current", headers={"Authorization": f"Bearer {token}"})
            tick = {"figures": {}, **json.loads(connection.getresponse().read())}
            connection.close()
    figures = tick["figures"]
    assert tick["model"] == "tiny-mlp.onnx"
    assert figures["energy_per_run_j"] == pytest.approx(20 / figures["throughput_runs_per_s"], rel=1e-4)
    summary = json.loads((out / ARTIFACTS["dashboard_summary"].file).read_text())
    assert summary["run_count"] >= figures["whole_run_count"]
    assert summary["min_us"] <= summary["p50_us"] <= summary["max_us"]
    assert (out / "dashboard.token").read_text().strip() == token
    assert (out / "dashboard.token").stat().st_mode & 0o777 == 0o600
    assert token not in (out / "dashboard_summary.meta.json").read_text()

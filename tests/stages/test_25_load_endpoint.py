"""Stage 25 on endpoints: a real Triton by HTTP and gRPC, and one that fails, dies or hangs as a test scripts it."""

import json
import threading

import pandas as pd
import pytest

from common.artifacts.catalogue import ARTIFACTS
from tests.support.processes.command_lines import run_stage
from tests.support.processes.endpoints import good, scripted, triton, triton_missing
from tests.support.processes.load_runs import document

SCRIPT = "25_load_endpoint.py"
TABLES = ("load_endpoint", "load_requests", "load_batches", "load_summary", "load_steps", "load_histogram")
SHORT = ("--rate", "50", "--duration", "500ms", "--connections", "2")


def load(url, out, *flags):
    return run_stage(SCRIPT, "--endpoint", url, "--served-model", "double", *flags, "--out", out)


def summary_of(done, out):
    """Check the tables of a load, and that the exit code says whether too many requests had no answer."""
    assert done.returncode in (0, 4), done.stderr
    for name in TABLES:
        assert (out / ARTIFACTS[name].file).is_file(), name
    summary = document(out / "load_summary.json")
    assert done.returncode == (4 if summary["error_share"] > summary["max_error_share"] else 0)
    requests = pd.read_csv(out / "load_requests.csv")
    counts = requests["outcome"].value_counts()
    assert summary["sent_count"] == len(requests)
    assert all(summary[f"{name}_count"] == counts.get(name, 0) for name in ("completed", "failed", "cancelled"))
    return summary, requests


@pytest.mark.slow
def test_the_tables_of_an_endpoint(tmp_path):
    with scripted() as endpoint:
        done = load(endpoint.url, tmp_path, *SHORT, "--batch-max", "2")
    summary, requests = summary_of(done, tmp_path)
    assert summary["completed_count"] == len(requests) > 0
    assert (summary["endpoint"], summary["served_model"], summary["session_count"]) == (endpoint.url, "double", 2)
    assert summary["provider"] is None and summary["threads"] is None
    assert (requests["round_trip_us"] > 0).all() and requests["session_run_us"].isna().all()
    assert not [name for name in summary["standard_metrics"] if "_compute_" in name]
    assert "nv_inference_request_duration_us" in summary["standard_metrics"]
    assert document(tmp_path / "load_endpoint.json")["tensor_encoding"] == "text"
    assert "round trip" in done.stdout


@pytest.mark.slow
def test_an_endpoint_that_dies_amid_the_load_leaves_what_was_measured(tmp_path):
    """It answers the warm-up of two connections and eight requests, and then ends every connection."""
    left = [None] * 10

    def dying(call):
        return good(call) if left and left.pop() is None else None

    with scripted(dying) as endpoint:
        summary, _ = summary_of(load(endpoint.url, tmp_path, *SHORT, "--arrivals", "constant"), tmp_path)
    assert (summary["completed_count"], summary["failed_count"]) == (8, 17)
    assert all("no answer" in reason for reason in summary["failure_reasons"])


@pytest.mark.slow
def test_an_endpoint_most_of_whose_calls_fail_is_loaded_from_its_first_call_on(tmp_path):
    """The first eleven calls of twelve fail, those of the warm-up among them."""
    lock, calls = threading.Lock(), []

    def mostly_failing(call):
        with lock:
            calls.append(call)
            return good(call) if len(calls) % 12 == 0 else (500, {}, b"")

    with scripted(mostly_failing) as endpoint:
        summary, requests = summary_of(load(endpoint.url, tmp_path, *SHORT), tmp_path)
    assert summary["validity"] == "failing"
    assert summary["completed_count"] == len(requests) // 12


@pytest.mark.slow
def test_an_error_status_and_a_malformed_answer_fail_their_requests(tmp_path):
    replies = [(503, {}, b'{"error": "full"}'), (200, {}, b"<html>"), (200, {}, b'{"model_name": "x", "outputs": []}')]
    lock, calls = threading.Lock(), []

    def answer(call):
        with lock:
            calls.append(call)
            return replies.pop() if len(calls) > 4 and replies else good(call)

    with scripted(answer) as endpoint:
        summary, _ = summary_of(load(endpoint.url, tmp_path, *SHORT), tmp_path)
    assert summary["failed_count"] == 3
    assert set(summary["failure_reasons"]) == {
        "answers 503: full",
        "malformed answer: no JSON",
        "malformed answer: it is of model x, not of double",
    }


@pytest.mark.slow
def test_a_call_that_hangs_is_given_up_after_the_timeout(tmp_path):
    lock, calls, ends = threading.Lock(), [], threading.Event()

    def hanging(call):
        with lock:
            calls.append(call)
            number = len(calls)
        if number == 4:
            ends.wait()
        return good(call)

    with scripted(hanging) as endpoint:
        done = load(endpoint.url, tmp_path, *SHORT, "--timeout", "100ms")
        ends.set()
    summary, _ = summary_of(done, tmp_path)
    assert summary["failure_reasons"] == {"no answer within 0.1 s": 1}


@pytest.mark.slow
def test_a_token_is_sent_and_written_nowhere(tmp_path):
    (tmp_path / "token.txt").write_text("s3cret")
    with scripted() as endpoint:
        done = load(endpoint.url, tmp_path / "out", *SHORT, "--endpoint-token", tmp_path / "token.txt")
        assert {call.headers.get("authorization") for call in endpoint.calls} == {"Bearer s3cret"}
    assert done.returncode == 0, done.stderr
    for file in (tmp_path / "out").iterdir():
        assert b"s3cret" not in file.read_bytes(), file
    assert "s3cret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("flags", "code", "line"),
    [
        ((), 2, "--endpoint: is missing; give the endpoint's address and the model's name there"),
        (("--endpoint", "http://me:s3cret@h", "--served-model", "m"), 2, "perhaps a secret"),
        (("--endpoint", "tcp://h", "--served-model", "m"), 2, "--endpoint: 'tcp://h' is no address; such as http://"),
        (("--endpoint", "http://h"), 2, "--served-model: is missing"),
        (("--endpoint", "grpc://h", "--served-model", "m", "--tensors", "text"), 2, "--tensors: text, but gRPC"),
        (("--endpoint", "http://h", "--served-model", "m", "--connections", "2000"), 2, "--connections: 2000 are too"),
    ],
)
def test_what_is_refused(tmp_path, flags, code, line):
    done = run_stage(SCRIPT, *flags, "--out", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert line in done.stderr and "s3cret" not in done.stderr
    assert not [*tmp_path.glob("load_*")]


@pytest.mark.parametrize(
    ("script", "flags", "code", "line"),
    [
        ({}, ("--served-model", "triple"), 2, "--served-model: triple is no model of http://127"),
        ({}, ("--dim", "image.1=5"), 2, "--dim: image.1 is no free axis of an input; free axes are image.0"),
        ({}, ("--dim", "image.0=2", "--batch-max", "2"), 2, "leave it out; --connections are concurrent calls"),
        ({"metadata": b"<html>"}, (), 1, "malformed answer: no JSON; is a server with KServe's v2 protocol there?"),
        ({"metadata": {"name": "other", "inputs": [], "outputs": []}}, (), 1, "answers for the model other, not for"),
        ({"infer": lambda call: (400, {}, b'{"error": "no"}')}, (), 1, "answers 400: no"),
        ({"infer": lambda call: (200, {}, b"{}")}, (), 1, "malformed answer: no outputs"),
    ],
)
def test_an_endpoint_that_does_not_serve_the_model(tmp_path, script, flags, code, line):
    with scripted(**script) as endpoint:
        done = run_stage(SCRIPT, "--endpoint", endpoint.url, "--served-model", "double", *flags, "--out", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert line in done.stderr
    assert not [*tmp_path.glob("load_*")]


def test_an_absent_endpoint(tmp_path):
    with scripted() as endpoint:
        pass
    done = load(endpoint.url, tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"{endpoint.url}: no answer (Connection refused); is a server" in done.stderr


# --- a real server --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if reason := triton_missing():
        pytest.skip(reason)
    pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed; make test-slow sets it up")
    with triton(tmp_path_factory.mktemp("triton")) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "tensors"), [("http", "auto"), ("http", "text"), ("grpc", "auto")])
def test_triton_answers_by_http_and_grpc(server, tmp_path, scheme, tensors):
    url = getattr(server, scheme)
    flags = ("--dim", "image.2=5", "--batch-max", "4", "--tensors", tensors, "--profile", "300ms:50,300ms:50-150")
    summary, requests = summary_of(load(url, tmp_path, *SHORT[4:], *flags), tmp_path)
    assert summary["completed_count"] == len(requests) > 20
    assert summary["endpoint"] == url
    said = document(tmp_path / "load_endpoint.json")
    assert said["tensor_encoding"] == ("text" if tensors == "text" else "bytes")
    assert said["endpoint_inputs"] == {"image": "FP32 [-1, 3, -1]"} and said["endpoint_platform"] == "python"
    assert (requests["round_trip_us"] <= requests["ended_us"] - requests["started_us"]).all()
    assert pd.read_csv(tmp_path / "load_steps.csv")["sent_count"].sum() == len(requests)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_what_triton_refuses(server, tmp_path, scheme):
    url = getattr(server, scheme)
    for flags, code, line in (
        (("--dim", "image.2=13"), 1, "thirteen columns bring bad luck"),
        (("--dim", "image.2=5", "--batch-max", "9"), 1, "batch"),
        (("--dim", "image.1=5"), 2, "free axes are image.0, image.2"),
        ((), 2, "axis 2 of input image [-1, 3, -1] has no size; give --dim image.2=N"),
        (("--served-model", "triple"), 2, "--served-model: triple is no model of"),
    ):
        done = load(url, tmp_path, *flags)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert line in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_triton_that_is_killed_amid_the_load(server, tmp_path, scheme, monkeypatch):
    """It is killed when the twentieth batch is sent; what came before stays, and the rest failed."""
    from common.load.endpoint.endpoint_service import EndpointService

    run = EndpointService.run
    with triton(tmp_path / "server") as doomed:

        def killing(self, worker, batch):
            if batch.index == 20:
                doomed.process.kill()
                doomed.process.wait()
            return run(self, worker, batch)

        monkeypatch.setattr(EndpointService, "run", killing)
        url = getattr(doomed, scheme)
        flags = ("--dim", "image.2=5", "--rate", "50", "--duration", "1s", "--arrivals", "constant")
        done = load(url, tmp_path / "out", *flags, "--connections", "1")
    summary, _ = summary_of(done, tmp_path / "out")
    assert summary["completed_count"] == 20 and summary["failed_count"] == 30
    assert all("no answer" in reason for reason in summary["failure_reasons"])
    assert json.loads((tmp_path / "out" / "load_summary.meta.json").read_text())["stage"] == SCRIPT

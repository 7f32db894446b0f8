"""Connections to an endpoint, against one whose answers are scripted byte by byte."""

import json
import threading

import pytest

from common.load.endpoint.address import Address, address_of
from common.load.endpoint.by_grpc import GrpcCaller
from common.load.endpoint.by_http import HttpCaller
from common.load.endpoint.endpoint_model import endpoint_model
from common.load.endpoint.endpoint_service import EndpointService, connect, described
from common.load.endpoint.tensors import TensorForm, metadata_of
from common.load.requests.load_record import Batch
from common.messages.errors import PipelineError, UnusableValueError
from tests.support.processes.endpoints import CERTIFICATE, METADATA, good, scripted


def caller_of(url, *, is_binary=False, token=""):
    host, port = url.removeprefix("http://").split(":")
    return HttpCaller(Address("http", host, int(port), "", token), "double", "", 30.0, is_binary=is_binary)


def service_of(endpoint, workers=1, *, is_binary=False, token=""):
    model = endpoint_model(endpoint.url, metadata_of(METADATA), {}, {}, 0)
    return EndpointService(model, lambda: caller_of(endpoint.url, is_binary=is_binary, token=token), workers)


def batch(*requests, padded=0):
    return Batch(0, requests, padded or len(requests), 0)


def test_each_worker_keeps_a_connection_of_its_own():
    with scripted() as endpoint:
        service = service_of(endpoint, 2)
        for worker in (0, 1, 0, 1, 0):
            assembled_ns, round_trip_ns = service.run(worker, batch(0, 1))
            assert assembled_ns > 0 and round_trip_ns > 0
        clients = [call.client for call in endpoint.inferences]
        assert clients == [clients[0], clients[1]] * 2 + [clients[0]] and clients[0] != clients[1]
        service.close()


def test_a_batch_has_a_row_per_request_and_empty_ones_to_fill_it_up():
    with scripted() as endpoint:
        service = service_of(endpoint)
        service.run(0, batch(0, 5, padded=4))
        sent = json.loads(endpoint.inferences[0].body)["inputs"][0]
        assert sent["shape"] == [4, 3] and len(sent["data"]) == 12
        samples = service.inputs.samples
        assert sent["data"][:6] == pytest.approx([*samples[0]["image"][0], *samples[1]["image"][0]])
        assert sent["data"][6:] == [0] * 6
        service.close()


def test_bytes_are_sent_where_the_endpoint_takes_them():
    def as_bytes(call):
        length = int(call.headers["inference-header-content-length"])
        assert len(call.body) == length + 24
        head = json.dumps(
            {
                "outputs": [
                    {"name": "twice", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": 24}}
                ]
            }
        ).encode()
        return 200, {"Inference-Header-Content-Length": str(len(head))}, head + bytes(24)

    with scripted(as_bytes, extensions=("binary_tensor_data",)) as endpoint:
        caller = caller_of(endpoint.url)
        assert described(Address("http", "h", 1), "double", caller) == (metadata_of(METADATA), True)
        caller.close()
        service = service_of(endpoint, is_binary=True)
        service.run(0, batch(0, 1))
        service.close()


def test_the_token_is_sent_with_every_call():
    with scripted() as endpoint:
        service = service_of(endpoint, token="Bearer abc")
        service.run(0, batch(0))
        service.close()
        assert {call.headers["authorization"] for call in endpoint.calls} == {"Bearer abc"}


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ((503, {}, b'{"error": "the queue is\\nfull"}'), "answers 503: the queue is full"),
        ((500, {}, b"<html>"), "answers 500$"),
        ((200, {}, b"<html>"), "malformed answer: no JSON"),
        ((200, {"Inference-Header-Content-Length": "x"}, b"{}"), "malformed answer: no outputs"),
        ((200, {}, b'{"model_name": "triple", "outputs": []}'), "it is of model triple, not of double"),
        (None, "no answer"),
        ((200, {"Content-Length": str(2**62)}, b"{}"), r"no answer \(it is larger than memory\)"),
        ((200, {"Transfer-Encoding": "chunked"}, b"f" * 16 + b"\r\nx"), r"no answer \(it is larger than memory\)"),
    ],
)
def test_an_answer_that_fails_fails_its_requests_alone(reply, problem):
    replies = [reply]
    with scripted(lambda call: replies.pop() if replies else good(call)) as endpoint:
        service = service_of(endpoint)
        with pytest.raises(PipelineError) as raised:
            service.run(0, batch(0))
        assert raised.match(problem)
        service.run(0, batch(0))
        service.close()


def test_a_connection_that_the_endpoint_ended_between_two_calls_is_opened_again():
    """A server that drops idle connections fails nobody: what it says between two calls is the end."""

    def ending(call):
        status, headers, content = good(call)
        return status, {**headers, "Connection": "close"}, content

    with scripted(ending) as endpoint:
        service = service_of(endpoint)
        for _ in range(3):
            service.run(0, batch(0))
        assert len({call.client for call in endpoint.inferences}) == 3
        service.close()


def test_a_call_that_is_given_up_fails_at_once_and_the_worker_goes_on():
    came, goes_on = threading.Event(), threading.Event()

    def hanging(call):
        if not came.is_set():
            came.set()
            goes_on.wait()
        return good(call)

    with scripted(hanging) as endpoint:
        service, problems = service_of(endpoint), []

        def run():
            with pytest.raises(PipelineError) as raised:
                service.run(0, batch(0))
            problems.append(raised.value.problem)

        thread = threading.Thread(target=run)
        thread.start()
        came.wait()
        service.give_up(0)
        thread.join()
        assert "no answer" in problems[0]
        service.run(0, batch(0))
        goes_on.set()
        service.close()


def test_an_endpoint_that_is_absent():
    with scripted() as endpoint:
        pass
    with pytest.raises(PipelineError, match=r"no answer \(Connection refused\); is a server with KServe's v2"):
        described(Address("http", "127.0.0.1", 1), "double", caller_of(endpoint.url))


def test_an_encrypted_endpoint_is_called_where_its_certificate_is_trusted(monkeypatch):
    with scripted(certificate=CERTIFICATE) as endpoint:
        address = address_of(endpoint.url, None)
        with pytest.raises(PipelineError, match=r"not trusted \(self-signed certificate\); set SSL_CERT_FILE"):
            described(address, "double", HttpCaller(address, "double", "", 30.0, is_binary=False))
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        metadata, _ = described(address, "double", HttpCaller(address, "double", "", 30.0, is_binary=False))
        assert metadata.name == "double"


@pytest.mark.slow  # make test-slow installs the package
def test_an_encrypted_endpoint_by_grpc_has_a_certificate_that_is_not_trusted():
    pytest.importorskip("tritonclient.grpc", reason="the packages of requirements-endpoint.txt are not installed")
    with scripted(certificate=CERTIFICATE) as endpoint:
        address = address_of(endpoint.url.replace("https", "grpcs"), None)
        with pytest.raises(PipelineError, match=r"not trusted; set GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
            described(address, "double", GrpcCaller(address, "double", "", 30.0))


def test_sizes_of_free_axes_are_given_by_input_and_axis():
    fields = {**METADATA, "inputs": [{"name": "a.b", "datatype": "INT64", "shape": [-1, -1, 2]}]}
    metadata = metadata_of(fields)
    with pytest.raises(UnusableValueError, match=r"axis 1 of input a.b \[-1, -1, 2\] has no size; give <dim> a.b.1=N"):
        endpoint_model("", metadata, {}, {}, 0)
    with pytest.raises(UnusableValueError, match=r"a.b.2 is no free axis of an input; free axes are a.b.0, a.b.1"):
        endpoint_model("", metadata, {"a.b.2": 3}, {}, 0)
    model = endpoint_model("", metadata, {"a.b.1": 5}, {}, 0)
    assert model.samples[0]["a.b"].shape == (1, 5, 2) and model.batched == {"a.b"}
    fixed = endpoint_model("", metadata, {"a.b.1": 5, "a.b.0": 7}, {}, 0)
    assert fixed.samples[0]["a.b"].shape == (7, 5, 2) and not fixed.batched


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT64", "FP16", "FP32", "FP64", "BF16", "BYTES"])
def test_every_type_has_values(datatype):
    from common.load.endpoint.tensors import json_values, raw_bytes

    metadata = metadata_of({**METADATA, "inputs": [{"name": "x", "datatype": datatype, "shape": [3]}]})
    array = endpoint_model("", metadata, {}, {}, 0).samples[0]["x"]
    bits = TensorForm("x", datatype, (3,)).bits
    assert len(raw_bytes(array)) == (3 * bits // 8 or 3 * (4 + len("text")))
    assert len(json.loads(b"[" + json_values(array) + b"]")) == 3


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost", "http://localhost:80"),
        ("https://h/prefix/", "https://h:443/prefix"),
        ("grpc://[::1]:9000", "grpc://[::1]:9000"),
        ("grpcs://h", "grpcs://h:443"),
    ],
)
def test_addresses(url, expected):
    assert str(address_of(url, None)) == expected


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://h", "http://", "http://h:x", "http://[", "grpc://h/x", "http://a b"]
)
def test_what_is_no_address(url):
    with pytest.raises(UnusableValueError, match="no address"):
        address_of(url, None)


@pytest.mark.parametrize("url", ["http://me:secret@h", "http://h?key=secret", "http://h/#secret"])
def test_a_secret_in_an_address_is_refused_and_not_repeated(url):
    with pytest.raises(UnusableValueError, match="perhaps a secret") as raised:
        address_of(url, None)
    assert "secret@" not in str(raised.value) and "=secret" not in str(raised.value)


def test_a_token_is_in_no_text_of_an_address(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    address = address_of("http://h", tmp_path / "token")
    assert address.authorization == "Bearer s3cret" and "s3cret" not in f"{address} {address!r}"
    (tmp_path / "token").write_text("Basic dXNlcg==")
    assert address_of("http://h", tmp_path / "token").authorization == "Basic dXNlcg=="
    for content in ("", "a b c"):
        (tmp_path / "token").write_text(content)
        with pytest.raises(UnusableValueError, match="holds no token"):
            address_of("http://h", tmp_path / "token")


def test_a_connection_is_of_the_kind_that_the_address_names():
    assert isinstance(connect(Address("https", "h", 1), "m", "3", 1.0, is_binary=False), HttpCaller)

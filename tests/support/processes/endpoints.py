"""Endpoints of KServe's v2 protocol: one whose answers a test scripts byte by byte, and a real Triton."""

import contextlib
import ctypes
import importlib.util
import json
import os
import socket
import ssl
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

METADATA = {
    "name": "double",
    "versions": ["1"],
    "platform": "by hand",
    "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 3]}],
    "outputs": [{"name": "twice", "datatype": "FP32", "shape": [-1, 3]}],
}
CERTIFICATE = Path(__file__).with_name("localhost.pem")  # of 127.0.0.1, signed by itself, until 2126
Reply = tuple[int, dict[str, str], bytes] | None  # None: the endpoint ends the connection


@dataclass
class Call:
    """A call that came to a scripted endpoint."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    client: tuple[str, int]


@dataclass
class Scripted:
    """A scripted endpoint: its address, and the calls that came to it."""

    url: str
    calls: list[Call] = field(default_factory=list)

    @property
    def inferences(self) -> list[Call]:
        return [call for call in self.calls if call.path.endswith("/infer")]


def rows_of(call: Call) -> int:
    length = call.headers.get("inference-header-content-length")
    return int(json.loads(call.body[: int(length)] if length else call.body)["inputs"][0]["shape"][0])


def good(call: Call) -> Reply:
    """Answer zeros, a row per request, as text."""
    rows = rows_of(call)
    outputs = [{"name": "twice", "datatype": "FP32", "shape": [rows, 3], "data": [0.0] * 3 * rows}]
    return 200, {}, json.dumps({"model_name": "double", "outputs": outputs}).encode()


@contextlib.contextmanager
def scripted(
    infer: Callable[[Call], Reply] = good,
    metadata: object = METADATA,
    extensions: tuple[str, ...] = (),
    certificate: Path | None = None,
) -> Iterator[Scripted]:
    """Run a scripted endpoint; it names ``extensions`` as those that it has.

    With a certificate and its key, in one file, it speaks HTTPS.
    """

    def reply(call: Call) -> Reply:
        if call.path == "/v2":
            return 200, {}, json.dumps({"name": "scripted", "extensions": extensions}).encode()
        if call.path == "/v2/models/double":
            return 200, {}, metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
        if call.path == "/v2/models/double/infer":
            return infer(call)
        return 404, {}, b'{"error": "no such model"}'

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            call = Call(self.command, self.path, headers, body, self.client_address)
            endpoint.calls.append(call)
            if (said := reply(call)) is None:
                self.close_connection = True
                return
            status, more, content = said
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815 - names that http.server calls

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing: a client that gives up a call ends its connection."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        endpoint = Scripted(f"http{'s' * bool(certificate)}://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield endpoint
        finally:
            server.shutdown()


# --- a real server --------------------------------------------------------------------------------------------------

CONFIGURATION = """
backend: "python"
max_batch_size: 8
input [{name: "image" data_type: TYPE_FP32 dims: [3, -1]}]
output [{name: "twice" data_type: TYPE_FP32 dims: [3, -1]}]
instance_group [{kind: KIND_CPU}]
"""
MODEL = """
import numpy as np
import triton_python_backend_utils as backend


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        image = np.from_dlpack(backend.get_input_tensor_by_name(request, "image"))
        if image.shape[-1] == 13:
            return backend.InferenceResponse([], backend.TritonError("thirteen columns bring bad luck"))
        return backend.InferenceResponse([backend.Tensor.from_dlpack("twice", 2 * image)])
"""


def triton_missing() -> str:
    """Say why no Triton can run here; empty where one can."""
    if importlib.util.find_spec("pytriton") is None:
        return "Triton is not installed; make test-slow sets it up"
    library = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    try:
        ctypes.CDLL(str(Path(sysconfig.get_config_var("LIBDIR")) / library))
    except OSError:
        try:
            ctypes.CDLL(library)
        except OSError:
            return f"Triton needs {library}, which this Python does not have"
    return ""


@dataclass(frozen=True)
class Triton:
    """A Triton server that runs: its addresses, and its process."""

    http: str
    grpc: str
    process: "subprocess.Popen[bytes]"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def triton(folder: Path, name: str = "double") -> Iterator[Triton]:
    """Run Triton with a model of its Python backend, which doubles its input and fails for 13 columns."""
    spec = importlib.util.find_spec("pytriton")
    assert spec and spec.submodule_search_locations
    home = Path(spec.submodule_search_locations[0]) / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "models" / name / "1").mkdir(parents=True)
    (folder / "models" / name / "config.pbtxt").write_text(CONFIGURATION)
    (folder / "models" / name / "1" / "model.py").write_text(MODEL)
    (folder / "backends" / "python").mkdir(parents=True)
    stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
    for file in (*(home / "backends" / "python").glob("*.*"), stub):
        (folder / "backends" / "python" / file.name).symlink_to(file)
    http, grpc = _free_port(), _free_port()
    libraries = [str(home.parents[1] / "nvidia_pytriton.libs"), str(sysconfig.get_config_var("LIBDIR"))]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
    }
    command = [
        str(home / "bin" / "tritonserver"),
        f"--model-repository={folder / 'models'}",
        f"--backend-directory={folder / 'backends'}",
        *("--allow-metrics=false", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1"),
        *(f"--http-port={http}", f"--grpc-port={grpc}"),
    ]
    with (folder / "triton.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            _await(process, http, name, folder / "triton.log")
            yield Triton(f"http://127.0.0.1:{http}", f"grpc://127.0.0.1:{grpc}", process)
        finally:
            process.kill()
            process.wait()


def _await(process: "subprocess.Popen[bytes]", port: int, name: str, log: Path) -> None:
    """Wait until a model is ready; the test's own time limit ends a server that never is."""
    while process.poll() is None:
        with contextlib.suppress(OSError):
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", f"/v2/models/{name}/ready")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    pytest.fail(f"Triton ended by itself: {log.read_text()[-2000:]}")

"""Attacks on a dashboard that runs, over the loopback: whoever has the token is served, and nothing is printed."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
import time

import pytest

for package in ("fastapi", "uvicorn", "websockets"):
    pytest.importorskip(package, reason="needs requirements-dashboard.txt: make test-dashboard")

from websockets.exceptions import ConnectionClosed  # noqa: E402
from websockets.sync import client  # noqa: E402

from common.monitor.server import protocols  # noqa: E402
from common.monitor.server.guard import MOST_BODY_BYTES  # noqa: E402
from tests.support.processes.dashboard_process import dashboard  # noqa: E402
from tests.support.processes.live_server import LONG_S, LOOPBACK, Running  # noqa: E402

HALF_A_REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0."
MANY = 1300


class Attacked:
    """A dashboard, as a client of it sees it."""

    def __init__(self, address, token):
        self.host, self.token = address.removeprefix("http://"), token
        self.peer = (LOOPBACK, int(self.host.rpartition(":")[2]))

    def ask(self, path="/api/metrics/current", method="GET", body=None, token=None, **headers):
        """The status of an answer to a request with the right token, or with another one; "" for none."""
        connection = http.client.HTTPConnection(self.host, timeout=LONG_S)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token != "":
            given["Authorization"] = f"Bearer {self.token if token is None else token}"
        with contextlib.closing(connection):
            connection.request(method, path, body, given)
            return connection.getresponse().status

    def first_answer(self, message, **options):
        """What a client of the WebSocket gets for its first message: a tick, or the code of the end."""
        with client.connect(f"ws://{self.host}/ws/metrics", proxy=None, open_timeout=LONG_S) as connection:
            try:
                connection.send(message, **options)
                return connection.recv(LONG_S)
            except ConnectionClosed as closed:
                return closed.rcvd.code


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("descriptors", [256, 1024])
def test_half_open_connections_shut_nobody_out(tmp_path, many_descriptors, descriptors):
    flags = ("--attach", "--out", tmp_path)
    with dashboard(*flags, descriptors=descriptors) as given, contextlib.ExitStack() as held:
        attacked = Attacked(*given)
        for _ in range(MANY):
            half_open = held.enter_context(socket.create_connection(attacked.peer, LONG_S))
            with contextlib.suppress(OSError):
                half_open.sendall(HALF_A_REQUEST)
        assert attacked.ask() == 200
        assert attacked.ask("/", token="") == 200
        assert json.loads(attacked.first_answer(json.dumps({"token": attacked.token})))["tick"] > 0


@pytest.mark.slow
def test_requests_without_the_token_use_up_nothing_of_its_holder(tmp_path):
    with dashboard("--attach", "--out", tmp_path) as given:
        attacked = Attacked(*given)
        strangers = [attacked.ask("/healthz", token="") for _ in range(600)]
        assert strangers[0] == 200
        assert 429 in strangers
        assert attacked.ask() == 200
        assert {attacked.ask(token="wrong") for _ in range(12)} <= {401, 429}
        assert attacked.ask() == 200
        assert json.loads(attacked.first_answer(json.dumps({"token": attacked.token})))["tick"] > 0


@pytest.mark.slow
def test_malformed_messages_print_nothing(tmp_path):
    """The process prints no traceback: :func:`dashboard` looks."""
    with dashboard("--attach", "--out", tmp_path) as given:
        attacked = Attacked(*given)
        assert attacked.first_answer('{"token":"\\ud800"}') == 4401
        assert attacked.first_answer(b"\xff\xfe", text=True) == 1007
        assert attacked.first_answer(['{"token":', b"\xff".decode("latin-1")]) == 4401
        for encoding in ("utf-16", "utf-16-le", "utf-32"):
            body = json.dumps({"durations_us": [1.0]}).encode(encoding)
            assert attacked.ask("/api/ingest", "POST", body, Content_Type="application/json") == 400
        for token in (None, "", "wrong"):
            for size in (MOST_BODY_BYTES + 1, 8 * MOST_BODY_BYTES):
                for connection in ("keep-alive", "close"):
                    status = attacked.ask("/api/ingest", "POST", b"x" * size, token, Connection=connection)
                    assert status == 413
        with socket.create_connection(attacked.peer, LONG_S) as connection:
            connection.sendall(b"\x16\x03\x01\xff" * 100)  # TLS where there is none
            assert connection.recv(100).startswith(b"HTTP/1.1 400")
        host = ":".join(map(str, attacked.peer))
        for method in ("HEAD", "GET"):  # an answer to HEAD may have no body, so not even one that says what is wrong
            with socket.create_connection(attacked.peer, LONG_S) as connection:
                head = f"{method} /healthz HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"
                connection.sendall(f"{head}no size\r\n".encode())
                assert is_ended(connection)
        assert attacked.ask() == 200


@pytest.fixture
def impatient(tmp_path, monkeypatch):
    """A server that waits a moment where it waits for seconds."""
    for name in ("REQUEST_S", "ANSWER_S", "CLOSE_S"):
        monkeypatch.setattr(protocols, name, 0.3)
    with Running(tmp_path, is_attached=True) as running:
        yield running


def is_ended(connection):
    """Whether the other end closes a connection, which must be."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1 << 16):
            pass
    return True


def answers(running):
    """Whether a server answers; one that waits a moment only may drop whoever gets no processor for as long."""
    try:
        return running.ask("/healthz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HALF_A_REQUEST,
        b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n",  # an answer, and then no further request
        b"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n" + HALF_A_REQUEST,
        b"POST /api/ingest HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n{",
        b"POST /api/ingest HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
)
def test_what_does_not_go_on_is_ended(impatient, sent):
    with socket.create_connection((LOOPBACK, impatient.port), LONG_S) as connection:
        connection.sendall(sent.replace(b"{host}", f"{LOOPBACK}:{impatient.port}".encode()))
        assert is_ended(connection)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_who_sends_without_end_is_ended(impatient):
    with socket.create_connection((LOOPBACK, impatient.port), LONG_S) as connection:
        connection.sendall(f"POST /x HTTP/1.1\r\nHost: {LOOPBACK}:{impatient.port}\r\n".encode())
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            while True:
                connection.sendall(b"5\r\nhello\r\n" * 1000)


@pytest.mark.slow
def test_who_reads_no_answer_is_ended(impatient):
    asked = f"GET /uplot.js HTTP/1.1\r\nHost: {LOOPBACK}:{impatient.port}\r\n\r\n".encode()
    with socket.create_connection((LOOPBACK, impatient.port), LONG_S) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(asked * 1000)  # 50 MB of answers
        peer = connection.getsockname()
        while not answers(impatient):  # then whoever came before has come in
            pass
        for _ in range(600):
            if peer not in impatient.doors._strangers:
                return
            time.sleep(0.1)
        raise AssertionError("the connection is still there")

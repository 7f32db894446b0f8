"""The server as clients see it, over real sockets on this host; all waiting is for events."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.metrics.ingest import NodeShareMessage, RunsMessage
from common.monitor.server.guard import MOST_BODY_BYTES

for package in ("fastapi", "uvicorn", "websockets"):
    pytest.importorskip(package, reason="needs requirements-dashboard.txt: make test-dashboard")

from websockets.exceptions import ConnectionClosed, InvalidStatus  # noqa: E402
from websockets.sync import client  # noqa: E402

from common.monitor.server import web  # noqa: E402
from common.monitor.server.web import page_files  # noqa: E402
from tests.support.processes.live_server import LONG_S, LOOPBACK, TOKEN, Running  # noqa: E402

ANSWERS = ("api/metrics/current", "api/metrics/history", "api/nodes", "api/runs", "metrics")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("attached"), is_attached=True) as running:
        yield running


def close_code(connection):
    with pytest.raises(ConnectionClosed) as closed:
        for _ in range(1000):
            connection.recv(LONG_S)
    return closed.value.rcvd.code if closed.value.rcvd else None


def test_what_is_posted_is_shown_everywhere(server):
    before = server.source.feed.count
    status, content, _ = server.post(
        {"model": "posted.onnx", "durations_us": [1500.0] * 40, "figures": {"queue_depth_count": 7}}
    )
    assert (status, json.loads(content)) == (200, {"run_count": before + 40})
    with server.connect() as connection:
        ticks = [json.loads(connection.recv(LONG_S)) for _ in range(3)]
    assert ticks[-1]["model"] == "posted.onnx"
    assert ticks[-1]["figures"]["queue_depth_count"] == 7
    status, content, _ = server.ask("/api/metrics/current")
    current = json.loads(content)
    assert current["tick"] >= ticks[-1]["tick"]
    assert current["figures"]["queue_depth_count"] == 7
    status, content, headers = server.ask("/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"onnx_queue_depth 7.0\n" in content


def test_posted_nodes_replace_earlier_ones(server):
    server.post({"nodes": [{"node": "old", "share": 1.0}]})
    server.post({"nodes": [{"node": "add", "share": 0.25}, {"node": "conv", "op_type": "Conv", "share": 0.75}]})
    server.post({"durations_us": [1.0]})
    assert json.loads(server.ask("/api/nodes")[1]) == [
        {"node": "conv", "op_type": "Conv", "share": 0.75},
        {"node": "add", "op_type": "", "share": 0.25},
    ]


def test_every_client_gets_every_tick(server):
    with ThreadPoolExecutor(5) as pool:
        connections = [server.connect() for _ in range(5)]
        taken = [*pool.map(lambda one: [json.loads(one.recv(LONG_S))["tick"] for _ in range(12)], connections)]
        for connection in connections:
            connection.close()
    for numbers in taken:
        assert numbers == [*range(numbers[0], numbers[0] + 12)]


def test_a_client_that_reads_nothing_delays_nobody(server):
    dead = [server.connect(max_queue=1) for _ in range(20)]  # nobody reads what they are sent
    with server.connect() as connection:
        numbers = [json.loads(connection.recv(LONG_S))["tick"] for _ in range(12)]
    assert numbers == [*range(numbers[0], numbers[0] + 12)]
    for one in dead:
        one.close_timeout = 0.1
        one.close()


def test_who_leaves_is_forgotten(server):
    with server.connect() as connection:
        connection.recv(LONG_S)
        assert len(server.hub) >= 1
    for _ in range(600):
        if not len(server.hub):
            return
        time.sleep(0.1)
    raise AssertionError(f"{len(server.hub)} slots are left")


@pytest.mark.parametrize(
    "first",
    [
        '{"token": "wrong"}',
        "{}",
        "[]",
        "null",
        "1",
        '"x"',
        "",
        "no json",
        '{"token": 5}',
        '{"token": null}',
        "[" * 4000,
    ],
)
def test_a_client_without_the_token_gets_no_tick(tmp_path, server, first):
    assert close_code(server.connect(first=first)) == 4401


def test_a_first_message_in_bytes_or_too_long_gets_no_tick(server):
    assert close_code(server.connect(first=b'{"token": "x"}')) in (4401, 1006, 1011, None)
    assert close_code(server.connect(first="x" * 5000)) == 1009
    assert server.ask("/healthz")[0] == 200


@pytest.mark.parametrize(
    "path", ["/api/metrics/current", "/api/metrics/history", "/api/nodes", "/api/runs", "/metrics"]
)
@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], "é"])
def test_the_api_needs_the_token(server, path, token):
    headers = {"Authorization": f"Bearer {token}".encode("latin-1")} if token == "é" else {}
    status, content, answered = server.ask(path, token=None if headers else token, **headers)
    assert (status, answered["www-authenticate"]) == (401, "Bearer")
    assert json.loads(content) == {"detail": "the token is missing or wrong"}


def test_nothing_is_entered_without_the_token(server):
    before = server.source.feed.count
    assert server.post({"durations_us": [1.0]}, token="wrong")[0] == 401
    assert server.source.feed.count == before


def test_another_name_and_another_site_are_refused(server):
    assert server.ask("/healthz", Host="evil.example")[0] == 421
    assert server.ask("/healthz", Origin="http://evil.example")[0] == 403
    assert server.ask("/healthz", Origin=f"http://127.0.0.1:{server.port}")[0] == 200
    for headers in ({"Origin": "http://evil.example"},):
        with pytest.raises(InvalidStatus) as refused:
            server.connect(additional_headers=headers)
        assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    "message",
    [
        {"durations_us": [-1.0]},
        {"durations_us": [1e13]},
        {"durations_us": ["NaN"]},
        {"durations_us": 5},
        {"durations_us": [1.0] * 10_001},
        {"figures": {"weights": 1.0}},
        {"figures": {"queue_depth_count": [1.0]}},
        {"figures": {"queue_depth_count": None}},
        {"failed_run_count": -1},
        {"inputs": [0.5]},
        {"nodes": [{"node": "conv", "share": 1.01}]},
        {"nodes": [{"node": "conv"}]},
        {"nodes": [{"node": "x" * 301, "share": 0.5}]},
        {"model": "x" * 201},
        [],
        b"{",
        b'{"durations_us": [NaN]}',
        b'{"figures": {"power_w:../../etc/passwd": Infinity}}',
        b"\xff\xfe",
    ],
)
def test_a_message_that_does_not_fit_is_refused_as_a_whole(server, message):
    before = server.source.feed.count
    assert server.post(message)[0] in (400, 422)
    assert server.source.feed.count == before


def test_a_message_that_is_too_large(server):
    assert server.post(b" " * (MOST_BODY_BYTES + 1))[0] == 413


def test_the_history_over_http(server):
    server.post({"durations_us": [1000.0] * 10})
    for _ in range(600):
        status, content, _ = server.ask("/api/metrics/history?duration=3600&step=1")
        assert status == 200
        points = json.loads(content)["points"]
        if sum(figures["run_count"] for *_, figures in points) >= 10:
            break
        time.sleep(0.1)
    assert json.loads(content)["step_s"] == 1
    assert json.loads(server.ask("/api/metrics/history?duration=3600")[1])["step_s"] == 10
    status, content, _ = server.ask("/api/runs")
    assert json.loads(content)[0]["run_count"] >= 10
    for query in ("duration=0", "duration=1e99", "duration=x", "step=0", "step=-1", "duration=nan", "step=nan"):
        assert server.ask(f"/api/metrics/history?{query}")[0] == 422


def test_the_page_comes_whole_and_nothing_else(server):
    for path, (content, kind) in page_files().items():
        status, answered, headers = server.ask(path, token=None)
        assert (status, answered, headers["content-type"]) == (200, content, kind)
        assert "default-src 'none'" in headers["content-security-policy"]
    for path in ("/../store.py", "/page/..%2f..%2fstore.py", "/%2e%2e/guard.py", "//etc/passwd", "/docs", "/page.css/"):
        assert server.ask(path)[0] in (307, 404), path


def test_the_page_loads_nothing_from_elsewhere_and_has_no_script_within():
    page = page_files()["/"][0].decode()
    assert "http:" not in page
    assert "https:" not in page
    assert "style=" not in page
    assert "onclick" not in page
    assert page.count("<script") == page.count('<script src="')
    for path, (content, _) in page_files().items():
        if path in ("/page.js", "/charts.js", "/page.css"):
            assert b"//cdn" not in content
            assert b"innerHTML" not in content
            assert b"eval(" not in content


def test_the_description_has_examples(server):
    description = json.loads(server.ask("/openapi.json")[1])
    assert set(description["paths"]) == {
        *(
            "/api/metrics/current",
            "/api/metrics/history",
            "/api/nodes",
            "/api/runs",
            "/api/ingest",
            "/metrics",
            "/healthz",
        )
    }
    assert description["components"]["schemas"]["Ingested"]["examples"][0]["durations_us"]
    assert "HTTPBearer" in description["components"]["securitySchemes"]


def test_a_dashboard_with_a_model_of_its_own_takes_no_runs(tmp_path):
    with Running(tmp_path, is_attached=False) as running:
        assert running.post({"durations_us": [1.0]})[0] == 409
        assert running.source.feed.count == 0
        assert json.loads(running.ask("/healthz", token=None)[1])["status"] == "waiting"


def test_a_fuzzed_websocket_leaves_the_server_whole(server):
    chance = random.Random(0)
    for _ in range(60):
        length = chance.choice([0, 1, 2, 5, 17, 130, 4000, 70_000])
        noise = bytes(chance.randrange(256) for _ in range(length))
        first = chance.choice([noise, noise.decode("latin-1"), json.dumps({"token": TOKEN})])
        with client.connect(f"ws://{LOOPBACK}:{server.port}/ws/metrics", proxy=None) as connection:
            try:
                connection.send(first)
                if chance.random() < 0.5:
                    connection.socket.sendall(noise)  # no frame at all
                connection.close_timeout = 1
            except (ConnectionClosed, OSError):
                pass
    status, content, _ = server.ask("/healthz")
    assert (status, json.loads(content)["problem"]) == (200, "")
    with server.connect() as connection:
        assert json.loads(connection.recv(LONG_S))["tick"] > 0


def test_a_message_has_the_fields_that_senders_know():
    assert set(web.Ingested.model_fields) == set(RunsMessage.__annotations__)
    assert set(web.NodeTime.model_fields) == set(NodeShareMessage.__annotations__)

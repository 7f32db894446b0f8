"""Figures of a load test as a dashboard gets them: a plain server stands for it; all waiting is for events."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from common.load.generator.wall_clock import serve
from common.load.requests.batching import BatchPolicy, BatchQueue
from common.load.requests.load_record import FAILED, REJECTED, Log
from common.load.requests.schedules import Arrivals
from common.load.requests.sources import OpenLoop
from common.load.telemetry import RATED, Dashboard, LoadDelta, TelemetryClient, dashboard_at
from common.messages.errors import UnusableValueError
from common.metrics.ingest import MOST_DURATIONS

LONG_S = 60  # of waiting for an event that comes
US = 1_000


@pytest.fixture
def patient(monkeypatch):
    """Let a busy host take its time: no message is lost to the clock."""
    monkeypatch.setattr("common.load.telemetry.TIMEOUT_S", LONG_S)


@contextmanager
def answering(answer):
    """Answer each message as ``answer(number, message, headers)`` says; yield the dashboard that posts know."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        count = 0

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            Handler.count += 1
            status = answer(Handler.count, message, self.headers)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.block_on_close = False
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Dashboard("127.0.0.1", server.server_port, False, "secret")
    finally:
        server.shutdown()
        thread.join(LONG_S)
        server.server_close()


class Stub:
    """A service of one worker that does what ``serve`` does."""

    worker_count, stages = 1, ()

    def __init__(self, serve=lambda batch: None):
        self._serve = serve

    def run(self, worker, batch):
        self._serve(batch)
        return ()

    def give_up(self, worker):
        pass


def posted_by(posts):
    return lambda log, queue: posts.follow(LoadDelta(log, queue))


def at_once(count):
    return OpenLoop(Arrivals(np.zeros(count, np.int64)))


def test_every_request_is_told_once_with_its_latency():
    log = Log()
    news = LoadDelta(log, BatchQueue(at_once(0), BatchPolicy(), log))
    for index in range(7):
        log.add(index * US, 0, index * US)
    offered = {"offered_runs_per_s": pytest.approx(1e6)}
    assert news.take() == ([], 0, {"queue_depth_count": 0.0, "in_flight_count": 7.0, **offered})
    log.end(log.form([0, 2, 3], 3, 0, 0, 9 * US, 9 * US), 10 * US, 40 * US)
    log.drop(5, REJECTED, 11 * US)
    assert news.take() == (
        [40.0, 38.0, 37.0],
        1,
        {"queue_depth_count": 0.0, "in_flight_count": 3.0, "batch_size_count": 3.0, **offered},
    )
    log.end(log.form([1], 1, 0, 0, 41 * US, 41 * US), 41 * US, 50 * US)
    log.end(log.form([4], 1, 0, 0, 50 * US, 50 * US), 50 * US, 60 * US, failure="broken")
    log.add(61 * US, 0, 61 * US)
    offered = {"offered_runs_per_s": pytest.approx(7 / 61e-6)}
    assert news.take() == (
        [49.0],
        1,
        {"queue_depth_count": 0.0, "in_flight_count": 2.0, "batch_size_count": 1.0, **offered},
    )
    assert log.outcomes[4] == FAILED
    log.end(log.form([6, 7], 2, 0, 0, 70 * US, 70 * US), 70 * US, 80 * US)
    assert news.take()[0] == [74.0, 19.0]
    assert news.take() == ([], 0, {"queue_depth_count": 0.0, "in_flight_count": 0.0, **offered})


def test_the_offered_rate_is_that_of_the_newest_hundred():
    log = Log()
    news = LoadDelta(log, BatchQueue(at_once(0), BatchPolicy(), log))
    log.add(5 * US, 0, 5 * US)
    assert "offered_runs_per_s" not in news.take()[2]  # one request has no rate
    log.add(5 * US, 0, 5 * US)
    assert "offered_runs_per_s" not in news.take()[2]
    for index in range(RATED):
        log.add(10 * US + index * 250 * US, 0, 0)
    assert news.take()[2]["offered_runs_per_s"] == pytest.approx(4000)


def test_messages_add_up_to_the_run(patient):
    messages = []

    def answer(number, message, headers):
        assert headers["Authorization"] == "Bearer secret"
        messages.append(message)
        return 200

    with answering(answer) as dashboard, TelemetryClient(dashboard, "m.onnx") as posts:
        records = [serve(at_once(count), Stub(), BatchPolicy(most=4), listener=posted_by(posts)) for count in (23, 41)]
    assert messages[0] == {"model": "m.onnx"} and posts.lost_count == 0 and posts.notes == []
    assert posts.sent_count == len(messages) - 1 > 0
    told_us = [one for message in messages[1:] for one in message["durations_us"]]
    expected_us = np.concatenate([record.latencies_us for record in records])
    assert sorted(told_us) == pytest.approx(sorted(expected_us))
    assert sum(message["failed_run_count"] for message in messages[1:]) == 0


def test_a_dashboard_that_stops_answering_delays_no_request_and_not_the_end():
    """From the second message on, nothing is answered while requests are served."""
    is_held, is_done = threading.Event(), threading.Event()

    def answer(number, message, headers):
        if number > 1:
            is_held.set()
            is_done.wait(LONG_S)
        return 200

    def served(batch):
        if batch.index == 3:  # the others are served while a message is under way
            assert is_held.wait(LONG_S)

    with answering(answer) as dashboard:
        with TelemetryClient(dashboard, "m.onnx") as posts:
            record = serve(at_once(500), Stub(served), BatchPolicy(), listener=posted_by(posts))
            assert record.counts["completed"] == 500 and not is_done.is_set()
        posts._thread.join(LONG_S)  # nothing is answered until it has given up
        is_done.set()
    assert posts.lost_count >= 1
    assert posts.notes[0].endswith("messages to the dashboard were lost: no answer (timed out)")


def test_a_message_holds_no_more_than_the_dashboard_takes(patient):
    messages = []

    def answer(number, message, headers):
        messages.append(message)
        return 200

    with answering(answer) as dashboard:
        posts = TelemetryClient(dashboard, "m.onnx")
        serve(at_once(MOST_DURATIONS + 77), Stub(), BatchPolicy(most=1000), listener=posted_by(posts))  # no message yet
        with posts:
            pass
    assert max(len(message.get("durations_us", ())) for message in messages) == MOST_DURATIONS


@pytest.mark.parametrize(
    ("status", "text"),
    [(401, "answers 401: the token is wrong"), (409, "runs a model of its own"), (404, "answers 404: Not Found")],
)
def test_a_dashboard_that_takes_no_messages_is_refused_at_once(patient, status, text):
    with answering(lambda *_: status) as dashboard, pytest.raises(UnusableValueError, match=text):
        TelemetryClient(dashboard, "m.onnx").__enter__()


def test_an_address_where_nothing_answers_is_refused_at_once():
    with answering(lambda *_: 200) as dashboard:
        pass
    with pytest.raises(UnusableValueError, match=r"<post>: 127\.0\.0\.1:\d+: no answer \(.*refused"):
        TelemetryClient(dashboard, "m.onnx").__enter__()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1:8765",
        "ftp://host",
        "http://",
        "http://host/page",
        "http://host?x=1",
        "http://host:99999",
        "http://[1",
        f"http://{'a' * 70}",
    ],
)
def test_what_is_no_address_is_refused(tmp_path, address):
    with pytest.raises(UnusableValueError, match="is no address of a dashboard"):
        dashboard_at(address, tmp_path)


def test_a_token_is_read_from_its_file_and_never_from_the_command_line(tmp_path):
    with pytest.raises(UnusableValueError, match="holds a token") as error:
        dashboard_at("http://127.0.0.1:8765/#token=secret-word", tmp_path)
    assert "secret-word" not in str(error.value)
    with pytest.raises(UnusableValueError, match=r"<post_token>: .*dashboard\.token: cannot be read"):
        dashboard_at("http://127.0.0.1:8765/", tmp_path / "dashboard.token")
    for text in ("", "two\nlines\n"):
        (tmp_path / "dashboard.token").write_text(text)
        with pytest.raises(UnusableValueError, match="holds no token"):
            dashboard_at("http://127.0.0.1:8765/", tmp_path / "dashboard.token")
    (tmp_path / "dashboard.token").write_text("secret\n")
    found = dashboard_at("https://host/", tmp_path / "dashboard.token")
    assert found == Dashboard("host", 443, True, "secret")

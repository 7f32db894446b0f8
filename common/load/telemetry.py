"""Telemetry of a load test: what it does right now, posted to a dashboard about ten times a second.

Nothing ever waits for the dashboard. A thread of its own reads what the record of the load has got since its last look,
and takes no lock of the load. While the
dashboard is slow, no message is made; the next one has what came meanwhile, and its oldest requests are left out where
they are more than a message may hold.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import numpy as np

from common.load.generator.wall_clock import Listener, nobody
from common.load.requests.batching import BatchQueue
from common.load.requests.load_record import COMPLETED, PENDING, Log
from common.messages.errors import UnusableValueError
from common.metrics.ingest import MOST_DURATIONS, MOST_FAILED, PATH, TOKEN_FILE, RunsMessage

INTERVAL_S = 0.1
TIMEOUT_S = 1.0  # of a message; longer than that the dashboard is slow
RATED = 101  # newest requests that the offered rate is from
REASONS = {
    401: ("the token is wrong", "give <post_token> FILE: the one beside the dashboard's history"),
    409: ("the dashboard runs a model of its own", "start it with <attach>"),
}


@dataclass(frozen=True, slots=True)
class Dashboard:
    host: str
    port: int
    is_tls: bool
    token: str


def dashboard_at(address: str, token_file: Path) -> Dashboard:
    """Return the dashboard of an address, with the token in a file.

    Raises:
        UnusableValueError: one of them cannot be used.
    """
    if "#" in address:
        problem = "holds a token, which others on this host can read"
        raise UnusableValueError("post", problem, "leave out what begins with #; <post_token> is the file to read")
    try:
        parts = urlsplit(address)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
        (host or "").encode("idna")  # as a connection does
    except ValueError:
        scheme, host, port = "", None, None
    if scheme not in ("http", "https") or not host or parts.path not in ("", "/") or parts.query:
        raise UnusableValueError("post", f"{address!r} is no address of a dashboard", "such as http://127.0.0.1:8765")
    remedy = f"it is {TOKEN_FILE} in the dashboard's folder"
    try:
        token = token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UnusableValueError("post_token", f"{token_file}: cannot be read ({reason})", remedy) from error
    if not token.isprintable() or not token:
        raise UnusableValueError("post_token", f"{token_file}: holds no token", remedy)
    return Dashboard(host, port or (443 if scheme == "https" else 80), scheme == "https", token)


class Delta(Protocol):
    """Figures of a load since the last look, for the thread of the telemetry."""

    def take(self) -> tuple[list[float], int, dict[str, float]]:
        """Return latencies in µs of what was answered, how many requests were not, and the figures of now."""


LoadObserver = Callable[[Delta], None]


class LoadDelta:
    def __init__(self, log: Log, queue: BatchQueue) -> None:
        self._log, self._queue = log, queue
        self._seen = 0  # requests that had come at the last look
        self._open = np.array([], np.int64)  # those of them that were neither answered nor given up

    def take(self) -> tuple[list[float], int, dict[str, float]]:
        log, count = self._log, len(self._log)
        requests = np.concatenate([self._open, np.arange(self._seen, count)])
        first = int(requests[0]) if len(requests) else count
        outcomes = np.frombuffer(log.outcomes[first:count], np.uint8)[requests - first]
        self._open, self._seen = requests[outcomes == PENDING], count
        answered = requests[outcomes == COMPLETED].tolist()
        failed = len(requests) - len(self._open) - len(answered)
        figures = {"queue_depth_count": float(self._queue.pending_count), "in_flight_count": float(len(self._open))}
        newest_ns = log.intended_ns[max(0, count - RATED) : count]
        if len(newest_ns) > 1 and (passed_ns := newest_ns[-1] - newest_ns[0]) > 0:
            figures["offered_runs_per_s"] = 1e9 * (len(newest_ns) - 1) / passed_ns
        if sizes := log.sizes_of({log.batch_indices[request] for request in answered}):
            figures["batch_size_count"] = sum(sizes) / len(sizes)
        return [log.latency_ns(request) / 1e3 for request in answered], failed, figures


class TelemetryClient:
    """Posts the figures of loads, as a context; :meth:`follow` is called with each load when it begins.

    Args:
        model: what the dashboard shows as the name.
    """

    def __init__(self, dashboard: Dashboard, model: str) -> None:
        self._dashboard, self._model = dashboard, model
        kind = http.client.HTTPSConnection if dashboard.is_tls else http.client.HTTPConnection
        self._connection = kind(dashboard.host, dashboard.port, timeout=TIMEOUT_S)  # opened with the first message
        self._loads = deque[Delta]()
        self._is_over, self._problem = threading.Event(), ""
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
        self.sent_count = self.lost_count = 0  # messages that the dashboard took, and whose requests it lacks

    def __enter__(self) -> TelemetryClient:
        """Ask the dashboard whether it takes messages, and begin; UnusableValueError: it does not take them."""
        problem, remedy = self._posted({"model": self._model})
        if problem:
            raise UnusableValueError("post", f"{self._dashboard.host}:{self._dashboard.port}: {problem}", remedy)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(2 * TIMEOUT_S)  # a message that is under way, and the last one

    def follow(self, load: Delta) -> None:
        self._loads.append(load)

    @property
    def notes(self) -> list[str]:
        if not self.lost_count:
            return []
        count = self.lost_count + self.sent_count
        return [f"{self.lost_count} of {count} messages to the dashboard were lost: {self._problem}"]

    def _work(self) -> None:
        due_s = time.monotonic()
        is_over = False
        while not is_over:
            due_s = max(due_s + INTERVAL_S, time.monotonic())
            is_over = self._is_over.wait(due_s - time.monotonic())
            if message := self._message():
                problem, _ = self._posted(message)
                self.sent_count, self.lost_count = self.sent_count + (not problem), self.lost_count + bool(problem)
                self._problem = problem or self._problem

    def _message(self) -> RunsMessage:
        """Return the deltas of all loads since the last message; empty before the first load."""
        durations_us: list[float] = []
        failed_count, figures = 0, dict[str, float]()
        for _ in range(len(self._loads)):
            found_us, failed, figures = self._loads[0].take()
            durations_us += found_us
            failed_count += failed
            if len(self._loads) > 1:
                self._loads.popleft()  # a later one has begun
        if not figures:
            return {}
        return {
            "model": self._model,
            "durations_us": durations_us[-MOST_DURATIONS:],
            "failed_run_count": min(failed_count, MOST_FAILED),
            "figures": figures,
        }

    def _posted(self, message: RunsMessage) -> tuple[str, str]:
        """Post a message; return why it was not taken and what to do, both empty where it was."""
        headers = {"Authorization": f"Bearer {self._dashboard.token}", "Content-Type": "application/json"}
        try:
            self._connection.request("POST", PATH, json.dumps(message), headers)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # the next message opens it again
            return f"no answer ({str(error) or type(error).__name__})", "start <attach> there, or leave <post> out"
        if answer.status == http.client.OK:
            return "", ""
        problem, remedy = REASONS.get(answer.status, (answer.reason, "is it a dashboard of this version?"))
        return f"answers {answer.status}: {problem}", remedy


@contextmanager
def posts_to(address: str | None, token_file: Path, model: str, note: Callable[..., None]) -> Iterator[LoadObserver]:
    """Yield the observer of a load, whose figures are posted until the block ends.

    Args:
        address: of the dashboard; None: nothing is posted.
        note: takes what the dashboard did not take.

    Raises:
        UnusableValueError: the dashboard takes no messages.
    """
    if address is None:
        yield lambda load: None
        return
    with TelemetryClient(dashboard_at(address, token_file), model) as client:
        yield client.follow
    note(*client.notes)


@contextmanager
def telemetry_to(address: str | None, token_file: Path, model: str, note: Callable[..., None]) -> Iterator[Listener]:
    """Yield the listener of loads of requests; else as :func:`posts_to`."""
    with posts_to(address, token_file, model, note) as follow:
        yield nobody if address is None else lambda log, queue: follow(LoadDelta(log, queue))

"""A dashboard's server in a thread of the tests, and a client of it. It needs requirements-dashboard.txt."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
import time

from websockets.sync import client

from common.monitor.figures.alarms import Alarm, AlarmWatch
from common.monitor.figures.gauges import Conditions, derived_figures
from common.monitor.history import History
from common.monitor.monitor import LiveSource, Monitor
from common.monitor.server.doors import Doors, Room, free_descriptors
from common.monitor.server.guard import Guard
from common.monitor.server.hub import Hub
from common.monitor.server.serving import LOOPBACK, listening, own_names, serve
from common.monitor.store import Store

TOKEN = "secret-" * 6
DEEP = Alarm("deep", "queue_depth_count", 1000.0, None, 0.0, "the queue is deep")
LONG_S = 60  # of waiting for an event that comes


class Running:
    """A server in a thread of its own."""

    def __init__(self, folder, *, is_attached, port=0):
        self.bound = listening(LOOPBACK, port)
        self.port = self.bound.getsockname()[1]
        self.source, self.store, self.hub = LiveSource("model.onnx"), Store(folder / "h.sqlite"), Hub()
        self.history = History(self.store, self.store.begin("model.onnx", time.time(), {}))
        self.guard = Guard(TOKEN, own_names(self.bound))
        for limits in (self.guard._strangers, self.guard._holders):
            limits._rate_hz = limits._burst = 1e9
        self.doors, self.is_attached = Doors(Room.within(free_descriptors())), is_attached
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        def derived(rate):
            return derived_figures(rate, None, Conditions())

        with Monitor(self.source, self.history, AlarmWatch([DEEP]), dict, derived) as monitor:
            rooms = (self.bound, monitor, self.hub, self.store, self.guard, self.doors)
            self.task = self.loop.create_task(serve(*rooms, is_attached=self.is_attached))
            with contextlib.suppress(asyncio.CancelledError):
                self.loop.run_until_complete(self.task)
        self.loop.close()

    def __enter__(self):
        self.thread.start()
        for _ in range(1000):
            try:
                if self.ask("/healthz")[0] == 200:
                    return self
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join(LONG_S)
        self.store.close()

    def ask(self, path, method="GET", body=None, token=TOKEN, **headers):
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=LONG_S)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content, dict(answer.getheaders())

    def post(self, message, **headers):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.ask("/api/ingest", "POST", body, Content_Type="application/json", **headers)

    def connect(self, token=TOKEN, first=None, **options):
        connection = client.connect(f"ws://{LOOPBACK}:{self.port}/ws/metrics", proxy=None, **options)
        connection.send(json.dumps({"token": token}) if first is None else first)
        return connection

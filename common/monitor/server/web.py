"""The address of each thing: the page, the ticks over a WebSocket, the API over HTTP, metrics for Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import fastapi
from fastapi import Depends, Query, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from common.metrics.ingest import PATH
from common.metrics.metric_text import SCRAPE_TYPE
from common.monitor.figures.figure_names import exposition
from common.monitor.monitor import Monitor, NodeShare, enter
from common.monitor.server.doors import Doors
from common.monitor.server.guard import MOST_CLIENTS, Guard
from common.monitor.server.hub import Hub
from common.monitor.server.messages import Accepted, Health, Ingested, NodeTime, Past, PastRun, Refusal, Tick
from common.monitor.store import LONGEST_S, Store

VERSION = "1"
TOKEN_S = 5.0  # in which a client of the WebSocket must say its token
SEND_S = 10.0  # a client that takes no message for so long is disconnected
UNAUTHORIZED, FULL = 4401, 4503
PAGE = Path(__file__).with_name("page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
FILES = ("index.html", "page.js", "charts.js", "page.css", "uplot.js", "uplot.css", "uplot.LICENSE.txt")
_Responses = dict[int | str, dict[str, Any]]
_REFUSALS: _Responses = {
    status: {"model": Refusal, "description": text}
    for status, text in {
        400: "no text in UTF-8",
        403: "another site asks",
        413: "too large",
        421: "not a name of this server",
        429: "too many requests",
        503: "too many clients",
    }.items()
}


class WebService:
    """Answers requests from a monitor, to which another process may post runs; all in the event loop's thread."""

    def __init__(
        self, monitor: Monitor, hub: Hub, store: Store, guard: Guard, doors: Doors, *, is_attached: bool
    ) -> None:
        self._monitor, self._hub, self._store, self._guard, self._doors = monitor, hub, store, guard, doors
        self._is_attached = is_attached
        self._started_s = time.monotonic()

    def app(self) -> Any:
        """Return the application, without its guard."""
        text = "What an ONNX model does right now: latency, throughput, power, alarms, and their history."
        app = fastapi.FastAPI(title="ONNX dashboard", version=VERSION, description=text, docs_url=None, redoc_url=None)
        app.add_exception_handler(RequestValidationError, _unusable)
        refusals = {**_REFUSALS, 401: {"model": Refusal, "description": "the token is missing or wrong"}}
        known: dict[str, Any] = {"dependencies": [Depends(self._require_token)], "responses": refusals}
        app.add_api_route("/api/metrics/current", self.current, response_model=Tick, **known)
        app.add_api_route("/api/metrics/history", self.history, response_model=Past, **known)
        app.add_api_route("/api/nodes", self.nodes, response_model=list[NodeTime], **known)
        app.add_api_route("/api/runs", self.runs, response_model=list[PastRun], **known)
        known["responses"] = {**refusals, 200: {"content": {SCRAPE_TYPE: {}}}}
        app.add_api_route("/metrics", self.metrics, response_class=Response, **known)
        known["responses"] = {**refusals, 409: {"model": Refusal, "description": "this dashboard runs a model"}}
        app.add_api_route(PATH, self.ingest, methods=["POST"], response_model=Accepted, **known)
        app.add_api_route("/healthz", self.healthz, response_model=Health, responses=_REFUSALS)
        for path in page_files():
            app.add_api_route(path, self.page, include_in_schema=False)
        app.add_api_websocket_route("/ws/metrics", self.ticks)
        return app

    async def _require_token(
        self, given: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
    ) -> None:
        if given is None or not self._guard.knows(given.credentials):
            raise fastapi.HTTPException(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})

    async def page(self, request: Request) -> Response:
        content, kind = page_files()[request.url.path]
        return Response(content, media_type=kind)

    async def healthz(self) -> Health:
        """Whether the dashboard works; without a token, for whatever restarts it."""
        source = self._monitor.source
        status = "failing" if source.problem else "ok" if source.is_ready else "waiting"
        return Health(status=status, problem=source.problem, uptime_s=time.monotonic() - self._started_s)

    async def current(self) -> Response:
        return Response(self._monitor.newest, media_type="application/json")

    async def history(
        self,
        duration: Annotated[float, Query(ge=1, le=LONGEST_S, description="how far back, in s", examples=[3600])] = 3600,
        step: Annotated[float | None, Query(ge=1, le=LONGEST_S, description="wanted length of a point, in s")] = None,
    ) -> Response:
        """Figures over time, in the longest kept step (1, 10 or 60 s) that is not above the wanted one."""
        text = await asyncio.to_thread(self._store.history, time.time(), duration, step)
        return Response(text, media_type="application/json")

    async def nodes(self) -> list[NodeTime]:
        """Shares of the nodes in the time of a run, the longest first; empty while nothing is known."""
        return [NodeTime(**asdict(node)) for node in self._monitor.source.nodes]

    async def runs(self) -> list[PastRun]:
        """The times in which a dashboard ran on this history, newest first."""
        return [PastRun(**row) for row in await asyncio.to_thread(self._store.runs)]

    async def metrics(self) -> Response:
        """The newest figures for Prometheus."""
        monitor = self._monitor
        text = exposition(monitor.figures, monitor.active, [alarm.name for alarm in monitor.watch.alarms])
        return Response(text, media_type=SCRAPE_TYPE)

    async def ingest(self, message: Ingested) -> Accepted:
        """Enter runs and gauges of another process."""
        source = self._monitor.source
        if not self._is_attached:
            raise fastapi.HTTPException(409, "this dashboard runs a model of its own")
        enter(source, message.durations_us, message.failed_run_count, message.figures)
        source.model = message.model or source.model
        if message.nodes:
            shares = (NodeShare(node.node, node.op_type, node.share) for node in message.nodes)
            source.nodes = sorted(shares, key=lambda node: -node.share)
        return Accepted(run_count=source.feed.count)

    async def ticks(self, websocket: WebSocket) -> None:
        """Send every tick to a client that has said its token in its first message."""
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            if len(self._hub) >= MOST_CLIENTS:
                await websocket.close(FULL, "too many clients")
            elif not await self._knows_token(websocket):
                await websocket.close(UNAUTHORIZED, "the token is missing or wrong")
            elif not (websocket.client and self._doors.recognise(websocket.client)):
                await websocket.close(FULL, "too many clients")
            else:
                await self._send(websocket)

    async def _knows_token(self, websocket: WebSocket) -> bool:
        """Read the first message, ``{"token": "…"}``."""
        try:
            async with asyncio.timeout(TOKEN_S):
                message = json.loads(await websocket.receive_text())
        except (TimeoutError, ValueError, KeyError, RecursionError):
            return False
        token = message.get("token") if isinstance(message, dict) else None
        return isinstance(token, str) and self._guard.knows(token)

    async def _send(self, websocket: WebSocket) -> None:
        """Send from the client's own slot until it goes."""
        slot = self._hub.join()
        listener = asyncio.create_task(_gone(websocket))
        listener.add_done_callback(lambda _: slot.put(""))  # wakes what waits for a tick that may never come
        try:
            while (message := await slot.take()) and not listener.done():
                async with asyncio.timeout(SEND_S):
                    await websocket.send_text(message)
        finally:
            self._hub.leave(slot)
            listener.cancel()


async def _unusable(_: Request, error: Any) -> Response:
    """Say where a request does not fit, and nothing of what it holds."""
    problems = [{key: problem[key] for key in ("loc", "msg", "type")} for problem in error.errors()]
    return Response(json.dumps({"detail": problems}), 422, media_type="application/json")


async def _gone(websocket: WebSocket) -> None:
    """Read and drop what a client says, until it goes."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


@cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """Return the content and the type of each file by the path of its address; the page itself is ``/``.

    The files are read once: what a client names is looked up here and never becomes a path.
    """
    files = {f"/{name}": ((PAGE / name).read_bytes(), TYPES[Path(name).suffix]) for name in FILES}
    return {"/": files.pop("/index.html"), **files}

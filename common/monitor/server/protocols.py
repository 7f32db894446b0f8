"""Connections of uvicorn with time limits.

uvicorn itself waits without end for a request, for a body, and for a client that reads nothing. Here a whole request is
due ``REQUEST_S`` after the connection or the answer before, and its answer ``ANSWER_S`` after that.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from h11 import LocalProtocolError
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode

from common.monitor.server.doors import Doors, Peer

REQUEST_S = 10.0
ANSWER_S = 30.0
CLOSE_S = 5.0  # for a client of the WebSocket to read the last messages


class TimedHttp(H11Protocol):  # type: ignore[misc]  # uvicorn is optional, so mypy does not read it
    """A connection over HTTP, which the doors let in."""

    def __init__(self, doors: Doors, peer: Peer, config: Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self.ws_protocol_class: Any = partial(TimedWebSocket, doors, peer)
        self._doors, self._peer = doors, peer
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._doors.enter(self._peer, transport.abort)
        self._allow(REQUEST_S)

    def data_received(self, data: bytes) -> None:
        was_whole = self._is_whole
        super().data_received(data)
        if self._is_whole and not was_whole:
            self._allow(ANSWER_S)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._allow(ANSWER_S if self._is_whole else REQUEST_S)  # the next request may have come already

    def send_400_response(self, msg: str) -> None:
        """Refuse a request; where its answer has begun or may have no body, the end of the connection says so."""
        try:
            super().send_400_response(msg)
        except LocalProtocolError:
            self.transport.close()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._end_deadline()  # the service itself gives a client of the WebSocket its time
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        self._doors.leave(self._peer)
        super().connection_lost(exc)

    @property
    def _is_whole(self) -> bool:
        """Whether a whole request has come that is not answered yet."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _allow(self, time_s: float) -> None:
        self._end_deadline()
        self._deadline = self.loop.call_later(time_s, self.transport.abort)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


class TimedWebSocket(WebSocketsSansIOProtocol):  # type: ignore[misc]
    """A connection over the WebSocket, made out of one over HTTP."""

    def __init__(self, doors: Doors, peer: Peer, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._doors, self._peer = doors, peer

    def connection_lost(self, exc: Exception | None) -> None:
        self._doors.leave(self._peer)
        super().connection_lost(exc)

    def send_receive_event_to_app(self) -> None:
        """Pass a message on; one that is no text is answered here, because uvicorn prints a traceback."""
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            self.conn.fail(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.loop.call_later(CLOSE_S, self.transport.abort)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

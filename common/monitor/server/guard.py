"""Access control: a token in a file, the names that this server answers to, limits, and headers for the browser.

A page of another site can send requests to this host's own address from the user's browser. It cannot set our token. It
could rebind its own name to this address, so the name in ``Host`` must be ours. An ``Origin`` must be this server, and
``Sec-Fetch-Site`` must name no other site, where a request has them.
"""

from __future__ import annotations

import os
import secrets
import time
from codecs import IncrementalDecoder, getincrementaldecoder
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common.messages.errors import PipelineError
from common.monitor.server.doors import Doors

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_BYTES = 32
LEAST_TOKEN = 32  # characters
MOST_BODY_BYTES = 1 << 20
MOST_CLIENTS = 256
REQUESTS_PER_S, BURST = 50.0, 200.0  # of one address, with the token and without
MOST_ADDRESSES = 1024
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def read_token(path: Path) -> str:
    """Return the token in a file; a missing file is made, readable by its owner alone, with its folder.

    Raises:
        PipelineError: it cannot be read or made, others may read it, or it is too short.
    """
    token, folder = secrets.token_urlsafe(TOKEN_BYTES), path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PipelineError(folder, f"cannot be made ({error.strerror})", "give another <out>") from error
    try:
        _write_token(path, token)
    except FileExistsError:
        return _checked_token(path)
    except OSError as error:
        raise PipelineError(path, f"the token cannot be written ({error.strerror})", "give another <out>") from error
    return token


def _write_token(path: Path, token: str) -> None:
    """Make the file of a token; on a full disk no file with a part of it is left."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _checked_token(path: Path) -> str:
    remedy = "delete it, and a new one is made"
    try:
        is_private = not path.stat().st_mode & 0o077
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(path, f"the token cannot be read ({error})", remedy) from error
    if not is_private:
        raise PipelineError(path, "others may read the token", f"{remedy}, or chmod 600 it")
    if len(token) < LEAST_TOKEN:
        raise PipelineError(path, f"a token has at least {LEAST_TOKEN} characters", remedy)
    return token


class Bucket:
    """A limit: so many per second, and so many at once."""

    def __init__(self, rate_hz: float, burst: float, filled_s: float = 0.0) -> None:
        self.rate_hz, self.burst, self.left, self.filled_s = rate_hz, burst, burst, filled_s

    def take(self, now_s: float) -> bool:
        self.left = min(self.burst, self.left + (now_s - self.filled_s) * self.rate_hz)
        self.filled_s = now_s
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Limits:
    """A bucket per address; the addresses that were seen last are kept."""

    def __init__(self, rate_hz: float, burst: float) -> None:
        self._rate_hz, self._burst = rate_hz, burst
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, address: str) -> Bucket:
        if address not in self._buckets:
            self._buckets[address] = Bucket(self._rate_hz, self._burst, time.monotonic())
            if len(self._buckets) > MOST_ADDRESSES:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(address)
        return self._buckets[address]


class Rejection(NamedTuple):
    status: int
    reason: str


TOO_LARGE = Rejection(413, f"a body has at most {MOST_BODY_BYTES} bytes")
NO_TEXT = Rejection(400, "a body is text in UTF-8")
FULL = Rejection(503, "too many clients")


class ClientGoneError(Exception):
    """The client closed its connection before its request was whole."""


class Guard:
    """Decides what each request gets before it is read.

    Clients that show the token have a limit of requests of their own, so no stranger can use it up.

    Args:
        hosts: what ``Host`` may say, with the port.
        scheme: ``http`` or ``https``, of an ``Origin``.
    """

    def __init__(self, token: str, hosts: Iterable[str], scheme: str = "http") -> None:
        self._token, self._hosts, self._scheme = token.encode(), frozenset(hosts), scheme
        self._strangers, self._holders = (Limits(REQUESTS_PER_S, BURST) for _ in range(2))

    def rejection(
        self, address: str, headers: Mapping[str, str], *, is_holder: bool, is_websocket: bool = False
    ) -> Rejection | None:
        """Return why a request is refused; None if it is not.

        Args:
            headers: with names in lower case.
            is_holder: whether the request shows the token.
            is_websocket: whether it begins a WebSocket, on which the token comes later. Until then its connection is a
                stranger's.
        """
        if headers.get("host", "").lower() not in self._hosts:
            return Rejection(421, "Host is not a name of this server")
        if not self._is_of_this_site(headers):
            return Rejection(403, "another site asks")
        limits = self._holders if is_holder else self._strangers
        if not is_websocket and not limits.of(address).take(time.monotonic()):
            return Rejection(429, "too many requests")
        length = headers.get("content-length", "0")
        return None if length.isdecimal() and int(length) <= MOST_BODY_BYTES else TOO_LARGE

    def knows(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(errors="surrogatepass"), self._token)

    def _is_of_this_site(self, headers: Mapping[str, str]) -> bool:
        """Return whether no page of another site sent the request; such a page may only link here."""
        if (origin := headers.get("origin")) is not None:
            scheme, _, host = origin.lower().partition("://")
            if scheme != self._scheme or host not in self._hosts:
                return False
        is_visit = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        return is_visit or headers.get("sec-fetch-site", "none") in ("none", "same-origin")


class GuardedApp:
    """An ASGI application behind a guard and doors, with the headers for browsers on each answer."""

    def __init__(self, app: ASGIApp, guard: Guard, doors: Doors) -> None:
        self._app, self._guard, self._doors = app, guard, doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        client = scope.get("client") or ("", 0)
        is_websocket, is_holder = scope["type"] == "websocket", self._guard.knows(_bearer(headers))
        rejection = self._guard.rejection(client[0], headers, is_holder=is_holder, is_websocket=is_websocket)
        if rejection is None and is_holder and not self._doors.recognise(client):
            rejection = FULL
        if is_websocket:
            await (_close(receive, send, rejection) if rejection else self._app(scope, receive, send))
            return
        send = _with_headers(send)
        try:
            waits = rejection is not None and "expect" in headers  # for an answer, before it sends its body
            body = b"" if waits else await _body(receive, is_kept=is_holder and not rejection)
        except ClientGoneError:
            return
        answer = rejection or body
        if isinstance(answer, Rejection):
            await _answer(send, answer)
        else:
            await self._app(scope, _with_body(answer, receive), send)


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


async def _body(receive: Receive, *, is_kept: bool) -> bytes | Rejection:
    """Return the body of a request, or why it is refused: it is too large, or no text.

    A refused one is read to its end, too, as its sender reads no answer before.

    Raises:
        ClientGoneError: the client is gone, or took too long.
    """
    parts, size, decoder, is_more, is_text = list[bytes](), 0, getincrementaldecoder("utf-8")(), True, True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part, is_more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if is_kept and size <= MOST_BODY_BYTES:
            is_text = is_text and _is_text(decoder, part, is_last=not is_more)
            parts.append(part)
    if size > MOST_BODY_BYTES:
        return TOO_LARGE
    return b"".join(parts) if is_text else NO_TEXT


def _is_text(decoder: IncrementalDecoder, part: bytes, *, is_last: bool) -> bool:
    """Return whether a part of a body continues it in UTF-8; JSON in UTF-16 or UTF-32 has bytes of 0."""
    try:
        decoder.decode(part, is_last)
    except UnicodeDecodeError:
        return False
    return b"\0" not in part


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return a function that gives the body that was read, and then the messages after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message["headers"] = [*message.get("headers", ()), *own]
        await send(message)

    return sent


async def _answer(send: Send, rejection: Rejection) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": rejection.status, "headers": headers})
    await send({"type": "http.response.body", "body": f'{{"detail":"{rejection.reason}"}}'.encode()})


async def _close(receive: Receive, send: Send, rejection: Rejection) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 1008, "reason": rejection.reason})

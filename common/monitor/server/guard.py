"""Access control: a token in a file, the names that this server answers to, limits, and headers for the browser.

A page of another site can send requests to this host's own address from the user's browser. It cannot set our token. It
could rebind its own name to this address, so the name in ``Host`` must be ours, and an ``Origin``, where there is one,
must be this server.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import PipelineError

TOKEN_BYTES = 32
LEAST_TOKEN = 32  # characters
MOST_BODY_BYTES = 1 << 20
MOST_CLIENTS = 256
REQUESTS_PER_S, BURST = 50.0, 200.0  # of one address
WRONG_PER_S, WRONG_BURST = 0.2, 10.0  # wrong tokens of one address
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
    """Return the token in a file; a missing file is made, readable by its owner alone.

    Raises:
        PipelineError: it cannot be read or made, others may read it, or it is too short.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _checked_token(path)
    except OSError as error:
        raise PipelineError(path, f"the token cannot be written ({error.strerror})", "give another <out>") from error
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    return token


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


@dataclass(slots=True)
class Bucket:
    """A limit: so many per second, and so many at once."""

    rate_hz: float
    burst: float
    left: float = field(init=False)
    filled_s: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.burst

    def take(self, now_s: float) -> bool:
        self.left = min(self.burst, self.left + (now_s - self.filled_s) * self.rate_hz)
        self.filled_s = now_s
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def is_empty(self, now_s: float) -> bool:
        return min(self.burst, self.left + (now_s - self.filled_s) * self.rate_hz) < 1


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


class Guard:
    """Decides what each request gets before it is read.

    Args:
        token: what a client must know.
        hosts: what ``Host`` may say, with the port.
        scheme: ``http`` or ``https``, of an ``Origin``.
    """

    def __init__(self, token: str, hosts: Iterable[str], scheme: str = "http") -> None:
        self._token, self._hosts, self._scheme = token, frozenset(hosts), scheme
        self._requests, self._wrong = Limits(REQUESTS_PER_S, BURST), Limits(WRONG_PER_S, WRONG_BURST)

    def refusal(self, address: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return a status and a reason for a request that gets no further; None for the others."""
        if headers.get("host", "").lower() not in self._hosts:
            return 421, "Host is not a name of this server"
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(origin.lower()):
            return 403, "Origin is another site"
        if not self._requests.of(address).take(time.monotonic()):
            return 429, "too many requests"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BODY_BYTES:
            return 413, f"a body has at most {MOST_BODY_BYTES} bytes"
        return None

    def _is_ours(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme == self._scheme and host in self._hosts

    def admits(self, address: str, token: str) -> bool:
        """Whether a token is right; an address that gave too many wrong ones is not even asked."""
        now_s, wrong = time.monotonic(), self._wrong.of(address)
        if wrong.is_empty(now_s):
            return False
        if secrets.compare_digest(token.encode(), self._token.encode()):
            return True
        wrong.take(now_s)
        return False


class BodyTooLargeError(Exception):
    """A body that is sent without its length, and is too long."""


class GuardedApp:
    """An ASGI application behind a guard, with the headers for browsers on each answer."""

    def __init__(self, app: Any, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        address = (scope.get("client") or ("", 0))[0]
        refusal = self._guard.refusal(address, headers)
        if refusal is None:
            await self._serve(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal[1]})
        else:
            await _answer(_with_headers(send), *refusal)

    async def _serve(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, _limited(receive), _with_headers(send))
        except BodyTooLargeError:
            await _answer(_with_headers(send), 413, f"a body has at most {MOST_BODY_BYTES} bytes")


def _limited(receive: Any) -> Any:
    """Count the bytes of a body as they come: a client may send it in chunks without saying how many."""
    read = 0

    async def counted() -> Any:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > MOST_BODY_BYTES:
            raise BodyTooLargeError
        return message

    return counted


def _with_headers(send: Any) -> Any:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message["headers"] = [*message.get("headers", ()), *own]
        await send(message)

    return sent


async def _answer(send: Any, status: int, reason: str) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f'{{"detail":"{reason}"}}'.encode()})

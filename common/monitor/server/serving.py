"""The server: its socket, its loop, and what it needs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.messages.errors import PipelineError, UnusableValueError
from common.monitor.monitor import Monitor
from common.monitor.server.doors import Doors, Peer
from common.monitor.server.guard import Guard, GuardedApp
from common.monitor.server.hub import Hub, tick_forever
from common.monitor.store import Store
from common.process.interrupts import SIGNALS

if TYPE_CHECKING:
    import uvicorn

LOOPBACK = "127.0.0.1"
EVERYWHERE = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
SEND_BUFFER_BYTES = 64 * 1024  # what waits in the system for a client that does not read is old, and is memory
MESSAGE_BYTES = 4096  # what a client of the WebSocket has to say is its token
BACKLOG = 1024  # connections that wait until the server is ready
RETRY_S = 0.1  # after a connection that could not be taken
MOST_PORT = 65_535
END_S = 1


@dataclass(frozen=True, slots=True)
class Certificate:
    certificate: Path
    key: Path


def require_server() -> None:
    """Check that the packages of the server are there; raise a PipelineError that says how to install them."""
    try:
        import fastapi
        import uvicorn
        import websockets
    except ImportError as error:
        remedy = "run: python -m pip install -r requirements-dashboard.txt"
        raise PipelineError(error.name or "fastapi", "is not installed", remedy) from error
    del fastapi, uvicorn, websockets


def certificate_of(tls_cert: Path | None, tls_key: Path | None, public_name: str, token: Path) -> Certificate | None:
    """Return the files of TLS, which can be used; None where only this host is answered without.

    Args:
        tls_cert, tls_key: the certificate chain and its private key, PEM.
        public_name: the name by which others reach this host, or "".

    Raises:
        UnusableValueError: others shall reach the host without them, or without a token that its owner has seen; they
            cannot be read, are none, or do not belong together, or the key is encrypted.
    """
    files = [file for file in (tls_cert, tls_key) if file]
    if public_name and len(files) < 2:
        raise UnusableValueError("public", "needs TLS", "give <tls_cert> FILE and <tls_key> FILE")
    if public_name and not token.is_file():
        remedy = "start once without <public>, which makes one, and hand it to whom it is for"
        raise UnusableValueError("public", f"needs a token in {token}", remedy)
    if len(files) == 1:
        raise UnusableValueError("tls_cert", "is one of two files", "give <tls_key> as well, or neither")
    for file in files:
        if not file.is_file():
            raise UnusableValueError("tls_cert", f"{file} is no file", "give the paths of both files")
    if not files:
        return None
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files[0], files[1], password=lambda: "")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        remedy = "give a certificate and its own key, both as PEM and the key without a passphrase"
        raise UnusableValueError("tls_cert", f"cannot be used with its key ({error})", remedy) from error
    return Certificate(*files)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, with a short buffer for each client; port 0 takes any that is free.

    Raises:
        UnusableValueError: there is no such port.
        PipelineError: the address cannot be had.
    """
    if port > MOST_PORT:
        raise UnusableValueError("port", f"{port} is above {MOST_PORT}", "give 0 for any that is free")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        bound.bind((host, port))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        remedy = "end what uses it, or give another <port>"
        raise PipelineError(f"{host}:{port}", f"cannot be listened on ({error.strerror})", remedy) from error
    return bound


def own_names(bound: socket.socket, public_name: str = "") -> list[str]:
    """Return what ``Host`` may say for a socket; the name of a server that others reach is given."""
    port = bound.getsockname()[1]
    names = [public_name] if public_name else [LOOPBACK, "localhost", "[::1]"]
    return [name.lower() + ending for name in names for ending in (f":{port}", *([""] if port in (80, 443) else []))]


async def serve(
    bound: socket.socket,
    monitor: Monitor,
    hub: Hub,
    store: Store,
    guard: Guard,
    doors: Doors,
    *,
    is_attached: bool,
    certificate: Certificate | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal comes; the signals do what they did before when this returns.

    ``on_ready`` is called once the server answers: what it starts may then keep the interpreter busy for a while.
    """
    import uvicorn

    from common.monitor.server.web import WebService

    app = GuardedApp(WebService(monitor, hub, store, guard, doors, is_attached=is_attached).app(), guard, doors)
    server = uvicorn.Server(uvicorn.Config(app, **_options(certificate)))
    server.config.load()

    async def let_in() -> None:
        on_ready()
        await _let_in(bound, doors, server)

    def tick(number: int, late_s: float) -> None:
        hub.publish(monitor.tick(number, {"client_count": float(len(hub)), "tick_late_s": late_s}))

    server.capture_signals = contextlib.nullcontext  # uvicorn raises a signal again amid its own shutdown
    with _signals(lambda *_: setattr(server, "should_exit", True)):
        await _until_one_ends(server, bound, tick_forever(tick), let_in())


async def _until_one_ends(server: uvicorn.Server, bound: socket.socket, *beside: Coroutine[None, None, None]) -> None:
    """Serve, and do what is done beside it, until the first of them ends; raise what that raised."""
    serving = asyncio.create_task(server.serve([]))  # no socket: connections are let in by one of the others
    own = [asyncio.create_task(task) for task in beside]
    try:
        await asyncio.wait((serving, *own), return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        for task in own:
            task.cancel()
        bound.close()
        await serving
    for task in own:
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _let_in(bound: socket.socket, doors: Doors, server: uvicorn.Server) -> None:
    """Accept each connection as it comes; a failed handshake is no error of the server."""
    from common.monitor.server.protocols import REQUEST_S, TimedHttp

    loop, config, greetings = asyncio.get_running_loop(), server.config, set[asyncio.Task[None]]()
    tls = {"ssl": config.ssl, "ssl_handshake_timeout": REQUEST_S} if config.ssl else {}

    async def greet(connection: socket.socket, peer: Peer) -> None:
        try:
            await loop.connect_accepted_socket(
                lambda: TimedHttp(doors, peer, config, server.server_state), connection, **tls
            )
        except OSError:
            connection.close()
            doors.leave(peer)

    while True:
        try:
            connection, address = await loop.sock_accept(bound)
        except OSError:  # the client is gone again, or no descriptor is left
            await asyncio.sleep(RETRY_S)
            continue
        peer = address[:2]
        greeting = asyncio.create_task(greet(connection, peer))
        greetings.add(greeting)
        greeting.add_done_callback(greetings.discard)
        doors.enter(peer, greeting.cancel)
        await asyncio.sleep(0)  # without it, a queue of connections would keep the loop from all other work


@contextlib.contextmanager
def _signals(handler: Callable[..., object]) -> Iterator[None]:
    """Handle what ends the process by a function of ours; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _options(certificate: Certificate | None) -> dict[str, Any]:
    tls = {"ssl_certfile": certificate.certificate, "ssl_keyfile": certificate.key} if certificate else {}
    return {
        "http": "h11",
        "ws": "websockets-sansio",
        "ws_max_size": MESSAGE_BYTES,
        "ws_per_message_deflate": False,  # it takes more time than the loopback saves
        "lifespan": "off",
        "log_level": "error",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": END_S,
        **tls,
    }

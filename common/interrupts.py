"""What a signal does: it ends a program that starts or ends, raises in one that works, and waits for a commit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

INTERRUPTED = 130  # exit code
# `timeout`, batch systems and a closing terminal send the last two.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_at_once(exit_code: int = INTERRUPTED) -> None:
    """Let a signal end the process without a word.

    For the start, when nothing is done yet and an exception would be lost in some import, and for the end, when all is
    done.
    """
    _install(lambda *_: os._exit(exit_code))


def raise_interrupt() -> None:
    """Let a signal raise KeyboardInterrupt, so that the program tidies up."""
    _install(_raise)


def _raise(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _install(handler: Callable[..., Any]) -> None:
    """Handle the signals, but not those that whoever started the process had it ignore, as ``nohup`` does."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Hold signals back while the block runs; the first one takes effect when it has ended."""
    held: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _: held.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])

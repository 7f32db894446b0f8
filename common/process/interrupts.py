"""The effect of a signal: it ends a program during its start and end, raises during its work, and waits for a commit.

Python handles a signal in the main thread, between two of its own instructions. So a thread waits for signals. It ends
the native code that the main thread is in at once, or the process if that code does not end.

The scripts import this module first. It imports very little, because an earlier signal still gives a traceback.
"""

from __future__ import annotations

import _signal as signal  # `signal` itself adds enumerations to it, which take longer to import than the interpreter
import _thread
import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Thread
    from typing import Any, NoReturn

AGAIN_S = 0.05
GRACE_S = 3.0  # time for native code to end after it was told to
_came: list[int] = []  # the signal that came last
_left_alone: list[Thread] = []
_native_calls: list[Callable[[], object]] = []  # functions that end native code
_answers: list[int] = []  # answers of the main thread to the probe
INTERRUPTED = 130  # exit code
# `timeout`, batch systems and a closing terminal send the last two.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
stderr_descriptor = 2  # another one while native code is kept from writing there
PROBE = signal.SIGURG  # nobody sends it to us, and without a handler it does nothing


def end_at_once(exit_code: int = INTERRUPTED) -> None:
    """Let a signal end the process without a message.

    This is for the start, when nothing is done yet and an exception would be lost in some import, and for the end, when
    all is done. The interpreter drops its handlers before it has ended. From then on the signals are ignored.
    """
    _install(lambda *_: os._exit(exit_code))
    atexit.unregister(_ignore)
    atexit.register(_ignore)


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def has_come() -> bool:
    """Return whether a signal raised KeyboardInterrupt, which native code may have turned into another exception."""
    return bool(_came)


def on_signal(end: Callable[[], object]) -> None:
    """Let a signal call a function at once, in a thread of its own; it ends native code that the main thread is in."""
    _native_calls.append(end)


def hear_signals() -> None:
    """Start the thread that waits for signals (see the module). Only the main thread of a program may call this."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(PROBE, lambda *_: _answers.append(PROBE))
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        _thread.start_new_thread(_hear, (reader, _thread.get_ident()))
    except RuntimeError:  # no thread is left: then a signal waits for native code to end
        signal.set_wakeup_fd(-1)


def _hear(reader: int, main_thread: int) -> None:
    unheard = 0
    while came := os.read(reader, 1):
        if came[0] not in SIGNALS:
            continue
        for end in _native_calls:
            end()
        unheard = 0 if _is_alive(main_thread) else unheard + 1
        if unheard > _patience(came[0]):
            end_now(INTERRUPTED, "interrupted amid a call that does not end")


def _patience(number: int) -> int:
    """Return how many such signals the main thread may leave unheard: none, or one if the first is only noted."""
    owner = getattr(signal.getsignal(number), "__self__", None)
    return sys.maxsize if isinstance(owner, Deferred) else int(isinstance(owner, FirstNoted))


def _is_alive(thread: int) -> bool:
    """Return whether a thread runs instructions of Python again within the time of grace."""
    import time

    _answers.clear()
    signal.pthread_kill(thread, PROBE)
    until_s = time.monotonic() + GRACE_S
    while not _answers and time.monotonic() < until_s:
        time.sleep(AGAIN_S)
    return bool(_answers)


def end_now(exit_code: int, line: str) -> NoReturn:
    """End the process with a line on stderr, from any thread; files not yet in place are dropped later."""
    os.write(stderr_descriptor, f"{os.path.basename(sys.argv[0])}: {line}\n".encode(errors="replace"))  # noqa: PTH119
    os._exit(exit_code)


def raise_interrupt() -> None:
    """Let a signal raise KeyboardInterrupt, so that the program tidies up."""
    sys.unraisablehook = _send_again
    _came.clear()
    _install(_raise)


def leave_alone(thread: Thread) -> None:
    """Take note of a thread whose work nothing can stop, and which the program does not wait for."""
    _left_alone.append(thread)


def has_left_alone() -> bool:
    """Return whether such a thread still works."""
    return any(thread.is_alive() for thread in _left_alone)


def _raise(number: int, *_: object) -> NoReturn:
    _came[:] = [number]
    raise KeyboardInterrupt


def _send_again(unraisable: Any) -> None:
    """Send a signal again that came while an object was finalized: Python drops what is raised there."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt) and _came:
        # Not a Timer: its start waits, and on a busy machine the signal comes meanwhile and is lost here as well.
        _thread.start_new_thread(_send_later, (_came[0],))
    else:
        sys.__unraisablehook__(unraisable)


def _send_later(number: int) -> None:
    import time

    time.sleep(AGAIN_S)
    os.kill(os.getpid(), number)


def _install(handler: Callable[..., Any]) -> None:
    """Handle the signals, but not those that whoever started the process had it ignore, as ``nohup`` does."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


class FirstNoted:
    """A context in which the first of some signals is only noted; the next one does what it did before.

    Signals that the process ignores stay ignored. ``hear`` is called amid whatever the main thread does. Outside of the
    main thread, where Python handles no signals, the context does nothing.
    """

    def __init__(self, numbers: Sequence[int] = (signal.SIGINT,), hear: Callable[[], object] = lambda: None) -> None:
        self._numbers, self._hear = numbers, hear
        self._before: dict[int, Any] = {}
        self.has_come = False

    def __enter__(self) -> FirstNoted:
        known = {number: signal.getsignal(number) for number in self._numbers}
        try:
            for number in (number for number in known if known[number] != signal.SIG_IGN):
                signal.signal(number, self._note)
                self._before[number] = known[number]
        except ValueError:  # not the main thread
            pass
        return self

    def _note(self, *_: object) -> None:
        self.has_come = True
        self.__exit__()
        self._hear()

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())


class Deferred:
    """A context that holds signals back; the first one takes effect when it has ended."""

    def __enter__(self) -> None:
        self._held: list[int] = []
        self._handlers = [signal.signal(number, self._hold) for number in SIGNALS]

    def _hold(self, number: int, _: object) -> None:
        self._held.append(number)

    def __exit__(self, *_: object) -> None:
        """Handle signals as before, and the one that has come."""
        for number, handler in zip(SIGNALS, self._handlers, strict=True):
            signal.signal(number, handler)
        if self._held:
            signal.raise_signal(self._held[0])

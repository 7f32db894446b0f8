"""A crash of native code ends the process with a line and an exit code.

C code may use the null pointer of an allocation that failed, and C++ may raise an exception that nobody catches. Python
runs no handler of a signal then, because the native code never returns to it. So the handler of the C library calls
Python. The C and C++ libraries may print a line of their own before ours, as ``std::terminate`` does. POSIX does not
allow that in general (signal-safety(7)), but this process ends in any case. The handler works once: a second crash,
such as one within it, ends the process by its signal. So does a handler that fails. An alarm ends a handler that waits
for a lock, such as the allocator's.
"""

from __future__ import annotations

import ctypes
import faulthandler
import signal
from collections.abc import Callable

PATIENCE_S = 10  # far more than one line takes
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_installed: list[object] = []  # the C library has only their addresses


def on_crash(end: Callable[[str], object]) -> None:
    """Let a crash call a function with the name of its signal; the function must end the process.

    The C library must have ``sysv_signal`` (as glibc has), whose handlers work once. Who asked for Python's own
    tracebacks of crashes (``-X faulthandler``) keeps them. MemoryError: no memory is left.
    """
    library = ctypes.CDLL(None)
    install = getattr(library, "sysv_signal", None)
    if install is None or faulthandler.is_enabled():
        return
    names = {int(number): number.name for number in CRASHES}

    def handle(number: int) -> None:
        try:
            library.alarm(PATIENCE_S)
            end(names[number])
        finally:
            signal.raise_signal(number)  # ends the process: the handler is gone, and ctypes would print a traceback

    handler = _Handler(handle)
    _installed.append(handler)
    try:
        for number in CRASHES:
            install(number, handler)
    except ctypes.ArgumentError as error:  # an integer and a function are what it takes, so only memory can be missing
        raise MemoryError from error

"""What native code prints on stdout, where only the table of a script belongs."""

from __future__ import annotations

import contextlib
import ctypes
import os


def drop_native_output() -> None:
    """Let the stdout of the C library lead nowhere; Python's own, and that of other processes, stay as they are.

    HiGHS prints a line for its developers at times, whatever its settings (ERGO-Code/HiGHS, issue 2783). A C library
    whose ``stdout`` is no variable, other than glibc's, is left alone.
    """
    library = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError, ValueError):
        stdout = ctypes.c_void_p.in_dll(library, "stdout")
        library.fopen.restype = ctypes.c_void_p
        if nowhere := library.fopen(os.fsencode(os.devnull), b"w"):
            stdout.value = nowhere

"""stdout for the table the user came for, stderr for the rest, and the exit code of a stage."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from common.cli.settings import Settings
from common.errors import PipelineError

INTERRUPTED = 130
REDRAW_S = 0.1
YOUNG_OBJECTS = 200_000  # a graph is made of many small objects, and hardly any die: looking often finds nothing


def say(settings: Settings, *lines: str) -> None:
    """Put a note or a progress line on stderr."""
    if not settings.quiet:
        with contextlib.suppress(OSError):  # a full disk behind stderr is no reason to fail
            for line in lines:
                print(line, file=sys.stderr)


def show(settings: Settings, text: str) -> None:
    """Put the table on stdout.

    Raises:
        PipelineError: stdout is a file on a full disk.
        BrokenPipeError: nobody reads it; :func:`run` takes that for an end.
    """
    if settings.quiet:
        return
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _abandon_stdout()
        raise PipelineError("stdout", f"cannot be written ({error.strerror})", "the tables are complete") from error


def _abandon_stdout() -> None:
    """Let what is still buffered go nowhere, or the interpreter complains when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def progress_bar(settings: Settings, what: str) -> Callable[[float, float], None]:
    """A bar on stderr with the time left, ten times a second at most; only on a terminal.

    The time is counted from the last call at which nothing was done yet.
    """
    if settings.quiet or not sys.stderr.isatty():
        return lambda done, total: None
    start = drawn = time.monotonic()

    def draw(done: float, total: float) -> None:
        nonlocal start, drawn
        now = time.monotonic()
        start = start if done else now
        if done < total and now - drawn < REDRAW_S:
            return  # writing to a terminal may take longer than an inference
        drawn = now
        left = f"{(now - start) / done * (total - done):4.0f} s left" if done else "warming up"
        bar = "█" * int(24 * done / total)
        end = "\n" if done == total else ""
        print(f"\r{what} {bar:<24} {done:.0f}/{total:.0f}  {left:<11}", end=end, file=sys.stderr, flush=True)

    return draw


def run(main: Callable[[Sequence[str] | None], int]) -> NoReturn:
    """Run a stage as a process: errors become one line on stderr and an exit code.

    A closed stdout (``| head``) is no error: the tables are already written when the stage prints.
    """
    script = Path(sys.argv[0]).name
    _open_closed_streams()
    for number in (
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # `timeout`, batch systems, a terminal that goes: leave no temporaries
        signal.signal(number, _interrupt)
    gc.freeze()  # what the imports left is there to stay
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        code = _exit_code(main)
        sys.stdout.flush()
    except PipelineError as error:
        print(f"{script}: error: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print(f"{script}: interrupted; nothing was replaced", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        code = 0
    sys.exit(code)


def _open_closed_streams() -> None:
    """A stream that was closed by the caller (``>&-``) takes what is written, and drops it."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _exit_code(main: Callable[[Sequence[str] | None], int]) -> int:
    """What ``main`` returns, or what it exits with after ``--help`` and ``--describe``."""
    try:
        return main(None)
    except SystemExit as finished:
        return int(finished.code or 0)

"""The streams and the exit code of a stage: stdout for the stage's table, stderr for everything else.

Names are printed without control characters (:func:`common.messages.names.printable`).
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from common.cli.texts.help_text import fill, terminal_columns
from common.cli.texts.output import abandon, write
from common.messages.errors import CommandLineError, PipelineError
from common.messages.names import printable, quoted
from common.process import interrupts, startup
from common.process.crashes import on_crash
from common.process.free_memory import bounded_memory
from common.process.native_output import drop_native_output

if TYPE_CHECKING:
    from common.cli.flags.settings import Settings

REDRAW_S = 0.1
BROKE_THRESHOLD = 4  # exit code: a regression, too many failures, or a model beyond its bounds
DENIED_BY_PYTHON = ("can't start new thread", "can't allocate")  # how a RuntimeError says that the system denies it
bar_end: list[str] = []  # what ends the line of an unfinished progress bar on stderr
files_in_place: list[str] = []  # lines on what the stage of this process wrote: what ends it later says so
journals: list[Path] = []  # of the renames of this process: the next run completes what one of them says
YOUNG_OBJECTS = 200_000  # graphs consist of small objects that live long: frequent garbage collection finds nothing


def say(settings: Settings, *lines: str) -> None:
    """Print notes or progress lines on stderr; a full disk behind it is no reason to fail."""
    if settings.quiet:
        return
    try:
        for line in lines:
            _print_line(line)
    except OSError:
        abandon(sys.stderr)


def note_lines(note: str) -> list[str]:
    """Return a note as lines that fit the terminal; elsewhere as one line, for programs that search it."""
    if not sys.stderr.isatty():
        return [note]
    return fill(printable(note), terminal_columns(), indent="  ")


def show(settings: Settings, text: str) -> None:
    """Print the table on stdout. Errors are those of :func:`common.cli.texts.output.write`."""
    if not settings.quiet:
        write("\n".join(map(printable, text.split("\n"))) + "\n", "the tables are complete")


def _print_line(line: str) -> None:
    """Print one line on stderr, below a progress bar that was not finished."""
    print(f"{bar_end.pop() if bar_end else ''}{printable(line)}", file=sys.stderr, flush=True)


def progress_bar(settings: Settings, unit: str) -> Callable[[float, float], None]:
    """Return a function that draws a bar with the time left on stderr, at most ten times a second.

    It takes what is done and the total, and draws on a terminal. Its clock starts at the last call with nothing done.
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
        bar_end[:] = ["\n"]
        print(f"\r{unit} {bar:<24} {done:.0f}/{total:.0f}  {left:<11}", end="", file=sys.stderr, flush=True)
        if done == total:
            print(end=bar_end.pop(), file=sys.stderr, flush=True)

    return draw


def search_line(settings: Settings, unit: str) -> Callable[[float, str], None]:
    """Return a function that draws the progress of a search on stderr, at most ten times a second.

    It takes the share of ``unit`` that is spent and figures (none ends the line), and draws on a terminal.
    """
    if settings.quiet or not sys.stderr.isatty():
        return lambda spent, figures: None
    drawn = -REDRAW_S

    def draw(spent: float, figures: str) -> None:
        nonlocal drawn
        if not figures:
            print(end=bar_end.pop() if bar_end else "", file=sys.stderr, flush=True)
        elif time.monotonic() - drawn >= REDRAW_S:
            drawn = time.monotonic()
            bar = "█" * min(24, int(24 * spent))
            bar_end[:] = ["\n"]
            print(f"\r{unit} {bar:<24} {figures:<52}", end="", file=sys.stderr, flush=True)

    return draw


def run_command(commands: Mapping[str, Callable[[Sequence[str]], int]], text: str, argv: Sequence[str] | None) -> int:
    """Run one of the commands of a program and return its exit code; without one, print the text that lists them."""
    name, *words = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    if name in ("-h", "--help"):
        print(text)
        return 0
    if name not in commands:
        raise CommandLineError("command line", f"{quoted(name)} is not a command", f"it takes {', '.join(commands)}")
    return commands[name](words)


def run(main: Callable[[Sequence[str] | None], int]) -> NoReturn:
    """Run a stage as a process: an error becomes one line on stderr and an exit code.

    A closed stdout (``| head``) is not an error, because the tables are written before the stage prints.
    """
    outcome: tuple[int, str] | None = None
    is_ending = False
    files_in_place.clear()
    journals.clear()
    while not is_ending:
        try:
            outcome = outcome or _outcome(main)
            interrupts.end_at_once(outcome[0])
            is_ending = True
        except KeyboardInterrupt:  # a signal may come when all is done, too
            outcome = outcome or _interrupted()
        except Exception:
            if not interrupts.has_come():
                raise
            outcome = outcome or _interrupted()
    code, line = outcome or (0, "")
    with contextlib.suppress(OSError):  # stderr on a full disk changes no exit code
        if line:
            _print_line(f"{Path(sys.argv[0]).name}: {line}")
    _leave(code)


def _interrupted() -> tuple[int, str]:
    return interrupts.INTERRUPTED, f"interrupted; {_left()}"


def _left() -> str:
    if files_in_place:
        return "its files are in place"
    is_cut_short = any(os.access(path, os.F_OK) for path in journals)
    return "the next run puts its files in place" if is_cut_short else "nothing was replaced"


def _end_crashed(signal_name: str) -> NoReturn:
    problem = f"native code crashed ({signal_name}), perhaps because memory was short"
    interrupts.end_now(PipelineError.exit_code, f"error: this host: {problem}; {_left()}")


def _leave(code: int) -> NoReturn:
    """End the process; at once if a solver still runs in a thread, because CPython would abort inside of its C++."""
    if interrupts.has_left_alone():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _outcome(main: Callable[[Sequence[str] | None], int]) -> tuple[int, str]:
    """Return the exit code of ``main``, and the error in one line."""
    try:
        _prepare_streams()
        gc.freeze()  # objects from the imports live until the end
        gc.set_threshold(YOUNG_OBJECTS)
        on_crash(_end_crashed)
        drop_native_output()
        interrupts.hear_signals()
        interrupts.raise_interrupt()
        with bounded_memory():
            code = _exit_code(main)
        write("")
    except PipelineError as error:
        if any(isinstance(cause, KeyboardInterrupt) for cause in startup.causes(error)):
            return _interrupted()  # a package that is interrupted amid its import seems to be missing
        return error.exit_code, f"error: {error}"
    except BrokenPipeError:
        abandon(sys.stdout)
        return 0, ""
    except (MemoryError, OSError, ImportError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith(DENIED_BY_PYTHON):
            raise
        if interrupts.has_come():  # amid a call that then failed for that
            return _interrupted()
        return PipelineError.exit_code, f"error: {_denied(error, 'the tables are complete' if files_in_place else '')}"
    return code, ""


def _denied(error: MemoryError | OSError | ImportError | RuntimeError, remedy: str) -> PipelineError:
    """Return the error for a failure of the host that no room expects, such as a failing disk or no memory."""
    if isinstance(error, MemoryError):
        smaller = "give a smaller model or smaller sizes, or use a host with more"
        return PipelineError("memory", "too little is free", remedy or smaller)
    if isinstance(error, ImportError):
        name = error.name or "a package"
        return PipelineError(name, f"cannot be imported ({error})", remedy or "install the requirements again")
    if isinstance(error, RuntimeError):
        return PipelineError("this host", f"the system denies it ({error})", remedy)
    subject = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "this host"
    return PipelineError(subject, f"the system denies it ({error.strerror or error})", remedy)


def _prepare_streams() -> None:
    """Let a stream that the caller closed (``>&-``) drop what is written, others escape what their encoding lacks."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _exit_code(main: Callable[[Sequence[str] | None], int]) -> int:
    """Return the exit code of ``main``: its result, or the code that ``--help`` and ``--describe`` exit with."""
    try:
        return main(None)
    except SystemExit as finished:
        return int(finished.code or 0)

"""The programs of this project within this process: their streams are files, and what escapes them is kept."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from common import cli
from common.artifacts.stages import STAGES
from common.monitor.server import serving
from common.profiling.ceilings import slices
from tests.support.paths import ROOT

CEILINGS, DASHBOARD = "00_host_ceilings.py", "12_dashboard.py"
HAS_SERVER = all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn", "websockets"))
SCRIPTS = sorted(name for name in STAGES if name.endswith(".py") and (HAS_SERVER or name != DASHBOARD))
KERNELS = "python -m common.fpga"
SERVED_S = 0.2
STREAMED_BYTES, SLICE_S = 2**16, 1e-3  # of 00, which otherwise takes as long as all other stages together
LAZY = ("ortools.sat.python.cp_model", "scipy.optimize", "onnx.reference", "common.artifacts.generated.describe")


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        code: its exit code; None where an exception escaped.
        out: what it wrote to stdout.
        err: what it wrote to stderr.
        site: the place of this project where the exception was raised last, with the exception's type.
        trace: the traceback.
    """

    words: tuple[str, ...]
    code: int | None
    out: str
    err: str
    site: str = ""
    trace: str = ""


def module_of(script: str):
    """The module of a program, by the name that it has on a command line."""
    return importlib.import_module("common.fpga.__main__" if script == KERNELS else script.removesuffix(".py"))


def import_all() -> None:
    """Import every program, and what they import on demand: workers that are forked later need not."""
    for name in (*LAZY, *("common.fpga.__main__",)):
        importlib.import_module(name)
    for script in SCRIPTS:
        module_of(script)
    if HAS_SERVER:
        importlib.import_module("uvicorn")


@contextlib.contextmanager
def _shortened(script: str) -> Iterator[None]:
    """Let 00 measure briefly and 12 serve briefly, for one run: the process may be that of other tests."""
    with contextlib.ExitStack() as stack:
        if script == CEILINGS:
            stack.enter_context(mock.patch.object(module_of(script), "stream_array_bytes", lambda _: STREAMED_BYTES))
            stack.enter_context(mock.patch.object(slices, "SLICE_S", SLICE_S))
        if script == DASHBOARD and HAS_SERVER:
            stack.enter_context(mock.patch.object(module_of(script), "serve", _serve_briefly))
        yield


async def _serve_briefly(*rooms, **how) -> None:
    """Serve until Ctrl-C, as a dashboard does; the signal comes soon after the start."""
    asyncio.get_running_loop().call_later(SERVED_S, os.kill, os.getpid(), signal.SIGINT)
    await serving.serve(*rooms, **how)


def run_here(script: str, *flags: str, encoding: str = "utf-8", stdout: str | None = None) -> Ended:
    """Run a program as ``common.cli.run`` does, in the current folder.

    Args:
        script: its name on the command line.
        flags: its flags, as Python would decode them.
        encoding: of both streams.
        stdout: a file that takes the place of stdout, such as ``/dev/full``.
    """
    words = (script, *flags)
    sys.argv = list(words)
    with _streams(encoding, stdout) as written:
        code, site, trace = _exit(script)
    return Ended(words, code, *written, site, trace)


def _exit(script: str) -> tuple[int | None, str, str]:
    main = module_of(script).main
    try:
        with _shortened(script):
            cli.run(main)
    except SystemExit as finished:
        return int(finished.code or 0), "", ""
    except BaseException as error:  # the subject of the campaigns: nothing may escape
        return None, site_of(error), "".join(traceback.format_exception(error))


def site_of(error: BaseException) -> str:
    """The innermost line of this project in the traceback of an exception, and what was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(str(ROOT)) and "/tests/" not in frame.filename]
    place = f"{os.path.relpath(ours[-1].filename, ROOT)}:{ours[-1].name}" if ours else "outside"
    return f"{type(error).__name__} in {place}"


@contextlib.contextmanager
def _streams(encoding: str, stdout: str | None):
    """Give this process files for stdout and stderr, at the level of the system: libraries write there too.

    What was written to both is in the list when the context ends.
    """
    written: list[str] = []
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, contextlib.ExitStack() as stack:
        target = stack.enter_context(Path(stdout).open("ab", buffering=0)) if stdout else out
        saved = {number: os.dup(number) for number in (1, 2)}
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        streams = sys.stdout, sys.stderr
        os.dup2(target.fileno(), 1)
        os.dup2(err.fileno(), 2)
        # As Python opens them for a process whose streams are files.
        sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
        stack.enter_context(warnings.catch_warnings())
        for hidden in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", hidden)  # as Python does
        try:
            yield written
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = streams
            for number, copy in saved.items():
                os.dup2(copy, number)
                os.close(copy)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            written += [_text(out, encoding), _text(err, encoding)]


def _text(file, encoding: str) -> str:
    file.seek(0)
    return file.read().decode(encoding, "backslashreplace")

"""make over the real stages, each of which runs in a fork of this process: a second of imports is saved each time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import cli
from tests.fuzz.programs import module_of
from tests.support.paths import ROOT

CALLS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "fcntl.flock"})
WARM = Path(__file__).with_name("warm_python.py")
LINKED = ("Makefile", "*.mk", "*.awk", "common", "configs", "[0-9][0-9]_*.py")
# The ceilings are given: 00 takes seconds. The host is named, because its name is a setting of the measurement.
VARIABLES = ("MODEL=case.onnx", "DIM=batch=1", "RUNS=5", "WARMUP=1", "THREADS=1", "MEM_BW=1e10", "HOST=here")


@dataclass(frozen=True)
class Blow:
    """A signal that meets a stage while it runs.

    Attributes:
        script: the stage.
        number: of the signal.
        event: it comes before this one of the stage's calls to the file system, counted from 1.
        after_s: or so long after the start, where ``event`` is None.
    """

    script: str
    number: int
    event: int | None
    after_s: float = 0.0


@dataclass(frozen=True)
class Made:
    """How make ended, and how the stage that was hit ended (None: no stage was)."""

    code: int
    text: str
    hit: int | None = None


def link_project(folder: Path) -> None:
    """Make a folder in which make finds the project, and its own ``out``."""
    for path in (path for pattern in LINKED for path in ROOT.glob(pattern)):
        (folder / path.name).symlink_to(path)


def make(folder: Path, *words: str, blow: Blow | None = None) -> Made:
    """Call make, and run the stages that it asks for."""
    path = folder / ".socket"
    hits: list[int] = []
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = ["make", f"PYTHON={sys.executable} -I -S {WARM} {path}", *VARIABLES, *words]
    with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryFile() as written:
        server.bind(str(path))
        server.listen()
        with subprocess.Popen(command, cwd=folder, env=env, stdout=written, stderr=written) as process:
            while process.poll() is None:
                if select.select([server], [], [], 0.02)[0]:
                    hits += _serve(server, blow)
        written.seek(0)
        text = written.read().decode("utf-8", "replace")
    path.unlink()
    return Made(process.returncode, text, hits[0] if hits else None)


def _serve(server: socket.socket, blow: Blow | None) -> list[int]:
    """Run one command in a fork; return how it ended if the blow was meant for it."""
    connection, _ = server.accept()
    with connection:
        content, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
        folder, script, *flags = os.fsdecode(content).split("\0")
        aimed = blow if blow and blow.script == script else None
        code = run_forked(Path(folder), script, flags, aimed, streams)
        for stream in streams:
            os.close(stream)
        connection.sendall(str(code).encode())
    return [code] if aimed else []


def run_forked(folder: Path, script: str, flags: Sequence[str], blow: Blow | None, streams: Sequence[int]) -> int:
    """Run a stage as a process of its own would; return its exit code, or the negated number of its signal."""
    process = os.fork()
    if not process:
        try:
            _become(folder, script, flags, blow, streams)
        finally:
            os._exit(70)
    if blow and blow.event is None:
        time.sleep(blow.after_s)
        os.kill(process, blow.number)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _become(folder: Path, script: str, flags: Sequence[str], blow: Blow | None, streams: Sequence[int]) -> None:
    """Run a stage in this process, and end with it."""
    os.chdir(folder)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.argv = [script, *flags]
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if blow and blow.event is not None:
        strike_at(blow.event, blow.number)
    code = 70
    try:
        cli.run(module_of(script).main)
    except SystemExit as finished:
        code = int(finished.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def strike_at(event: int, number: int) -> None:
    """Send a signal to this process at one of its calls to the file system."""
    left = event

    def count(name: str, _: object) -> None:
        nonlocal left
        if name in CALLS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)

    sys.addaudithook(count)

"""One fault in a run of a program: the n-th call, import, allocation or system call fails, or a signal arrives there.

The run is a fork, because a fault may leave anything behind. Calls of Python are counted by an audit hook, which fails
or signals before the call. Allocations fail by CPython's own test module, as in its test suite. System calls fail by
strace, which attaches to the fork before it begins.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import faulthandler
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.process import interrupts
from tests.fuzz.oracle import DIGITS
from tests.fuzz.programs import Ended, run_here
from tests.fuzz.trial import cpu_limit
from tests.support.paths import ROOT

CALLS = frozenset(
    {
        *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "os.truncate"),
        *("fcntl.flock", "sqlite3.connect", "subprocess.Popen", "os.fsync", "mmap.__new__", "tempfile.mkdtemp"),
    }
)
ERRORS = ("ENOSPC", "EIO", "EACCES", "EMFILE", "EROFS")
FAILING = {  # system calls, and how each can fail
    "openat": ERRORS,
    "write": ("ENOSPC", "EIO"),
    "pwrite64": ("ENOSPC", "EIO"),
    "rename": ("EIO", "EACCES", "ENOSPC"),
    "fsync": ("EIO", "ENOSPC"),
    "fdatasync": ("EIO",),
    "mkdir": ("ENOSPC", "EACCES"),
    "unlink": ("EIO", "EACCES"),
    "rmdir": ("EIO",),
    "flock": ("ENOLCK",),
    "ftruncate": ("EIO",),
    "read": ("EIO",),
    "pread64": ("EIO",),
    "getdents64": ("EIO",),
    "mmap": ("ENOMEM",),
    "clone3": ("EAGAIN",),
    "vfork": ("EAGAIN",),
    "pipe2": ("EMFILE",),
    "dup": ("EMFILE",),
}
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
STRACE = shutil.which("strace")
CALL = re.compile(r'^(\w+)\(.*?(?:["<](/[^">]*|[^">]*)[">]|$)', re.MULTILINE)
INSTALLED = re.compile(r".*/(?:site-packages|lib/python[^/]*)/.*")
PROJECT, HARNESS = f"{ROOT}/", f"{ROOT}/tests/"
FATAL = 71  # the fork failed outside of the program


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: ``call``, ``import``, ``allocation``, ``system call``, or one of the two that a signal meets: ``signal at
            call``, ``signal at system call``.
        number: of the call, counted from 1.
        is_first: whether it is tried first, because it stands for its site.
        what: the error or the signal.
        name: of the system call.
    """

    kind: str
    number: int
    is_first: bool = True
    what: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Say it in words."""
        return f"{self.kind} {self.name}{' ' if self.name else ''}{self.number}: {self.what}"

    @property
    def is_signal(self) -> bool:
        """Whether a signal arrives, and nothing fails."""
        return self.what in SIGNALS


class Counted:
    """Calls that are counted while a program runs; the chosen one meets the fault."""

    def __init__(self, fault: Fault | None) -> None:
        """Count nothing yet."""
        self.fault, self.sites, self.is_on = fault, defaultdict[str, list[str]](list), False
        self._import, self._fsync = builtins.__import__, os.fsync
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Count while the block runs."""
        builtins.__import__, os.fsync = self._importing, self._syncing
        with _failing_allocation(self.fault):
            self.is_on = True
            try:
                yield
            finally:
                self.is_on = False
        builtins.__import__, os.fsync = self._import, self._fsync

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in CALLS and self.is_on:
            self._meet("call", arguments[0] if arguments else None)

    def _syncing(self, descriptor: int) -> None:
        self._hear("os.fsync", ())
        self._fsync(descriptor)

    def _importing(self, name, globals=None, *rest, **named):
        importer = (globals or {}).get("__name__", "")
        is_of_c = rest[1:2] == (["__doc__"],)  # PyImport_Import, as of pickle: the module is loaded already
        if self.is_on and importer.partition(".")[0] == "common" and not is_of_c:
            self._meet("import", name)
        return self._import(name, globals, *rest, **named)

    def _meet(self, kind: str, subject: object) -> None:
        fault, sites = self.fault, self.sites[kind]
        sites.append("" if fault else f"{subject if kind == 'import' else ''} {_stack()}")
        if fault is None or len(sites) != fault.number or fault.kind not in (kind, f"signal at {kind}"):
            return
        if fault.is_signal:
            os.kill(os.getpid(), signal.Signals[fault.what])
        elif kind == "import":
            raise ImportError(f"planted: {subject}", name=str(subject))
        else:
            number = getattr(errno, fault.what)
            raise OSError(number, os.strerror(number), subject if isinstance(subject, str | bytes) else None)


def _stack() -> str:
    """The lines of this project that led here."""
    frame, lines = sys._getframe(2), []
    while frame := frame.f_back:
        path = frame.f_code.co_filename
        if path.startswith(PROJECT) and not path.startswith(HARNESS):
            lines.append(f"{path.removeprefix(PROJECT)}:{frame.f_lineno}")
    return " ".join(lines)


@contextlib.contextmanager
def _failing_allocation(fault: Fault | None) -> Iterator[None]:
    if fault is None or fault.kind != "allocation":
        yield
        return
    from _testcapi import remove_mem_hooks, set_nomemory

    set_nomemory(fault.number, fault.number + 1)
    try:
        yield
    finally:
        remove_mem_hooks()


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        ended: the program itself; None if it took down its fork.
        status: of the fork.
        last_words: what it wrote past Python's streams as it ended at once.
        sites: for each kind of call, where each one came from: calls of one site do the same.
    """

    ended: Ended | None
    status: int
    last_words: str
    sites: Mapping[str, Sequence[str]]


def run_with(fault: Fault | None, cpu_s: float, script: str, *flags: str, counts_system_calls: bool = False) -> Outcome:
    """Run a program in a fork, with at most one fault."""
    by_strace = counts_system_calls or (fault is not None and fault.kind.endswith("system call"))
    go, started = os.pipe()
    reader, writer = os.pipe()
    last_words = tempfile.TemporaryFile()  # noqa: SIM115
    process = os.fork()
    if not process:
        os.close(started)
        os.close(reader)
        interrupts.stderr_descriptor = last_words.fileno()
        faulthandler.disable()  # so a crash is met as in a process of its own
        _run_here(fault, cpu_s, go, writer, (script, *flags))
    for own in (go, writer):
        os.close(own)
    trace = Path(f"strace-{process}")
    tracer = _attached(process, trace, fault) if by_strace else None
    os.write(started, b"go")
    os.close(started)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(process, 0)
    ended, sites = pickle.loads(content) if content else (None, {})
    if tracer:
        tracer.wait()
        lines = trace.read_text(errors="replace") if trace.exists() else ""  # strace itself may be refused
        for name, subject in CALL.findall(lines):
            sites.setdefault(name, []).append(DIGITS.sub("N", INSTALLED.sub("installed", subject)))
        trace.unlink(missing_ok=True)
    with last_words:
        last_words.seek(0)
        words = last_words.read().decode(errors="replace")
    return Outcome(ended, os.waitstatus_to_exitcode(status), words, sites)


def _run_here(fault: Fault | None, cpu_s: float, go: int, writer: int, words: tuple[str, ...]) -> None:
    """Run the program in this fork, and send how it ended."""
    try:
        for name in SIGNALS:  # what comes before the program or after it meets the harness, and is nobody's
            signal.signal(signal.Signals[name], lambda *_: None)
        with contextlib.suppress(OSError):  # strace attaches meanwhile
            os.read(go, 2)
        counted = Counted(fault)
        with cpu_limit(cpu_s):
            ended = _program(counted, words)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.Signals[name] for name in SIGNALS])
        os.write(writer, pickle.dumps((ended, dict(counted.sites))))
        os._exit(0)
    except BaseException:
        import traceback

        os.write(writer, pickle.dumps((None, {})))
        Path("harness.txt").write_text(traceback.format_exc())
        os._exit(FATAL)


def _program(counted: Counted, words: tuple[str, ...]) -> Ended:
    from common import cli

    real: Callable[..., object] = cli.run

    def run(main: Callable[..., int]) -> None:
        with counted.on():
            real(main)

    cli.run = run
    return run_here(*words)


def _attached(process: int, trace: Path, fault: Fault | None) -> subprocess.Popen[bytes]:
    """Start strace on a fork that waits, and return once it holds it."""
    inject = ["-y"]
    if fault is not None:
        how = f"signal={fault.what}" if fault.is_signal else f"error={fault.what}"
        inject = ["-e", f"trace={fault.name}", "-e", f"inject={fault.name}:{how}:when={fault.number}"]
    command = [STRACE or "strace", "-qq", "-o", str(trace), *inject, "-p", str(process)]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    status = Path(f"/proc/{process}/status")
    while "TracerPid:\t0\n" in status.read_text() and tracer.poll() is None:
        time.sleep(1e-3)
    return tracer

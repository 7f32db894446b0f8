"""One case of a campaign while it runs: a folder of its own, the programs that it calls, the faults that were found."""

from __future__ import annotations

import os
import resource
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.oracle import Fault, digests, faults_of, table_faults
from tests.fuzz.programs import Ended, run_here

HEAVY = ("00", "01", "06", "07")
MEMORY = 2**30  # that a tiny model or a small table may take beside what the imports take
ADDRESS_SPACE = 4 * 2**30
NAMED = ("case", "out/", ": out:", "--", "command line", ".yaml", "stdout", "python -m", ".csv:", ".json:", ".onnx:")
NAMED += (
    "the working folder",
    ": cannot be read (",
    ": no tables to draw",
)  # before these stands a path of any name


class Trial:
    """One case.

    Args:
        folder: empty, for the case alone; it becomes the current folder.
        unit: CPU time in s that a tiny model takes here; the limits are multiples of it, because machines differ.
        case: its number.

    Attributes:
        story: what the case is, and which commands it runs.
    """

    def __init__(self, folder: Path, unit: float, case: int = 0) -> None:
        """Enter the folder."""
        self.folder, self.unit, self.case = folder, unit, case
        self.out = folder / "out"
        self.story: list[str] = []
        self.faults: list[Fault] = []
        os.chdir(folder)

    def tell(self, text: str) -> None:
        """Add a line to what the case is."""
        self.story.append(text)
        with self.folder.with_suffix(".story").open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{text}\n")  # it is told also where the case ends its process

    def fail(self, kind: str, site: str, detail: str) -> None:
        """Enter a fault."""
        self.faults.append(Fault(kind, site, detail))

    def run(self, script: str, *flags: str, names: tuple[str, ...] = NAMED, **streams: str | None) -> Ended:
        """Run a program that writes into ``out``, and judge how it ended."""
        self.tell(shlex.join((script, *flags)))
        before = digests(self.out)
        start = reset_peak()
        with cpu_limit(self.unit * (800 if script[:2] in HEAVY else 150)):
            ended = run_here(script, *flags, **streams)
        self.faults += faults_of(ended, (*names, *given_forms(flags)))
        if ended.code is not None and "the tables are complete" not in ended.err:
            self.faults += table_faults(self.out, ended.code, before, script)
        if (grown := peak() - start) > MEMORY:
            self.faults.append(Fault("memory", f"{script}: over 1 GiB", f"{grown / 2**20:.0f} MiB"))
        return ended


def given_forms(flags: tuple[str, ...]) -> Iterator[str]:
    """How an error line may begin with what was given: as it is, or escaped."""
    for word in flags:
        for given in (word, word.partition("=")[2]):
            if given:
                yield from (f"error: {form[:40]}" for form in (given, ascii(given)[1:-1], repr(given)[1:-1]))


class cpu_limit:  # noqa: N801
    """A limit of the CPU time of this process, which ends by SIGPROF where it is reached; waiting costs nothing."""

    def __init__(self, seconds: float) -> None:
        """Take the limit in s."""
        self.seconds = seconds

    def __enter__(self) -> None:
        """Start to count."""
        signal.setitimer(signal.ITIMER_PROF, self.seconds)

    def __exit__(self, *_: object) -> None:
        """Stop."""
        signal.setitimer(signal.ITIMER_PROF, 0)


def limit_memory() -> None:
    """Limit the address space of this process, so that a case which wants all memory gets a MemoryError instead."""
    limit = _status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def reset_peak() -> int:
    """Forget the peak of the resident memory of this process; return its present size in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """Peak of the resident memory of this process in bytes."""
    return _status("VmHWM")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))

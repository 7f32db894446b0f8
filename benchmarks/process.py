"""Run a command as a process, and measure its wall time and peak memory.

The kernel counts the memory of the process that starts a command into the peak of the command, until the command's own
exceeds it. So a small interpreter, which imports nothing but the standard library, stands between: this file, run as
a script.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAST_WORDS = 500  # characters of a failed command's stderr


@dataclass(frozen=True, slots=True)
class Run:
    """How a command did. ``failure`` is empty where it succeeded."""

    seconds: float
    peak_bytes: int
    failure: str = ""
    timed_out: bool = False


def run(command: Sequence[str], *, timeout_s: float, memory_bytes: int) -> Run:
    """Run a command in the root of the project, at most so long and with at most so much address space."""
    limits = [str(timeout_s), str(memory_bytes)]
    launcher = [sys.executable, "-I", "-S", __file__, *limits, *command]
    done = subprocess.run(launcher, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return Run(**json.loads(done.stdout))


def best(command: Sequence[str], repetitions: int, *, timeout_s: float, memory_bytes: int) -> Run:
    """The quickest of several runs, with the largest peak of all; the first failure counts for all."""
    runs: list[Run] = []
    for _ in range(repetitions):
        runs.append(run(command, timeout_s=timeout_s, memory_bytes=memory_bytes))
        if runs[-1].failure:
            return runs[-1]
    return Run(min(each.seconds for each in runs), max(each.peak_bytes for each in runs))


def launch(timeout_s: float, memory_bytes: int, command: Sequence[str]) -> Run:
    """Run a command here and now; its output is dropped, the last line of what it says on stderr is why it failed."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        signal.signal(signal.SIGALRM, lambda *_: process.kill())
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        said = process.stderr.read() if process.stderr else b""
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    timed_out = process.returncode == -signal.SIGKILL and seconds >= timeout_s
    words = said.decode(errors="replace")[-LAST_WORDS:].strip().splitlines() or [f"exit code {process.returncode}"]
    return Run(seconds, usage.ru_maxrss * 1024, words[-1] if process.returncode else "", timed_out)


if __name__ == "__main__":
    outcome = launch(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    print(json.dumps({name: getattr(outcome, name) for name in Run.__slots__}))

"""Run a command as a process, and measure its wall time, processor time and peak memory.

Linux includes the memory of the starting process in a command's peak until the command's own memory exceeds it. So this
file is run as a script in between: a small interpreter that imports only the standard library starts the command.
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
class CommandRun:
    """Outcome of a command. ``failure`` is empty if it succeeded."""

    seconds: float
    peak_bytes: int
    failure: str = ""
    timed_out: bool = False
    processor_seconds: float = 0.0


def run(command: Sequence[str], *, timeout_s: float, memory_bytes: int) -> CommandRun:
    """Run a command in the root of the project, with limits of time and address space."""
    limits = [str(timeout_s), str(memory_bytes)]
    launcher = [sys.executable, "-I", "-S", __file__, *limits, *command]
    done = subprocess.run(launcher, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return CommandRun(**json.loads(done.stdout))


def best(command: Sequence[str], repetitions: int, *, timeout_s: float, memory_bytes: int) -> CommandRun:
    """Return the shortest times and the largest peak of several runs, or the first failure."""
    runs: list[CommandRun] = []
    for _ in range(repetitions):
        runs.append(run(command, timeout_s=timeout_s, memory_bytes=memory_bytes))
        if runs[-1].failure:
            return runs[-1]
    return shortest(runs)


def shortest(runs: Sequence[CommandRun]) -> CommandRun:
    """Return the shortest times and the largest peak of successful runs."""
    return CommandRun(
        min(run.seconds for run in runs),
        max(run.peak_bytes for run in runs),
        processor_seconds=min(run.processor_seconds for run in runs),
    )


def launch(timeout_s: float, memory_bytes: int, command: Sequence[str]) -> CommandRun:
    """Run a command from this process. Its output is dropped; ``failure`` is the last line of its stderr."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        signal.signal(signal.SIGALRM, lambda *_: process.kill())
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        error_output = process.stderr.read() if process.stderr else b""
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    timed_out = process.returncode == -signal.SIGKILL and seconds >= timeout_s
    last_lines = error_output.decode(errors="replace")[-LAST_WORDS:].strip().splitlines() or [
        f"exit code {process.returncode}"
    ]
    failure = last_lines[-1] if process.returncode else ""
    return CommandRun(seconds, usage.ru_maxrss * 1024, failure, timed_out, usage.ru_utime + usage.ru_stime)


if __name__ == "__main__":
    outcome = launch(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    print(json.dumps({name: getattr(outcome, name) for name in CommandRun.__slots__}))

"""An endpoint for the campaigns, in a process of its own: it prints its address, and ends with whoever started it."""

from __future__ import annotations

import subprocess
import sys

from tests.support.paths import ROOT
from tests.support.processes.endpoints import scripted


def started() -> str:
    """Start an endpoint that answers zeros, and return its address; it ends when this process does."""
    command = [sys.executable, "-m", "tests.fuzz.endpoint"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    RUNNING.append(process)
    return process.stdout.readline().strip()


RUNNING: list[subprocess.Popen[str]] = []  # an object that is dropped would close its pipe


if __name__ == "__main__":
    with scripted() as endpoint:
        print(endpoint.url, flush=True)
        sys.stdin.read()

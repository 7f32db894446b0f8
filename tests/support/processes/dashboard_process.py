"""The dashboard as a process of its own, from its start to Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

from tests.support.paths import ROOT

LONGEST_S = 120  # of its life
MOST_WORDS = 2000  # characters


@contextmanager
def dashboard(*flags, descriptors=1024):
    """Start it with flags, yield its address and its token, and check that Ctrl-C ends it well, after few words."""
    limited = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors)]
    command = [*limited, sys.executable, "12_dashboard.py", "--port", "0", *map(str, flags)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **streams) as process:
        watchdog = threading.Timer(LONGEST_S, process.kill)
        watchdog.start()
        try:
            address, _, token = process.stdout.readline().strip().partition("/#token=")
            yield address, token
        finally:
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate()
            watchdog.cancel()
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr
    assert len(stderr) < MOST_WORDS

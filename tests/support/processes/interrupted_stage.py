"""A stage in a process of its own that gets a signal as soon as its first run has begun."""

import subprocess
import sys
from collections.abc import Sequence

from tests.support.paths import ROOT

# However busy the host is, the main thread hears the signal in time: the process does not end itself without it.
PROGRAM = """
import _thread, os, runpy, sys, time
from common.process import interrupts
from common.runtime.sessions import limits
interrupts.GRACE_S = 600
sys.argv = {argv}
def send():
    while all(call.begin_s == limits.IDLE for call in limits._known()):
        time.sleep(0.001)
    time.sleep(0.02)
    os.kill(os.getpid(), {number})
_thread.start_new_thread(send, ())
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def interrupted(argv: Sequence[object], number: int) -> subprocess.CompletedProcess[str]:
    """Run a script with its flags, and send it a signal."""
    code = PROGRAM.format(argv=[*map(str, argv)], number=int(number))
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

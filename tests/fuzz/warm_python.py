"""The Python that make calls in a campaign: it hands its command to a process that has imported everything already.

The first argument is the socket of that process. This file imports little, because a process of its own starts for
every stage.
"""

import os
import signal
import socket
import sys

if sys.argv[2] == "-m":  # no stage
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    words = "\0".join([os.getcwd(), *sys.argv[2:]])  # noqa: PTH109
    socket.send_fds(connection, [os.fsencode(words)], [0, 1, 2])
    code = int(connection.recv(16) or b"70")
if code < 0:  # end as the stage ended
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)

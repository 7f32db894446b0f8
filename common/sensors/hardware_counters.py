"""Hardware counters over a window, by ``perf stat`` attached to this process: IPC, cache misses, vector instructions.

perf starts before the window with its counters off. Its control pipes switch the counters on and off, and perf
acknowledges each command, so the window is exactly the block. All threads of the process count, including those
created in the block, and so do processes that it starts. If perf is missing, not permitted or cannot count an event,
the counter is None with a note and a remedy; it is never zero.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from common.sensors.hardware_events import VECTOR, Count, known_events, parse_counts, problem_notes

_ANSWER_S = 10.0  # perf answers within milliseconds, unless it does not start at all
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_REMEDY = "sudo sysctl kernel.perf_event_paranoid=2, or run as root"


@dataclass(frozen=True, slots=True)
class HardwareCounts:
    """Counts of a window, in user mode, over all threads."""

    window_s: float
    counts: Mapping[str, Count] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class HardwareCounters:
    """Counts hardware events while a ``with`` block runs; ``result`` holds the counts afterwards.

    ``perf`` is the program; by default the one on the PATH.
    """

    def __init__(self, *, perf: str | None = None) -> None:
        self.events = known_events()
        self.result = HardwareCounts(0.0)
        self._notes: list[str] = []
        if VECTOR not in self.events:
            self._notes.append("perf: no vector event is known for this processor")
        self._perf = perf or shutil.which("perf") or ""
        self._process: subprocess.Popen[str] | None = None
        self._pipes: tuple[int, int] | None = None  # where commands go, and where answers come from
        self._is_on = False
        self._start_s = 0.0

    def __enter__(self) -> HardwareCounters:
        if not self._perf:
            self._notes.append("perf: not found; install the package linux-perf (Debian) or linux-tools (Ubuntu)")
        else:
            self._attach()
        self._start_s = time.perf_counter()
        self._is_on = self._command("enable")
        return self

    def __exit__(self, *_: object) -> None:
        """Switch the counters off and read them."""
        was_on = self._is_on and self._command("disable")
        window_s = time.perf_counter() - self._start_s
        output = self._detach()
        counts: dict[str, Count] = {}
        if was_on:
            counts = parse_counts(output, self.events, window_s, os.cpu_count() or 1)
            self._notes += problem_notes(counts)
        elif self._process is not None:
            self._notes.append(_refusal(output))
        self.result = HardwareCounts(window_s, counts, tuple(self._notes))

    def _attach(self) -> None:
        control_end, control = os.pipe()
        answer, answer_end = os.pipe()
        self._pipes = control, answer
        events = ",".join(f"{event}:u" for event in self.events.values())
        command = [self._perf, "stat", "-x,", "-D", "-1", "-e", events, "-p", str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                [*command, "--control", f"fd:{control_end},{answer_end}"],
                pass_fds=(control_end, answer_end),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,  # an interrupt from the terminal is ours to handle
            )
        except OSError as error:
            self._notes.append(f"perf: {self._perf} does not start ({error.strerror})")
        # closed here, so that the pipe of answers ends with perf
        os.close(control_end)
        os.close(answer_end)

    def _command(self, word: str) -> bool:
        """Send a command to perf; return whether perf acknowledged it."""
        if self._process is None or self._pipes is None:
            return False
        control, answer = self._pipes
        try:
            os.write(control, f"{word}\n".encode())
        except BrokenPipeError:
            return False
        ready, _, _ = select.select([answer], [], [], _ANSWER_S)
        return bool(ready) and os.read(answer, 16).startswith(b"ack")

    def _detach(self) -> str:
        if self._pipes is None:
            return ""
        for end in self._pipes:
            os.close(end)
        if self._process is None:
            return ""
        self._process.send_signal(signal.SIGINT)
        try:
            return self._process.communicate(timeout=_ANSWER_S)[1]
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session, which includes its children
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.communicate(timeout=_ANSWER_S)[1]
            return ""


def _refusal(output: str) -> str:
    """Return why perf counted nothing: the first line of its output that is not a mere heading."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" :") not in ("", "Error")]
    try:
        level = _PARANOID.read_text(encoding="ascii").strip()
    except OSError:
        return "perf: this system has no counters for perf (perf_event_paranoid is missing)"
    reason = lines[0] if lines else "no answer"
    return f"perf: counts nothing here ({reason}); perf_event_paranoid is {level}: {_REMEDY}"

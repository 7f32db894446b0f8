"""Scheduler events from Linux's tracefs: a private trace instance, on the processors that this process may use.

The trace records all threads on these processors, for two reasons: only the switches of all threads show which one ran
instead, and another process that holds one processor makes two threads of this process share the other, which their own
switches do not explain.

The instance is private, so other tracers on the machine keep their settings. It is removed when the block ends, also
after an exception. If tracefs is not mounted, it is mounted without a path (fsmount, Linux 5.2); only this process sees
such a mount, and it ends with the process. An instance that a killed process left is removed by the next recorder.

The trace uses the clock ``mono``: CLOCK_MONOTONIC, the clock of ``time.perf_counter`` on Linux. A mark in the trace
checks this, and gives the kernel's id of this thread, which differs from the process's own view in a container. Source:
Documentation/trace/ftrace.rst and events.rst in the Linux source.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from common.os_events.events import INCOMPLETE, Clock, EventLog, OsEvent
from common.os_events.sched_trace import SchedulerTrace, find_mark

PREFIX = "onnx_profile_"
EVENTS = ("task/task_newtask", "sched/sched_waking", "sched/sched_switch")
BUFFER_KIB = 1024  # per processor: about 16,000 events
DRAIN_PERIOD_S = 0.5
MOST_UNPARSED_BYTES = 32 << 20  # a quarter of a million events
CLOCK_TOLERANCE_S = 2e-6  # times in the trace are whole µs
REMEDY = "run as root, or let root mount it: mount -t tracefs nodev /sys/kernel/tracing"

MOUNTS = Path("/proc/self/mounts")
TASKS = Path("/proc/self/task")
# System-call numbers since Linux 5.2, equal on all architectures except Alpha (include/uapi/asm-generic/unistd.h).
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSCONFIG_CMD_CREATE, _CLOEXEC = 6, 1


class TracefsRecorder:
    """Records when threads of this process had no processor, and which threads ran instead.

    ``root`` is the folder of tracefs; None: the mounted one, or a mount for this process alone. With ``parses_late``,
    what is read is kept as text and parsed when the block ends: parsing 40,000 events takes half a second of processor
    time, which is too much where something is timed meanwhile.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        clock: Clock = time.perf_counter,
        buffer_kib: int = BUFFER_KIB,
        parses_late: bool = False,
    ) -> None:
        self.is_recording = False
        self._root = root
        self._clock = clock
        self._buffer_kib = buffer_kib
        self._parses_late = parses_late
        self._unparsed: list[bytes] = []
        self._is_full = False
        self._log = EventLog()
        self.trace = SchedulerTrace(set(), 0)
        self._problems: list[str] = []
        self._stack = contextlib.ExitStack()

    @property
    def events(self) -> list[OsEvent]:
        """Intervals recorded so far, by time."""
        return self._log.sorted()

    @property
    def notes(self) -> list[str]:
        """Everything that is missing, with remedies."""
        notes = list(self._problems)
        if lost := self.trace.lost_count:
            notes.append(f"{INCOMPLETE}{lost:,} scheduler events were overwritten before being read")
        if unseen := self.trace.unseen_count:
            notes.append(f"{INCOMPLETE}{unseen:,} intervals are left out because the kernel hid their end")
        if dropped := self._log.dropped_count:
            notes.append(f"{INCOMPLETE}the {dropped:,} shortest intervals are left out")
        return notes

    def __enter__(self) -> TracefsRecorder:
        """Start recording, or add a note that says why not; enter before the runtime creates its threads."""
        try:
            self._start()
        except OSError as error:
            self._stack.close()
            self._problems.append(f"tracefs: cannot be used ({_reason(error)}); {REMEDY}")
        return self

    def __exit__(self, *_: object) -> None:
        """Read the remaining events and remove the instance."""
        if self.is_recording:
            with contextlib.suppress(OSError):
                self._write("tracing_on", "0")
            self._drain()
        self._parse()
        if self.is_recording:
            self.trace.finish()
        self.is_recording = False
        self._stack.close()

    def restart(self) -> None:
        """Discard the intervals and losses recorded so far, but not the known threads."""
        if self.is_recording:
            self._drain()
            self._parse()
            self._log = EventLog()
            self.trace.forget()

    def drain_if_due(self) -> None:
        """Read the buffer if ``DRAIN_PERIOD_S`` has passed since the last time."""
        if self.is_recording and not self._is_full and self._clock() - self._drained_s >= DRAIN_PERIOD_S:
            self._drain()
            if not self._parses_late:
                self._parse()
            elif sum(map(len, self._unparsed)) > MOST_UNPARSED_BYTES:
                self._end_early()

    def _start(self) -> None:
        root = self._root or self._stack.enter_context(tracefs())
        _remove_abandoned(root)
        self._instance = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}_", dir=root / "instances"))
        self._stack.callback(self._remove)
        self._pipe = os.open(self._instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
        self._stack.callback(os.close, self._pipe)
        self._write("trace_clock", "mono")
        self._write("buffer_size_kb", str(self._buffer_kib))
        thread_id = self._kernel_thread_id()
        self._write("tracing_cpumask", mask_text(os.sched_getaffinity(0)))
        for event in EVENTS:
            self._write(f"events/{event}/enable", "1")
        self.trace = SchedulerTrace(self._threads(thread_id), thread_id)
        self._started_s = self._drained_s = self._clock()
        self.is_recording = True

    def _kernel_thread_id(self) -> int:
        """Return the kernel's id of this thread from a mark, and check the clock of the trace by it."""
        before_s = self._clock()
        text = f"{PREFIX}{before_s!r}"
        self._write("trace_marker", text)
        after_s = self._clock()
        mark = find_mark(self._read().decode(errors="replace"), text)
        if mark is None:
            raise OSError("a mark written into the trace does not appear")
        if not before_s - CLOCK_TOLERANCE_S <= mark.time_s <= after_s + CLOCK_TOLERANCE_S:
            raise OSError("its clock is not the clock of this process")
        return mark.thread_id

    def _threads(self, thread_id: int) -> set[int]:
        """Return the present threads of this process, as far as the kernel's ids of them can be known."""
        tasks = {int(path.name) for path in TASKS.iterdir()}
        if thread_id == threading.get_native_id():
            return tasks
        if len(tasks) > 1:
            self._problems.append("os_events: threads created before the recording are unknown in this container")
        return {thread_id}

    def _drain(self) -> None:
        try:
            self._unparsed.append(self._read())
        except OSError as error:
            self.is_recording = False
            self._problems.append(f"{INCOMPLETE}tracefs failed during the runs ({_reason(error)})")
            return
        self._drained_s = self._clock()

    def _parse(self) -> None:
        text = b"".join(self._unparsed).decode(errors="replace")
        self._unparsed.clear()
        self._log.extend(self.trace.feed(text))

    def _end_early(self) -> None:
        """Record no more, so that memory stays small."""
        self._is_full = True
        with contextlib.suppress(OSError):
            self._write("tracing_on", "0")
        after_s = self._clock() - self._started_s
        self._problems.append(f"{INCOMPLETE}so many scheduler events came that none was kept after {after_s:.3g} s")

    def _read(self) -> bytes:
        """Return the present content of the buffer. If each read is an event itself, the buffer never empties."""
        pieces, size = [], 0
        with contextlib.suppress(BlockingIOError):
            while size < MOST_UNPARSED_BYTES and (piece := os.read(self._pipe, 1 << 16)):
                pieces.append(piece)
                size += len(piece)
        return b"".join(pieces)

    def _write(self, name: str, value: str) -> None:
        (self._instance / name).write_text(value)

    def _remove(self) -> None:
        """Remove the instance; this ends its events and frees its buffer."""
        try:
            self._instance.rmdir()
        except OSError as error:
            self._problems.append(
                f"tracefs: the trace instance {self._instance.name} was not removed ({_reason(error)})"
            )


def mask_text(processors: Iterable[int]) -> str:
    """Return a processor mask as the kernel reads it: hexadecimal words of 32 bits, the highest first."""
    bits = sum(1 << processor for processor in set(processors))
    words = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(1, bits.bit_length()), 32)]
    return ",".join(reversed(words))


@contextlib.contextmanager
def tracefs(mounts: Path = MOUNTS) -> Iterator[Path]:
    """Yield the folder of tracefs; without one, mount tracefs for this process alone while the block runs.

    An OSError says that tracefs is not mounted and cannot be mounted.
    """
    if not mounts.exists():
        raise OSError("this system has no tracefs")
    fields = (line.split() for line in mounts.read_text().splitlines())
    place = next((Path(words[1]) for words in fields if words[2] == "tracefs" and "rw" in words[3].split(",")), None)
    if place is not None:
        yield place
        return
    mount = _mount_detached()
    try:
        yield Path(f"/proc/self/fd/{mount}")
    finally:
        os.close(mount)


def _mount_detached() -> int:
    """Mount tracefs without a path and return the file descriptor of the mount."""
    context = _system_call(_FSOPEN, b"tracefs", _CLOEXEC)
    try:
        _system_call(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _system_call(_FSMOUNT, context, _CLOEXEC, 0)
    finally:
        os.close(context)


def _system_call(number: int, *values: object) -> int:
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, *values))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _remove_abandoned(root: Path) -> None:
    """Remove instances of killed processes; the kernel refuses to remove one in use, also from another container."""
    for instance in (root / "instances").glob(f"{PREFIX}*_*"):
        process_id = instance.name.removeprefix(PREFIX).partition("_")[0]
        if not Path("/proc", process_id).exists():
            with contextlib.suppress(OSError):
                instance.rmdir()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)

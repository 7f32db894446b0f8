"""Scheduler events from Linux's tracefs: a private trace instance, on the processors that this process may use.

All threads there are recorded, not ours alone: who ran instead can be told only from all, and a processor that another
process holds makes two threads of ours share one, which their own switches would not explain.

The instance is nobody else's, so other tracers on the machine keep their settings, and it goes when the block ends,
also after an exception. Where tracefs is not mounted it is mounted without a place in any folder (fsmount, Linux 5.2):
such a mount is seen by this process alone and goes with it. What a killed process left is removed by the next one.

The trace runs on the clock ``mono``, which is CLOCK_MONOTONIC and so the clock of ``time.perf_counter`` on Linux; that
is checked by a mark, not assumed, and so is the number by which the kernel knows this thread: in a container it is
another than the process sees. Facts: Documentation/trace/ftrace.rst and events.rst of the Linux source.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

from common.os_events.events import INCOMPLETE, TRACEFS, EventLog, OsEvent
from common.os_events.sched_trace import SchedulerTrace, find_mark

PREFIX = "onnx_profile_"
EVENTS = ("task/task_newtask", "sched/sched_waking", "sched/sched_switch")
BUFFER_KIB = 1024  # per processor: some 16,000 events
DRAIN_PERIOD_S = 0.5
CLOCK_TOLERANCE_S = 2e-6  # the trace prints whole µs
REMEDY = "run as root, or let root mount it: mount -t tracefs nodev /sys/kernel/tracing"

MOUNTS = Path("/proc/self/mounts")
TASKS = Path("/proc/self/task")
# Numbers of system calls, the same on all processors since Linux 5.2 but Alpha (include/uapi/asm-generic/unistd.h).
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSCONFIG_CMD_CREATE, _CLOEXEC = 6, 1

Clock = Callable[[], float]


class TracefsRecorder:
    """Records when threads of this process were kept from running, and who ran instead.

    Args:
        root: where tracefs stands; None: where it is mounted, or mounted for this process.
        clock: gives seconds, on CLOCK_MONOTONIC.
        buffer_kib: ring buffer per processor.
    """

    name = TRACEFS

    def __init__(
        self, root: Path | None = None, *, clock: Clock = time.perf_counter, buffer_kib: int = BUFFER_KIB
    ) -> None:
        """Start nothing yet."""
        self.is_recording = False
        self._root = root
        self._clock = clock
        self._buffer_kib = buffer_kib
        self._log = EventLog()
        self._trace = SchedulerTrace(set(), 0)
        self._problems: list[str] = []
        self._stack = contextlib.ExitStack()

    @property
    def events(self) -> list[OsEvent]:
        """The intervals so far, by time."""
        return self._log.sorted()

    @property
    def lost_count(self) -> int:
        """Events that the kernel overwrote before they were read."""
        return self._trace.lost_count

    @property
    def switch_count(self) -> int:
        """Switches that were read."""
        return self._trace.switch_count

    @property
    def unseen_count(self) -> int:
        """Intervals whose end the kernel did not record."""
        return self._trace.unseen_count

    @property
    def own_thread_ids(self) -> frozenset[int]:
        """Threads of this process that were seen, as the kernel numbers them."""
        return frozenset(self._trace.own)

    @property
    def notes(self) -> list[str]:
        """What is missing, and the remedy."""
        notes = list(self._problems)
        if self.lost_count:
            notes.append(f"{INCOMPLETE}{self.lost_count} scheduler events were overwritten before being read")
        if self.unseen_count:
            notes.append(f"{INCOMPLETE}{self.unseen_count} intervals are left out, the kernel hid their end")
        if dropped := self._log.dropped_count:
            notes.append(f"{INCOMPLETE}the {dropped} shortest intervals are left out")
        return notes

    def __enter__(self) -> TracefsRecorder:
        """Start recording, or leave a note why not. To be entered before the runtime makes its threads."""
        try:
            self._start()
        except OSError as error:
            self._stack.close()
            self._problems.append(f"tracefs: cannot be used ({_reason(error)}); {REMEDY}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Read the rest and remove the instance."""
        if self.is_recording:
            with contextlib.suppress(OSError):
                self._write("tracing_on", "0")
            self._drain()
        if self.is_recording:
            self._trace.finish()
        self.is_recording = False
        self._stack.close()

    def restart(self) -> None:
        """Forget the intervals so far and what was lost, not the threads."""
        if self.is_recording:
            self._drain()
            self._log = EventLog()
            self._trace.forget()

    def drain_if_due(self) -> None:
        """Read the buffer, at most every ``DRAIN_PERIOD_S``."""
        if self.is_recording and self._clock() - self._drained_s >= DRAIN_PERIOD_S:
            self._drain()

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
        self._trace = SchedulerTrace(self._threads(thread_id), thread_id)
        self._drained_s = self._clock()
        self.is_recording = True

    def _kernel_thread_id(self) -> int:
        """The kernel's number of this thread, by a mark; checks that the trace's clock is ours."""
        before_s = self._clock()
        text = f"{PREFIX}{before_s!r}"
        self._write("trace_marker", text)
        after_s = self._clock()
        mark = find_mark(self._read(), text)
        if mark is None:
            raise OSError("a mark that was written does not show up")
        if not before_s - CLOCK_TOLERANCE_S <= mark.time_s <= after_s + CLOCK_TOLERANCE_S:
            raise OSError("its clock is not the clock of this process")
        return mark.thread_id

    def _threads(self, thread_id: int) -> set[int]:
        """The threads of this process by now, where the kernel's numbers for them can be known."""
        tasks = {int(path.name) for path in TASKS.iterdir()}
        if thread_id == threading.get_native_id():
            return tasks
        if len(tasks) > 1:
            self._problems.append("os_events: threads made before the recording are not known in this container")
        return {thread_id}

    def _drain(self) -> None:
        try:
            text = self._read()
        except OSError as error:
            self.is_recording = False
            self._problems.append(f"{INCOMPLETE}tracefs failed in mid-run ({_reason(error)})")
            return
        self._log.extend(self._trace.feed(text))
        self._drained_s = self._clock()

    def _read(self) -> str:
        pieces = []
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._pipe, 1 << 16):
                pieces.append(piece)
        return b"".join(pieces).decode(errors="replace")

    def _write(self, name: str, value: str) -> None:
        (self._instance / name).write_text(value)

    def _remove(self) -> None:
        """Remove the instance, which ends its events and frees its buffer."""
        try:
            self._instance.rmdir()
        except OSError as error:
            self._problems.append(f"tracefs: the trace instance {self._instance.name} stays behind ({_reason(error)})")


def mask_text(processors: Iterable[int]) -> str:
    """Processors as the kernel reads a mask: hexadecimal words of 32 bits, the highest first."""
    bits = sum(1 << processor for processor in set(processors))
    words = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(1, bits.bit_length()), 32)]
    return ",".join(reversed(words))


@contextlib.contextmanager
def tracefs(mounts: Path = MOUNTS) -> Iterator[Path]:
    """Where tracefs stands, or a mount of it for this process alone, for as long as the block runs.

    Raises:
        OSError: it is not mounted and cannot be.
    """
    if not mounts.exists():
        raise OSError("this system has none")
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
    """A descriptor of a new mount of tracefs that has no place in any folder."""
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
    """Remove instances of processes that were killed; one that is in use refuses, also from another container."""
    for instance in (root / "instances").glob(f"{PREFIX}*_*"):
        process_id = instance.name.removeprefix(PREFIX).partition("_")[0]
        if not Path("/proc", process_id).exists():
            with contextlib.suppress(OSError):
                instance.rmdir()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)

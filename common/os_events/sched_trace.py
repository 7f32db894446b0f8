"""Parser of the kernel's scheduler trace: intervals in which a thread of this process had no processor.

Three events are read (``include/trace/events/sched.h`` and ``task.h`` in the Linux source): ``sched_switch``: one
thread gives way to another on a processor; ``sched_waking``: a sleeping thread becomes runnable; ``task_newtask``: a
thread is created, which identifies new threads of this process. A thread that gives way in state ``R`` or ``R+`` could
have gone on: it was preempted. A thread that gives way in another state goes to sleep, which is no disturbance. The
time from its waking until it runs again is a disturbance if another thread had the processor.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from common.os_events.events import EventKind, OsEvent

IDLE_THREAD_ID = 0
KEPT_SLICES = 4096  # per processor
# An idle processor takes up to tens of µs to leave its sleep state; no other thread runs on it in that time.
IDLE_WAKE_LIMIT_US = 100.0
CLONE_THREAD = 0x10000  # include/uapi/linux/sched.h
CROWDING_SHARE = 0.5  # share of an interval for which one thread held one other processor

_HEAD = r"\[(?P<cpu>\d+)\] +\S+ +(?P<time>\d+\.\d+): "
# A thread's name may contain spaces and punctuation, so the pattern matches the fields around it.
_SWITCH = re.compile(
    _HEAD + r"sched_switch: prev_comm=(?P<prev>.*) prev_pid=(?P<prev_id>\d+) prev_prio=-?\d+ prev_state=(?P<state>\S+)"
    r" ==> next_comm=(?P<next>.*) next_pid=(?P<next_id>\d+) next_prio=-?\d+"
)
_WAKING = re.compile(_HEAD + r"sched_waking: comm=.* pid=(?P<id>\d+) prio=-?\d+ .*target_cpu=(?P<target>\d+)")
_NEW_TASK = re.compile(
    r"-(?P<maker>\d+) +" + _HEAD + r"task_newtask: pid=(?P<id>\d+) comm=.* clone_flags=(?P<flags>[0-9a-f]+)"
)
_MARK = re.compile(r"-(?P<id>\d+) +" + _HEAD + r"tracing_mark_write: (?P<text>.*)")
_LOST = re.compile(r"CPU:\d+ \[LOST (?P<count>\d+) EVENTS\]")


class Thread(NamedTuple):
    """A thread by the kernel's name and id."""

    name: str
    thread_id: int


@dataclass(frozen=True, slots=True)
class _Slice:
    start_s: float
    end_s: float
    thread: Thread


class Processors:
    """Time slices of threads, by processor."""

    def __init__(self) -> None:
        self._known_since_s = float("-inf")  # the first thread to leave a processor ran before the recording
        self._running: dict[int, tuple[float, Thread]] = {}
        self._slices: dict[int, deque[_Slice]] = {}

    def switch(self, processor: int, time_s: float, leaving: Thread, coming: Thread) -> None:
        """Record that one thread gave way to another."""
        start_s, _ = self._running.get(processor, (self._known_since_s, leaving))
        self._slices.setdefault(processor, deque(maxlen=KEPT_SLICES)).append(_Slice(start_s, time_s, leaving))
        self._running[processor] = (time_s, coming)

    def forget(self) -> None:
        """Forget all slices because switches were lost: which threads ran since then is unknown."""
        self._known_since_s = float("inf")
        self._running.clear()
        self._slices.clear()

    def shares_s(self, processor: int, start_s: float, end_s: float) -> dict[Thread, float]:
        """Return the time that each thread ran on a processor in an interval; the idle thread is left out."""
        shares: dict[Thread, float] = {}
        since_s, now = self._running.get(processor, (float("inf"), None))
        current = [_Slice(since_s, float("inf"), now)] if now else []
        for piece in (*current, *reversed(self._slices.get(processor, ()))):
            if piece.end_s <= start_s:
                break
            length_s = min(piece.end_s, end_s) - max(piece.start_s, start_s)
            if length_s > 0 and piece.thread.thread_id != IDLE_THREAD_ID:
                shares[piece.thread] = shares.get(piece.thread, 0.0) + length_s
        return shares

    def others(self, processor: int) -> list[int]:
        return [other for other in self._slices if other != processor]


class Mark(NamedTuple):
    """A line that this process wrote into the trace: the kernel's id of the writing thread, and the time."""

    thread_id: int
    time_s: float


@dataclass(frozen=True, slots=True)
class _Off:
    """A thread that could run and has no processor."""

    kind: EventKind
    since_s: float
    processor_index: int


class SchedulerTrace:
    """Parses the trace piece by piece; keeps which threads have no processor and which ran lately.

    ``own`` are the kernel's ids of the threads of this process; threads that they create are added.
    """

    def __init__(self, own: set[int], main_thread_id: int) -> None:
        self.switch_count = 0
        self.lost_count = 0  # events that the kernel overwrote before they were read
        self.unseen_count = 0  # intervals whose end the kernel did not record
        self.own = own
        self._main_thread_id = main_thread_id
        self._off: dict[int, _Off] = {}
        self._processors = Processors()
        self._rest = ""

    def forget(self) -> None:
        """Count losses anew; the state of threads and processors stays known."""
        self.lost_count = self.unseen_count = 0

    def feed(self, text: str) -> list[OsEvent]:
        """Return the intervals that end in this piece of the trace."""
        *lines, self._rest = (self._rest + text).split("\n")
        events = (self._line(line) for line in lines)
        return [event for event in events if event is not None]

    def finish(self) -> None:
        """End the trace. The main thread runs now, so if it seems to have no processor, its return was not seen."""
        self.unseen_count += self._off.pop(self._main_thread_id, None) is not None

    def _line(self, line: str) -> OsEvent | None:
        if match := _SWITCH.search(line):
            return self._switch(match)
        if match := _WAKING.search(line):
            self._wake(match)
        elif match := _NEW_TASK.search(line):
            if int(match["maker"]) in self.own and int(match["flags"], 16) & CLONE_THREAD:
                self.own.add(int(match["id"]))
        elif match := _LOST.match(line):
            self.lost_count += int(match["count"])
            self._off.clear()  # the return of any of them may be among the lost events
            self._processors.forget()
        return None

    def _wake(self, match: re.Match[str]) -> None:
        thread_id = int(match["id"])
        if thread_id in self.own and thread_id not in self._off:
            self._off[thread_id] = _Off("waited", float(match["time"]), int(match["target"]))

    def _switch(self, match: re.Match[str]) -> OsEvent | None:
        self.switch_count += 1
        time_s, processor = float(match["time"]), int(match["cpu"])
        leaving, coming = Thread(match["prev"], int(match["prev_id"])), Thread(match["next"], int(match["next_id"]))
        self._processors.switch(processor, time_s, leaving, coming)
        if leaving.thread_id in self.own:
            # Some kernels hide the switches away from protected threads; the end of such an interval is unknown.
            self.unseen_count += self._off.pop(leaving.thread_id, None) is not None
            if match["state"].startswith("R"):
                self._off[leaving.thread_id] = _Off("preempted", time_s, processor)
        off = self._off.pop(coming.thread_id, None)
        return self._interval(coming.thread_id, off, time_s) if off else None

    def _interval(self, thread_id: int, off: _Off, end_s: float) -> OsEvent | None:
        duration_us = 1e6 * (end_s - off.since_s)
        shares_s = self._processors.shares_s(off.processor_index, off.since_s, end_s)
        other = max(shares_s, key=lambda thread: shares_s[thread], default=None)
        if off.kind == "waited" and other is None and duration_us < IDLE_WAKE_LIMIT_US:
            return None
        is_own = other.thread_id in self.own if other else None
        crowding = self._crowding(off, end_s) if is_own else None
        return OsEvent(
            off.kind,
            off.since_s,
            duration_us,
            event_count=1,
            lost_us=duration_us,
            thread_id=thread_id,
            is_main_thread=thread_id == self._main_thread_id,
            processor_index=off.processor_index,
            other_process=other.name if other else None,
            other_process_id=other.thread_id if other else None,
            is_own_thread=is_own,
            crowding_process=crowding.name if crowding else None,
            crowding_process_id=crowding.thread_id if crowding else None,
        )

    def _crowding(self, off: _Off, end_s: float) -> Thread | None:
        """Return a thread of another process that held another processor for most of the interval."""
        held = [
            (share_s, thread)
            for processor in self._processors.others(off.processor_index)
            for thread, share_s in self._processors.shares_s(processor, off.since_s, end_s).items()
            if thread.thread_id not in self.own
        ]
        share_s, thread = max(held, default=(0.0, None))
        return thread if share_s > CROWDING_SHARE * (end_s - off.since_s) else None


def find_mark(text: str, wanted: str) -> Mark | None:
    """Return the mark with the wanted text, or None."""
    marks = (match for line in text.split("\n") if (match := _MARK.search(line)))
    return next((Mark(int(m["id"]), float(m["time"])) for m in marks if m["text"] == wanted), None)

"""Who ran on each processor and when, as far back as an interval can ask."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

IDLE_THREAD_ID = 0
KEPT_SLICES = 4096  # per processor


class Thread(NamedTuple):
    """A thread as the kernel names and numbers it."""

    name: str
    thread_id: int


@dataclass(frozen=True, slots=True)
class _Slice:
    start_s: float
    end_s: float
    thread: Thread


class Processors:
    """The slices of time that threads ran in, by processor."""

    def __init__(self) -> None:
        """Nothing is known yet: what a processor first gives up has run on it since before the recording."""
        self._known_since_s = float("-inf")
        self._running: dict[int, tuple[float, Thread]] = {}
        self._slices: dict[int, deque[_Slice]] = {}

    def switch(self, processor: int, time_s: float, leaving: Thread, coming: Thread) -> None:
        """One thread gives way to another."""
        start_s, _ = self._running.get(processor, (self._known_since_s, leaving))
        self._slices.setdefault(processor, deque(maxlen=KEPT_SLICES)).append(_Slice(start_s, time_s, leaving))
        self._running[processor] = (time_s, coming)

    def forget(self) -> None:
        """Switches are missing: nothing that began before is known to have gone on."""
        self._known_since_s = float("inf")
        self._running.clear()
        self._slices.clear()

    def shares_s(self, processor: int, start_s: float, end_s: float) -> dict[Thread, float]:
        """How long each thread ran on a processor in an interval; the idle thread is left out."""
        shares: dict[Thread, float] = {}
        since_s, now = self._running.get(processor, (float("inf"), None))
        current = [_Slice(since_s, float("inf"), now)] if now else []
        for one in (*current, *reversed(self._slices.get(processor, ()))):
            if one.end_s <= start_s:
                break
            length_s = min(one.end_s, end_s) - max(one.start_s, start_s)
            if length_s > 0 and one.thread.thread_id != IDLE_THREAD_ID:
                shares[one.thread] = shares.get(one.thread, 0.0) + length_s
        return shares

    def others(self, processor: int) -> list[int]:
        """Every other processor that was seen."""
        return [other for other in self._slices if other != processor]

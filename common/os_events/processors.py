"""Which thread ran on each processor and when, over the recent past."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

IDLE_THREAD_ID = 0
KEPT_SLICES = 4096  # per processor


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

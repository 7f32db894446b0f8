"""Ticks for every client: a slot per client that holds the newest message alone, and deadlines that do not drift.

One queue that clients share gives each message to one of them. A queue per client grows with the slowest. A slot does
neither: a client that reads gets every tick, one that does not misses ticks, and delays nobody.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

RATE_HZ = 10
LATEST_S = 1.0  # deadlines that are further behind are left out: the host was suspended


class Slot:
    """The newest message for one client.

    Attributes:
        skipped_count: messages that were replaced before the client took them.
    """

    __slots__ = ("_filled", "_message", "skipped_count")

    def __init__(self) -> None:
        self.skipped_count = 0
        self._message = ""
        self._filled = asyncio.Event()

    def put(self, message: str) -> None:
        """Replace what the client has not taken."""
        self.skipped_count += self._filled.is_set()
        self._message = message
        self._filled.set()

    async def take(self) -> str:
        """Wait for a message that was not taken before."""
        await self._filled.wait()
        self._filled.clear()
        return self._message


class Hub:
    """Slots of the clients that are connected."""

    def __init__(self) -> None:
        self._slots: set[Slot] = set()

    def __len__(self) -> int:
        return len(self._slots)

    def join(self) -> Slot:
        """Return a slot that gets every message from now on."""
        slot = Slot()
        self._slots.add(slot)
        return slot

    def leave(self, slot: Slot) -> None:
        """Drop a slot; it may be dropped already."""
        self._slots.discard(slot)

    def publish(self, message: str) -> None:
        for slot in self._slots:
            slot.put(message)


async def tick_forever(tick: Callable[[int, float], None], rate_hz: float = RATE_HZ) -> None:
    """Call a function with 1, 2, 3 … and how late it is in s, at absolute deadlines: call k is due after k periods.

    Sleeping for one period after each call drifts by the duration of the call. A call that is late is made up for, so
    that a busy host loses none, unless it is later than ``LATEST_S``. Between two calls every waiting task has a turn.
    """
    now_s = asyncio.get_running_loop().time
    start_s, done = now_s(), 0
    while True:
        done = next_tick(done, now_s() - start_s, rate_hz)
        due_s = start_s + done / rate_hz
        await asyncio.sleep(max(0.0, due_s - now_s()))
        tick(done, now_s() - due_s)


def next_tick(done: int, passed_s: float, rate_hz: float) -> int:
    """Return which tick comes after one that is done: the next one, or the first that is not hopelessly late."""
    return max(done + 1, math.ceil((passed_s - LATEST_S) * rate_hz))

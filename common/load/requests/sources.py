"""Sources of requests: a schedule that waits for nobody (open loop), or users who wait for answers (closed)."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol

from common.load.requests.schedules import Arrivals
from common.messages.errors import UnusableValueError

MOST_USERS = 1_000_000
Arrival = tuple[int, int]  # the intended start in ns, and the length


class Source(Protocol):
    """Requests as they come; every time is in ns from the start of the load."""

    def due(self, now_ns: int) -> Iterable[Arrival]:
        """Return the requests that have come since the last call."""

    def expected_ns(self, count: int) -> int | None:
        """Return when the next ``count`` requests will have come; None where nobody knows."""

    def settled(self, requests: Sequence[int], now_ns: int) -> None:
        """Take note of requests that were answered or given up."""

    @property
    def is_over(self) -> bool:
        """Whether no further request will come."""


class OpenLoop:
    """A schedule: each request starts at its time, whatever became of those before."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._intended_ns = array("q", arrivals.intended_ns.tobytes())
        self._lengths = array("q", b"" if arrivals.lengths is None else arrivals.lengths.tobytes())
        self._next = 0

    def due(self, now_ns: int) -> list[Arrival]:
        first, times, count = self._next, self._intended_ns, len(self._intended_ns)
        end = first
        while end < count and times[end] <= now_ns:
            end += 1
        self._next = end
        if self._lengths:
            return [(times[i], self._lengths[i]) for i in range(first, end)]
        return [(times[i], 0) for i in range(first, end)]

    def expected_ns(self, count: int) -> int | None:
        """Return when the next ``count`` requests will have come, or the last one where there are fewer."""
        last = min(self._next + count, len(self._intended_ns)) - 1
        return self._intended_ns[last] if last >= self._next else None

    def settled(self, requests: Sequence[int], now_ns: int) -> None:
        """Do nothing: a schedule waits for nobody."""

    @property
    def is_over(self) -> bool:
        return self._next == len(self._intended_ns)


class ClosedLoop:
    """Users who each send a request, wait for the answer, think, and send the next one.

    A slow answer delays all that its user would have sent meanwhile, so the latencies leave out what an open loop
    shows (coordinated omission, G. Tene).

    Args:
        duration_ns: nobody sends a request from then on.
        most_requests: nobody sends more than these in all.
        think_ns: time from an answer to the next request of the same user.
        lengths: lengths of the requests, over and over.
    """

    def __init__(
        self,
        users: int,
        duration_ns: int,
        *,
        most_requests: int | None = None,
        think_ns: int = 0,
        lengths: Sequence[int] = (0,),
    ) -> None:
        if not 1 <= users <= MOST_USERS:
            raise UnusableValueError("users", f"{users}", f"it takes a whole number from 1 to {MOST_USERS:,}")
        self._duration_ns, self._most, self._think_ns = duration_ns, most_requests, think_ns
        self._lengths, self._sent = lengths, 0
        self._waiting = [0] * users  # when each user who awaits no answer sends the next request
        self._in_flight = 0

    def due(self, now_ns: int) -> list[Arrival]:
        sent: list[Arrival] = []
        while self._waiting and self._waiting[0] <= now_ns and self._may_send:
            sent.append((heapq.heappop(self._waiting), self._lengths[self._sent % len(self._lengths)]))
            self._sent += 1
        self._in_flight += len(sent)
        return sent

    @property
    def _may_send(self) -> bool:
        return (self._most is None or self._sent < self._most) and self._waiting[0] < self._duration_ns

    def expected_ns(self, count: int) -> int | None:
        """Return when the next ``count`` requests will have come; None where they depend on answers."""
        if not self._waiting or not self._may_send:
            return None
        return self._waiting[0] if count > len(self._waiting) else heapq.nsmallest(count, self._waiting)[-1]

    def settled(self, requests: Sequence[int], now_ns: int) -> None:
        """Let the users of these requests think, and send the next ones."""
        self._in_flight -= len(requests)
        for _ in requests:
            heapq.heappush(self._waiting, now_ns + self._think_ns)

    @property
    def is_over(self) -> bool:
        return not self._in_flight and not (self._waiting and self._may_send)

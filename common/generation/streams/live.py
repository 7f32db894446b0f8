"""Tokens as they come, for a dashboard: their rate and their times over the last seconds, and the requests that ended.

The thread that serves enters tokens, and the thread of the telemetry takes figures; neither waits for the other.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from common.generation.loop import Token
from common.generation.streams.engine import Clock, StreamRequest, TokenService, TokenStream

WINDOW_S = 10.0
KEPT = 4096  # newest tokens; a service with more of them in the window has a shorter one
NS_PER_S, NS_PER_US = 1e9, 1e3


class LiveTokens:
    """The newest tokens of a load. Its requests are runs of the dashboard, with the latency of the whole answer."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self.clock_ns, self.begin_ns = clock_ns, clock_ns()
        self._ends_ns = deque[int](maxlen=KEPT)
        self._firsts = deque[tuple[int, float]](maxlen=KEPT)
        self._gaps = deque[tuple[int, float]](maxlen=KEPT)
        self._answers_us, self._answer_us = deque[float](), 0.0
        self.waiting: Callable[[], int] | None = None
        self.admitted_count = 0

    def token(self, duration_us: float, *, is_first: bool) -> None:
        """Enter a token with its time: since the request for a first one, else since the token before."""
        now_ns = self.clock_ns()
        (self._firsts if is_first else self._gaps).append((now_ns, duration_us))
        self._ends_ns.append(now_ns)

    def answer(self, latency_us: float) -> None:
        """Enter a whole answer."""
        self._answers_us.append(latency_us)

    def take(self) -> tuple[list[float], int, dict[str, float]]:
        """Return latencies in µs of the answers since the last look, no failures, and the figures of now."""
        now_ns, ends_ns = self.clock_ns(), self._ends_ns.copy()
        since_ns = max(self.begin_ns, now_ns - WINDOW_S * NS_PER_S, ends_ns[0] if len(ends_ns) == KEPT else 0)
        tokens = sum(end_ns > since_ns for end_ns in ends_ns)
        figures = {"output_tokens_per_s": tokens / max((now_ns - since_ns) / NS_PER_S, 1e-9)}
        for name, times in (("time_to_first_token_us", self._firsts), ("inter_token_us", self._gaps)):
            if newest := [duration_us for end_ns, duration_us in times.copy() if end_ns > since_ns]:
                figures[name] = fmean(newest)
        if self.waiting:
            waiting = self.waiting()
            in_flight = self.admitted_count + waiting
            figures |= {"in_flight_count": float(in_flight), "queue_depth_count": float(waiting)}
        return [self._answers_us.popleft() for _ in range(len(self._answers_us))], 0, figures

    def heard(self, token: Token, *, is_last: bool) -> None:
        """Enter a token of the loop of generation, whose answer's latency is the sum of its tokens' times."""
        self._answer_us = token.time_us if token.index == 0 else self._answer_us + token.time_us
        self.token(token.time_us, is_first=token.index == 0)
        if is_last:
            self.answer(self._answer_us)


class WatchedService:
    """A service whose tokens are entered as they come. The load begins when it is made.

    Args:
        requests: of the load, by their intended start.
        clock: the one that the load is served by. All times of a request are read from it.
    """

    def __init__(
        self, service: TokenService, live: LiveTokens, requests: Sequence[StreamRequest], clock: Clock
    ) -> None:
        self._service, self._live, self._clock = service, live, clock
        self._intended_ns = [request.intended_ns for request in requests]
        self._begun_count = 0
        live.begin_ns = live.clock_ns()
        live.waiting = self._waiting_count

    def begin(self, stream: TokenStream) -> None:
        self._begun_count += 1
        self._live.admitted_count += 1
        self._service.begin(stream)
        self._live.token((self._clock.now_ns() - stream.request.intended_ns) / NS_PER_US, is_first=True)

    def step(self, streams: Sequence[TokenStream]) -> Iterator[Sequence[TokenStream]]:
        for served in self._service.step(streams):
            now_ns = self._clock.now_ns()
            for stream in served:
                self._live.token((now_ns - stream.token_ns[-1]) / NS_PER_US, is_first=False)
            yield served

    def end(self, stream: TokenStream) -> None:
        self._service.end(stream)
        self._live.admitted_count -= 1
        self._live.answer((stream.token_ns[-1] - stream.request.intended_ns) / NS_PER_US)

    def _waiting_count(self) -> int:
        """Return the requests that have come and were not admitted."""
        return max(0, bisect_right(self._intended_ns, self._clock.now_ns()) - self._begun_count)

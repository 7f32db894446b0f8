"""The loop that serves token streams: when each stream is admitted, and when each of its tokens came.

All intended starts are known beforehand, so no thread sends, and a busy service shifts no intended start. Each time
counts from the intended start. The loop gets the clock and the model from its caller, so tests run it on a virtual
clock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from common.messages.errors import PipelineError

Policy = Literal["static", "continuous"]
NS_PER_S = 1e9
POLICIES: tuple[Policy, ...] = ("static", "continuous")


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request: when it is intended to start, in ns from the start of the load, and its lengths in tokens."""

    intended_ns: int
    prompt_count: int
    output_count: int


@dataclass(slots=True)
class TokenStream:
    """A request that is served: its place in the load, when it was admitted, and when each token came."""

    index: int
    request: StreamRequest
    admitted_ns: int
    token_ns: list[int] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return len(self.token_ns) >= self.request.output_count


class Clock(Protocol):
    """Time in ns from the start of the load."""

    def now_ns(self) -> int: ...

    def wait_until(self, time_ns: int) -> None: ...


class WallClock:
    """Time by the performance counter since the load began."""

    def __init__(self) -> None:
        self.begin_ns = time.perf_counter_ns()

    def now_ns(self) -> int:
        return time.perf_counter_ns() - self.begin_ns

    def wait_until(self, time_ns: int) -> None:
        if (left_ns := time_ns - self.now_ns()) > 0:
            time.sleep(left_ns / NS_PER_S)


class TokenService(Protocol):
    """A model that serves streams; each stream has caches of its own."""

    def begin(self, stream: TokenStream) -> None:
        """Run the prompt, which gives the first token."""

    def step(self, streams: Sequence[TokenStream]) -> Iterable[Sequence[TokenStream]]:
        """Give each stream its next token; when a call ends, yield the streams that it served."""

    def end(self, stream: TokenStream) -> None:
        """Release the caches of a stream."""


def serve(
    requests: Sequence[StreamRequest], service: TokenService, policy: Policy, most: int, clock: Clock
) -> Iterable[TokenStream]:
    """Serve requests in the order in which they arrive, and yield each stream as it ends.

    Args:
        requests: by their intended start.
        policy: ``static``: streams are admitted together, and the next ones when all of them have ended;
            ``continuous``: a stream is admitted between two tokens as soon as fewer than ``most`` are in flight
            (iteration-level scheduling, Yu et al. 2022, Orca, OSDI, section 3).
        most: the most streams in flight.
    """
    waiting, active = deque(enumerate(requests)), list[TokenStream]()
    while waiting or active:
        if not active:
            clock.wait_until(waiting[0][1].intended_ns)
        is_open = policy == "continuous" or not active
        while is_open and waiting and len(active) < most and waiting[0][1].intended_ns <= clock.now_ns():
            stream = TokenStream(*waiting.popleft(), clock.now_ns())
            service.begin(stream)
            stream.token_ns.append(clock.now_ns())
            active.append(stream)
        yield from _ended(active, service)
        for served in service.step(active) if active else ():
            for stream in served:
                stream.token_ns.append(clock.now_ns())
        yield from _ended(active, service)


def serve_after_warm_up(
    requests: Sequence[StreamRequest],
    service: TokenService,
    policy: Policy,
    most: int,
    progress: Callable[[int, int], None],
    watched: Callable[[Clock], TokenService] | None = None,
) -> tuple[list[TokenStream], PipelineError | None]:
    """Serve a short request, then all requests; return the streams that ended, and why others did not.

    Args:
        watched: makes the same service anew for all requests but the warm-up, from the clock that they are served by.
        progress: gets the number of streams that ended, and of all requests.

    Raises:
        PipelineError: a call fails before any stream has ended.
    """
    longest = max(requests, key=lambda request: request.output_count)
    warm_up = StreamRequest(0, longest.prompt_count, min(2, longest.output_count))  # the buffers have room for it
    list(serve([warm_up], service, "static", 1, WallClock()))
    streams, clock = list[TokenStream](), WallClock()
    service = watched(clock) if watched else service
    try:
        for stream in serve(requests, service, policy, most, clock):
            streams.append(stream)
            progress(len(streams), len(requests))
    except PipelineError as error:
        if not streams:
            raise
        return streams, error
    return streams, None


def _ended(active: list[TokenStream], service: TokenService) -> Iterable[TokenStream]:
    """Remove finished streams from those in flight, and yield them."""
    for stream in [stream for stream in active if stream.is_finished]:
        active.remove(stream)
        service.end(stream)
        yield stream

"""Services to load: one that is ready, and services of any shape, one open at a time, for the search."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from common.load.arrivals import Arrivals
from common.load.batching import BatchPolicy
from common.load.clocked import run
from common.load.figures import Flops
from common.load.optimum import Shape
from common.load.record import LoadRecord
from common.load.sessions import SessionService
from common.load.sources import Source
from common.runtime.session import SessionSettings


@dataclass(frozen=True, slots=True)
class Prepared:
    """A service that is warm, and what is needed to load it; users who wait for answers have no arrivals."""

    service: SessionService
    policy: BatchPolicy
    arrivals: Arrivals | None
    flops: Flops
    options: SessionSettings


class SessionRig:
    """Runs loads on sessions by the clock.

    Args:
        open_service: makes a service of so many sessions with so many threads each.
        power_w: returns the mean power between two times of ``time.perf_counter``, or None.
    """

    def __init__(
        self, open_service: Callable[[int, int], SessionService], power_w: Callable[[float, float], float | None]
    ) -> None:
        self._open_service = open_service
        self.power_w = power_w
        self._service: SessionService | None = None
        self._shape: Shape | None = None
        self._warm: set[int] = set()

    def run(self, shape: Shape, source: Source, policy: BatchPolicy, last_ns: int | None) -> LoadRecord:
        """Let requests come to a service of a shape; the service of another shape is closed first."""
        if self._service is None or shape != self._shape:
            self._service, self._shape = None, None  # its memory is free before the next one takes its own
            self._service, self._shape, self._warm = self._open_service(*shape), shape, set()
        if policy.most not in self._warm:
            self._service.warm_up(policy, 0)
            self._warm.add(policy.most)
        return run(source, self._service, policy, last_ns=last_ns)

    def now_s(self) -> float:
        """Return the time on the clock of the power samples."""
        return time.perf_counter()

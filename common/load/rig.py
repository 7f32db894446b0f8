"""Services to load: one that is ready, and services of any shape, one open at a time, for the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from common.errors import UnusableValueError
from common.load.arrivals import Arrivals
from common.load.batching import BatchPolicy
from common.load.clocked import Listener, ServedStream, nobody, run, run_together
from common.load.concurrency import Concurrency
from common.load.demand import Demand
from common.load.figures import Flops, LoadRun
from common.load.record import LoadRecord
from common.load.search import Shape
from common.load.served_model import ServedModel, SessionShape
from common.load.service import Service
from common.load.sessions import require_batches, warm_up
from common.load.sources import Source

MOST_WORKERS = 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """A service that is warm, and the demand that it meets.

    Attributes:
        service: sessions that have run once.
        policy: how requests are batched.
        demand: which requests come.
        arrivals: when; None where that depends on answers.
        flops: FLOPs of a call by its batch size and its length.
        shape: how many sessions there are, and how they are set up.
        listener: told of each run when it begins.
    """

    service: Service
    policy: BatchPolicy
    demand: Demand
    arrivals: Arrivals | None
    flops: Flops
    shape: SessionShape
    listener: Listener = nobody

    def load(self, look: Callable[[], None] = lambda: None) -> LoadRun:
        """Let the requests come, and return the run; ``look`` is called at least every half second meanwhile."""
        return load_together([self], look)[0]

    @property
    def stream(self) -> ServedStream:
        """The requests, and the service that answers them."""
        source, last_ns = self.demand.source(self.arrivals, self.policy)
        return ServedStream(source, self.service, self.policy, last_ns, self.listener)

    def part(self, index: int, duration_s: float) -> Prepared:
        """Return the same service under a part of a long load."""
        demand = self.demand.part(index, duration_s)
        return replace(self, demand=demand, arrivals=demand.schedule())

    @property
    def figures(self) -> dict[str, Any]:
        """How requests are batched, and how the sessions are set up."""
        return {
            "arrivals": self.demand.name,
            **self.shape.figures,
            "batch_max_count": self.policy.most,
            "batch_wait_us": self.policy.wait_ns / 1e3,
        }

    def run_of(self, record: LoadRecord, *, is_open: bool) -> LoadRun:
        """Return a record with what was asked for."""
        return LoadRun(record, self.policy, self.service.worker_count, is_open, self.flops)


def load_together(services: Sequence[Prepared], look: Callable[[], None] = lambda: None) -> list[LoadRun]:
    """Let the requests of several services come at the same time; return the run of each."""
    records = run_together([one.stream for one in services], look=look)
    return [one.run_of(record, is_open=one.demand.is_open) for one, record in zip(services, records, strict=True)]


def prepare(
    model: ServedModel,
    demand: Demand,
    arrivals: Arrivals | None,
    policy: BatchPolicy,
    shape: SessionShape,
    length: int,
) -> Prepared:
    """Create the sessions of a model and warm them up.

    Raises:
        PipelineError: the runtime refuses the model, or it does not take a size or length that the policy allows.
        UnusableValueError: there are more workers than a process has threads for.
    """
    if (workers := shape.session_count * shape.replicas) > MOST_WORKERS:
        problem = f"{shape.session_count} sessions with {shape.replicas} runs at a time are {workers:,} workers"
        raise UnusableValueError("sessions, replicate", problem, f"a load test has {MOST_WORKERS:,} at most")
    service = model.service(shape)
    require_batches(model.path, service.inputs, policy.most, workers)
    warm_up(service, policy, length)
    return Prepared(service, policy, demand, arrivals, model.flops, shape)


class SessionRig:
    """Runs loads on sessions by the clock.

    Args:
        open_service: makes a service of so many sessions with so many threads each, which share the host in some way.
        power_w: returns the mean power between two times of ``time.perf_counter``, or None.
        listener: told of each run when it begins.
    """

    def __init__(
        self,
        open_service: Callable[[int, int, Concurrency], Service],
        power_w: Callable[[float, float], float | None],
        listener: Listener = nobody,
    ) -> None:
        self._open_service, self._listener = open_service, listener
        self.power_w = power_w
        self._service: Service | None = None
        self._shape: Shape | None = None
        self._warm: set[int] = set()

    def run(self, shape: Shape, source: Source, policy: BatchPolicy, last_ns: int | None) -> LoadRecord:
        """Let requests come to a service of a shape; the service of another shape is closed first."""
        if self._service is None or shape != self._shape:
            self._service, self._shape = None, None  # its memory is free before the next one takes its own
            self._service, self._shape, self._warm = self._open_service(*shape), shape, set()
        if policy.most not in self._warm:
            warm_up(self._service, policy, 0)
            self._warm.add(policy.most)
        return run(source, self._service, policy, last_ns=last_ns, listener=self._listener)

    def now_s(self) -> float:
        """Return the time on the clock of the power samples."""
        return time.perf_counter()

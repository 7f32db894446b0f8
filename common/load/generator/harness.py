"""A service that is warm, and the demand that it meets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from common.load.endpoint.endpoint_model import Connections, EndpointModel
from common.load.generator.wall_clock import Listener, ServedStream, nobody, serve_together
from common.load.requests.batching import BatchPolicy
from common.load.requests.demand import Demand
from common.load.requests.load_record import LoadRecord
from common.load.requests.rate_profile import RateStep
from common.load.requests.schedules import Arrivals
from common.load.results.load_figures import LoadTest, is_precise
from common.load.results.thresholds import USUAL_THRESHOLDS, LoadThresholds, Precision
from common.load.service.served_model import ServedModel, SessionShape
from common.load.service.service import Service
from common.load.service.sessions import require_batches, warm_up
from common.messages.errors import UnusableValueError

MOST_WORKERS = 1024


@dataclass(frozen=True, slots=True)
class Harness:
    service: Service
    policy: BatchPolicy
    demand: Demand
    arrivals: Arrivals | None  # when requests come; None if that depends on answers
    model: ServedModel | EndpointModel
    shape: SessionShape | Connections
    listener: Listener = nobody
    precision: Precision | None = None  # what ends the load before its time; None: nothing does
    thresholds: LoadThresholds = USUAL_THRESHOLDS

    def load(self, look: Callable[[], None] = lambda: None) -> LoadTest:
        """Let the requests come; ``look`` is called at least every half second meanwhile."""
        return load_together([self], look)[0]

    @property
    def stream(self) -> ServedStream:
        source, last_ns = self.demand.source(self.arrivals, self.policy)

        def is_enough(record: LoadRecord) -> bool:
            return is_precise(self.test_of(record, is_open=self.demand.is_open))

        ends_early = is_enough if self.precision else None
        return ServedStream(source, self.service, self.policy, last_ns, self.listener, ends_early)

    def part(self, index: int, duration_s: float) -> Harness:
        """Return the same service under a part of a long load."""
        demand = self.demand.part(index, duration_s)
        return replace(self, demand=demand, arrivals=demand.schedule())

    @property
    def expected_count(self) -> int:
        """The number of requests that will come, if it is known beforehand."""
        return len(self.arrivals) if self.arrivals else 0

    @property
    def figures(self) -> dict[str, object]:
        """The inputs of requests, their batching, and the set-up of the sessions."""
        return {
            "arrivals": self.demand.name,
            **self.shape.figures,
            "batch_max_count": self.policy.most,
            "batch_wait_us": self.policy.wait_ns / 1e3,
            **self.model.figures,
        }

    def test_of(self, record: LoadRecord, *, is_open: bool, steps: tuple[RateStep, ...] = ()) -> LoadTest:
        workers, flops = self.service.worker_count, self.model.flops
        return LoadTest(record, self.policy, workers, is_open, flops, self.precision, self.thresholds, steps)


def load_together(harnesses: Sequence[Harness], look: Callable[[], None] = lambda: None) -> list[LoadTest]:
    """Let the requests of several services come at the same time; return the test of each."""
    records = serve_together([harness.stream for harness in harnesses], look=look)
    return [
        harness.test_of(record, is_open=harness.demand.is_open, steps=harness.demand.steps)
        for harness, record in zip(harnesses, records, strict=True)
    ]


def prepare(
    model: ServedModel,
    shape: SessionShape,
    demand: Demand,
    arrivals: Arrivals | None,
    policy: BatchPolicy,
    thresholds: LoadThresholds,
    *,
    length: int = 0,
    precision: Precision | None = None,
    listener: Listener = nobody,
) -> Harness:
    """Create the sessions of a model and warm them up.

    Args:
        length: the longest request; 0 where all have one size.

    Raises:
        PipelineError: the runtime refuses the model, or it does not take a size or length that the policy allows.
        UnusableValueError: there are more workers than a process has threads for.
    """
    if (workers := shape.session_count * shape.replicas) > MOST_WORKERS:
        problem = f"{shape.session_count} sessions with {shape.replicas} runs at a time are {workers:,} workers"
        raise UnusableValueError("sessions, replicate", problem, f"a load test has {MOST_WORKERS:,} at most")
    service = model.service(shape)
    require_batches(model.path.name, service.inputs, policy.most, workers)
    warm_up(service, policy, length)
    return Harness(service, policy, demand, arrivals, model, shape, listener, precision, thresholds)

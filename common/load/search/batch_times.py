"""Times of batches by size, and the response times and rates that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from common.latency.dependence import Samples
from common.load.generator.virtual_clock import simulate
from common.load.requests.batching import NEVER_NS, BatchPolicy
from common.load.requests.load_record import Batch, LoadRecord
from common.load.requests.schedules import poisson
from common.load.requests.sources import ClosedLoop, OpenLoop, Source
from common.load.search.bulk_queue import predict
from common.load.search.halving import Configuration

FEWEST_BATCHES, MOST_BATCHES = 5, 2000  # of a size and worker
SIMULATED_REQUESTS, SEED = 20_000, 0
LIGHTEST, FULLEST = 0.02, 0.97  # of the capacity: rates between which the bound is sought
HALVINGS = 6

ServiceTimes = Mapping[int, Samples]  # service times in s by size of the batch
Load = Callable[[Source, BatchPolicy], LoadRecord]


@dataclass(frozen=True, slots=True)
class Response:
    """Predicted response times in µs, and the share of the time during which sessions run."""

    p50_us: float
    p99_us: float
    utilization: float


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, … and the largest size itself."""
    return sorted({*(1 << bit for bit in range(most.bit_length())), most})


def measure_times(load: Load, worker_count: int, sizes: Sequence[int], budget_s: float) -> dict[int, Samples]:
    """Measure what batches of each size take in s while all workers are busy.

    The time is that from the start of a batch to the start of the next one on the same worker: with what it takes to
    form the next batch, which is most of it for the smallest models.

    Args:
        budget_s: time for all sizes; a size gets its share of it, and no less than ``FEWEST_BATCHES`` per worker.
    """
    return {size: _measured(load, size, size * worker_count, budget_s / len(sizes)) for size in sizes}


def _measured(load: Load, size: int, users: int, budget_s: float) -> Samples:
    policy = BatchPolicy(most=size, wait_ns=NEVER_NS)
    first = load(ClosedLoop(users, NEVER_NS, most_requests=FEWEST_BATCHES * users), policy)
    typical_s = float(np.median(first.batches.ended_ns - first.batches.started_ns)) / 1e9
    count = min(MOST_BATCHES, max(FEWEST_BATCHES, round(budget_s / max(typical_s, 1e-6))))
    batches = load(ClosedLoop(users, NEVER_NS, most_requests=count * users), policy).batches
    cycles_ns = [np.diff(batches.started_ns[batches.workers == worker]) for worker in np.unique(batches.workers)]
    return np.asarray(np.concatenate(cycles_ns) / 1e9)


def every_size(times: ServiceTimes, most: int) -> list[Samples]:
    """Return the times of batches of 1, 2, … requests: those of the next larger size that was measured, scaled.

    The scale follows from the line between the means of the neighbouring sizes that were measured.
    """
    sizes = sorted(times)
    means = [float(times[size].mean()) for size in sizes]
    scaled = []
    for size in range(1, most + 1):
        near = min((own for own in sizes if own >= size), default=sizes[-1])
        scaled.append(times[near] * (np.interp(size, sizes, means) / times[near].mean()))
    return scaled


def predicted(times: ServiceTimes, setup: Configuration, rate_hz: float) -> Response | None:
    """Predict the response to Poisson arrivals; None where the queue would grow.

    One session is the queue of :mod:`common.load.search.bulk_queue`. For several sessions the same queue is simulated.
    """
    service_s = every_size(times, setup.batch_max)
    if rate_hz >= capacity_hz(times, setup):
        return None
    if setup.session_count > 1:
        return _simulated(service_s, setup, rate_hz)
    prediction = predict(rate_hz, service_s, setup.wait_s)
    if prediction is None:
        return None
    return Response(1e6 * prediction.quantile_s(0.5), 1e6 * prediction.quantile_s(0.99), prediction.utilization)


def _simulated(service_s: Sequence[Samples], setup: Configuration, rate_hz: float) -> Response:
    random = np.random.default_rng(SEED)

    def service_ns(batch: Batch, now_ns: int) -> int:
        times_s = service_s[len(batch.requests) - 1]
        return round(1e9 * float(times_s[random.integers(times_s.size)]))  # `choice` takes ten times as long

    policy = BatchPolicy(most=setup.batch_max, wait_ns=round(1e9 * setup.wait_s))
    source = OpenLoop(poisson(rate_hz, SIMULATED_REQUESTS / rate_hz, SEED))
    record = simulate(source, service_ns, policy, workers=setup.session_count)
    p50, p99 = np.quantile(record.latencies_us, [0.5, 0.99])
    busy_ns = float((record.batches.ended_ns - record.batches.started_ns).sum())
    return Response(float(p50), float(p99), busy_ns / (setup.session_count * record.ended_ns))


def capacity_hz(times: ServiceTimes, setup: Configuration) -> float:
    """Return the requests per second that full batches in all sessions answer."""
    full_s = every_size(times, setup.batch_max)[-1].mean()
    return setup.session_count * setup.batch_max / float(full_s)


def sustainable_hz(times: ServiceTimes, setup: Configuration, bound_us: float) -> float:
    """Return the rate up to which p99 is predicted to meet the bound, at least ``LIGHTEST`` of the capacity.

    Several sessions are taken as separate queues with equal shares of the requests: a little slower than one queue for
    all, and found without a simulation. A size takes its mean time: this is where a search begins, not what it finds.
    """
    means = {size: np.array([own.mean()]) for size, own in times.items()}
    alone = Configuration(setup.batch_max, setup.wait_s, 1, setup.thread_count)
    low, high = (share * capacity_hz(times, alone) for share in (LIGHTEST, FULLEST))
    for _ in range(HALVINGS):
        rate_hz = (low * high) ** 0.5
        response = predicted(means, alone, rate_hz)
        low, high = (rate_hz, high) if response and response.p99_us <= bound_us else (low, rate_hz)
    return low * setup.session_count

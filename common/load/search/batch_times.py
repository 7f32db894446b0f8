"""Times of batches by size, and the response times and rates that follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from common.latency.dependence import NORMAL_QUANTILE, Samples
from common.load.requests.batching import NEVER_NS, BatchPolicy
from common.load.requests.load_record import FAILED, LoadRecord
from common.load.requests.sources import ClosedLoop, Source
from common.load.search.bulk_queue import ROUGH, THOROUGH, SimulationSize, predict
from common.load.search.halving import Configuration

FEWEST_BATCHES, MOST_BATCHES = 5, 10_000  # of a size and worker
LEAST_TIMED = 299  # calls for a limit of their p99: 0.99^n below 5 %
KNOWN_SHARE = 0.1
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
    form the next batch, which is most of it for the smallest models. Batches that failed do not count, unless all did.

    Args:
        budget_s: time for all sizes; a size gets its share of it, and no less than ``FEWEST_BATCHES`` per worker.
    """
    return {size: _measured(load, size, size * worker_count, budget_s / len(sizes)) for size in sizes}


def _measured(load: Load, size: int, users: int, budget_s: float) -> Samples:
    policy = BatchPolicy(most=size, wait_ns=NEVER_NS)
    first = load(ClosedLoop(users, NEVER_NS, most_requests=FEWEST_BATCHES * users), policy)
    count = min(MOST_BATCHES, max(FEWEST_BATCHES, round(budget_s / max(float(np.median(_cycles_s(first))), 1e-6))))
    return _cycles_s(load(ClosedLoop(users, NEVER_NS, most_requests=count * users), policy))


def _cycles_s(record: LoadRecord) -> Samples:
    batches = record.batches
    has_failed = np.zeros(len(batches.workers), dtype=bool)
    has_failed[record.batch_indices[record.outcomes == FAILED]] = True
    order = np.argsort(batches.workers, kind="stable")
    has_next = np.diff(batches.workers[order]) == 0  # on the same worker
    cycles_s = np.diff(batches.started_ns[order])[has_next] / 1e9
    is_failed = has_failed[order][:-1][has_next]
    return np.asarray(cycles_s if is_failed.all() else cycles_s[~is_failed])


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


def predicted(
    times: ServiceTimes, setup: Configuration, rate_hz: float, effort: SimulationSize = THOROUGH
) -> Response | None:
    """Predict the response to Poisson arrivals (:mod:`common.load.search.bulk_queue`); None where the queue grows."""
    found = predict(rate_hz, every_size(times, setup.batch_max), setup.wait_s, setup.session_count, effort)
    if found is None:
        return None
    return Response(1e6 * found.quantile_s(0.5), 1e6 * found.quantile_s(0.99), found.utilization)


def unknown_tail(times: ServiceTimes) -> str:
    """Return which timed calls are too few to know their tail, and how many would do; empty where all are enough.

    The limit of their p99 takes ``LEAST_TIMED`` calls. And what requests wait is proportional to the mean square of the
    calls (Pollaczek and Khinchine), so that must be known to ``KNOWN_SHARE`` at 95 %.
    """
    needed = {size: _needed_calls(own) for size, own in times.items()}
    size = max(times, key=lambda one: needed[one] / len(times[one]))
    if len(times[size]) >= needed[size]:
        return ""
    timed = f"{len(times[size]):,} calls with a batch of {size} were timed"
    return f"{timed}, and {needed[size]:,} are needed for their tail"


def _needed_calls(taken_s: Samples) -> int:
    squares = taken_s**2
    return max(LEAST_TIMED, math.ceil((NORMAL_QUANTILE * float(squares.std() / squares.mean()) / KNOWN_SHARE) ** 2))


def capacity_hz(times: ServiceTimes, setup: Configuration) -> float:
    """Return the requests per second that full batches in all sessions answer."""
    full_s = every_size(times, setup.batch_max)[-1].mean()
    return setup.session_count * setup.batch_max / float(full_s)


def sustainable_hz(times: ServiceTimes, setup: Configuration, bound_us: float) -> float:
    """Return the rate up to which p99 is predicted to meet the bound, at least ``LIGHTEST`` of the capacity.

    A size takes its mean time, and the simulation is short: this is where a search begins, not what it finds.
    """
    means = {size: np.array([own.mean()]) for size, own in times.items()}
    low, high = (share * capacity_hz(times, setup) for share in (LIGHTEST, FULLEST))
    for _ in range(HALVINGS):
        rate_hz = (low * high) ** 0.5
        response = predicted(means, setup, rate_hz, ROUGH)
        low, high = (rate_hz, high) if response and response.p99_us <= bound_us else (low, rate_hz)
    return low

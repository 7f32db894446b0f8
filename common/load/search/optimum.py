"""The best configuration of a service within a bound: batches timed, configurations searched, the best one drawn out.

The time budget is divided: a part measures what batches take, most of it searches, and the rest loads the best
configuration at rising rates, beside what the queue is predicted to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from common.latency.dependence import Samples
from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import LoadRecord, uninterrupted
from common.load.requests.sources import Source
from common.load.results.thresholds import MAX_ERROR_SHARE, LoadThresholds
from common.load.search.batch_times import ServiceTimes, capacity_hz, measure_times, powers_of_two, sustainable_hz
from common.load.search.curve import CurvePoint, curve
from common.load.search.halving import Configuration, SearchResult, Shape, Trial, search
from common.load.search.trials import SearchHarness, measured, spent_power_w
from common.load.service.concurrency import USUAL, Concurrency
from common.messages.errors import PipelineError

SCREENING_SHARE, TIMING_SHARE, CURVE_SHARE = 0.2, 0.15, 0.25  # of the budget; screened is where there is a choice
MOST_KEPT = 2  # ways to share the host, of each division of the processors
WAIT_SHARES = (0.0, 0.1, 0.25)  # of the bound
S_PER_HOUR = 3600.0
EVERY_FAILED = "too many requests failed in every trial"


@dataclass(frozen=True, slots=True)
class SearchTask:
    bound_us: float
    budget_s: float
    batch_max: int
    processors: int
    usd_per_hour: float | None = None  # price of the host; a configuration costs its share of the processors
    seed: int = 0
    concurrencies: Sequence[Concurrency] = (USUAL,)
    is_possible: Callable[[Shape], bool] = lambda shape: True
    max_error_share: float = MAX_ERROR_SHARE  # most requests that may fail

    @property
    def thresholds(self) -> LoadThresholds:
        return LoadThresholds(self.max_error_share, self.bound_us)

    @property
    def shapes(self) -> list[Shape]:
        """Sessions and threads that use all processors: one session, two, four, …, and one for each."""
        divisions = [(own, max(1, self.processors // own)) for own in powers_of_two(self.processors)]
        made = [(*division, kind) for kind in self.concurrencies for division in divisions]
        return [shape for shape in made if self.is_possible(shape)]

    def configurations(self, shapes: Iterable[Shape]) -> list[Configuration]:
        """Return all that may be tried with some shapes; a batch of one waits for nobody."""
        return [
            Configuration(size, wait * self.bound_us / 1e6, *shape)
            for shape in shapes
            for size in powers_of_two(self.batch_max)
            for wait in (WAIT_SHARES if size > 1 else WAIT_SHARES[:1])
        ]

    def usd_per_s(self, setup: Configuration) -> float | None:
        used = min(self.processors, setup.session_count * setup.thread_count)
        return None if self.usd_per_hour is None else self.usd_per_hour / S_PER_HOUR * used / self.processors


@dataclass(frozen=True, slots=True)
class Optimum:
    """The result of a search: times of batches by shape, the search, and the curve of the best configuration.

    A signal may have ended it early.
    """

    task: SearchTask
    times: Mapping[Shape, ServiceTimes]
    powers_w: Mapping[tuple[Shape, int], float | None]
    result: SearchResult
    curve: Sequence[CurvePoint]
    is_interrupted: bool = False


class ShapeTimes:
    """Times of full batches by shape and size, and the power that they took, as they are measured."""

    def __init__(self, harness: SearchHarness) -> None:
        self._harness = harness
        self.times: dict[Shape, dict[int, Samples]] = {}
        self.powers_w: dict[tuple[Shape, int], float | None] = {}

    def measure(self, shapes: Sequence[Shape], sizes: Sequence[int], budget_s: float, *, is_cut: bool = False) -> None:
        """Measure batches of some sizes in some shapes; if it is cut, no shape begins after the budget's end."""
        harness, end_s = self._harness, self._harness.now_s() + budget_s
        for index, shape in enumerate(shapes):
            left_s = end_s - harness.now_s()
            if index and is_cut and left_s <= 0:
                break
            each_s = max(0.0, left_s) / ((len(shapes) - index) * len(sizes))
            for size in sizes:
                times_s = measure_times(partial(self._load, shape), shape[0], [size], each_s)
                self.times.setdefault(shape, {}).update(times_s)

    def _load(self, shape: Shape, source: Source, policy: BatchPolicy) -> LoadRecord:
        """Load a shape without an end that is known before; the power of a size is that of its last load."""
        record = uninterrupted(self._harness.run(shape, source, policy, None))
        self.powers_w[shape, policy.most] = spent_power_w(self._harness, record)
        return record


def find_optimum(harness: SearchHarness, task: SearchTask) -> Optimum:
    """Find the best configurations for a bound within the time budget.

    A signal (KeyboardInterrupt) ends it with what was measured, or is raised before any batches were timed.
    """
    timing, end_s = ShapeTimes(harness), harness.now_s() + (1 - CURVE_SHARE) * task.budget_s
    times = timing.times
    try:
        kept = _screened(timing, task) if len(task.concurrencies) > 1 else task.shapes
        timing.measure(kept, powers_of_two(task.batch_max), TIMING_SHARE * task.budget_s)
    except KeyboardInterrupt:
        if not times:
            raise
        nothing = SearchResult([], {}, None, is_interrupted=True)
        return Optimum(task, times, timing.powers_w, nothing, [], is_interrupted=True)
    result, points = _searched(harness, task, {shape: times[shape] for shape in kept}, end_s), list[CurvePoint]()
    best, is_interrupted = result.best.get("rate"), result.is_interrupted
    if best and not is_interrupted:
        setup, budget_s = best.configuration, CURVE_SHARE * task.budget_s
        try:
            for point in curve(harness, setup, times[setup.shape], budget_s, task.seed, task.thresholds):
                points.append(point)
        except KeyboardInterrupt:
            is_interrupted = True
    return Optimum(task, times, timing.powers_w, result, points, is_interrupted)


def _searched(
    harness: SearchHarness, task: SearchTask, times: Mapping[Shape, ServiceTimes], end_s: float
) -> SearchResult:
    """Return the search in some shapes up to a time; it begins with what the times of batches predict."""
    setups = task.configurations(times)
    first_hz = {setup: sustainable_hz(times[setup.shape], setup, task.bound_us) for setup in setups}
    costs = {setup: cost for setup in setups if (cost := task.usd_per_s(setup)) is not None}
    most_hz = {setup: capacity_hz(times[setup.shape], setup) for setup in setups}
    seeds = count(task.seed)  # each trial has arrivals of its own, so that none is lucky with all of them

    def measure(setup: Configuration, rate_hz: float, duration_s: float, rung: int) -> Trial:
        return measured(harness, setup, rate_hz, duration_s, rung, next(seeds), task.thresholds)[0]

    screened = SCREENING_SHARE if len(task.concurrencies) > 1 else 0.0
    least_s = (1 - screened - TIMING_SHARE - CURVE_SHARE) * task.budget_s  # also where batches took longer to time
    left_s = max(least_s, end_s - harness.now_s())
    return search(first_hz, task.bound_us, left_s, measure, harness.now_s, costs, most_hz, task.max_error_share)


def _screened(timing: ShapeTimes, task: SearchTask) -> list[Shape]:
    """Time full batches in every shape, and return the best two ways to share the host for each division of it.

    Where the time for it ends early, the shapes that are left are not searched; the usual ways come first.
    """
    timing.measure(task.shapes, [task.batch_max], SCREENING_SHARE * task.budget_s, is_cut=True)
    divisions: dict[tuple[int, int], list[Shape]] = {}
    for shape in timing.times:
        divisions.setdefault(shape[:2], []).append(shape)
    call_s = {shape: times[task.batch_max].mean() for shape, times in timing.times.items()}
    return [shape for own in divisions.values() for shape in sorted(own, key=call_s.__getitem__)[:MOST_KEPT]]


def chosen(optimum: Optimum) -> tuple[Configuration, float]:
    """Return the best configuration by rate, and the rate that it sustains.

    Where nothing meets the bound it is the trial that is nearest, or of those without too many failures the one with
    the lowest rate.

    Raises:
        PipelineError: too many requests failed in every trial.
    """
    result = optimum.result
    if (best := result.best.get("rate")) and best.rate_hz:
        return best.configuration, best.rate_hz
    sound = [trial for trial in result.trials if trial.validity.status != "failing"]
    run = result.nearest or min(sound, key=lambda trial: trial.rate_hz, default=None)
    if run is None:
        raise PipelineError("the search", f"{EVERY_FAILED}: {result.trials[-1].validity.reason}", "mend the model")
    return run.configuration, run.rate_hz

"""The best configuration of a service within a bound: batches timed, configurations searched, the best one drawn out.

The time budget is divided: a part measures what batches take, most of it searches, and the rest loads the best
configuration at rising rates, beside what the queue is predicted to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from common.latency.dependence import Samples
from common.load.results.thresholds import MAX_ERROR_SHARE, LoadThresholds
from common.load.search.batch_times import ServiceTimes, capacity_hz, measure_times, powers_of_two, sustainable_hz
from common.load.search.curve import CurvePoint, curve
from common.load.search.halving import Configuration, SearchResult, Shape, Trial, search
from common.load.search.trials import SearchHarness, Unending, measured
from common.load.service.concurrency import USUAL, Concurrency
from common.messages.errors import PipelineError

SCREENING_SHARE, TIMING_SHARE, CURVE_SHARE = 0.2, 0.15, 0.25  # of the budget; screened is where there is a choice
MOST_KEPT = 2  # ways to share the host, of each division of the processors
WAIT_SHARES = (0.0, 0.1, 0.25)  # of the bound
S_PER_HOUR = 3600.0
EVERY_FAILED = "too many requests failed in every trial"


@dataclass(frozen=True, slots=True)
class SearchTask:
    """The question of a search.

    Attributes:
        usd_per_hour: price of the host; a configuration costs its share of the processors.
        max_error_share: most requests that may fail.
    """

    bound_us: float
    budget_s: float
    batch_max: int
    processors: int
    usd_per_hour: float | None = None
    seed: int = 0
    concurrencies: Sequence[Concurrency] = (USUAL,)
    is_possible: Callable[[Shape], bool] = lambda shape: True
    max_error_share: float = MAX_ERROR_SHARE

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
    """ServiceTimes of full batches by shape and size, and the power that they took, as they are measured."""

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
                load = Unending(harness, shape)
                times_s = measure_times(load, shape[0], [size], each_s)
                self.times.setdefault(shape, {}).update(times_s)
                self.powers_w[shape, size] = load.power_w

    def full_hz(self, shape: Shape, size: int) -> float:
        """Return the requests per second that full batches in all sessions answer."""
        return shape[0] * size / float(self.times[shape][size].mean())


def find_optimum(harness: SearchHarness, task: SearchTask) -> Optimum:
    """Find the best configurations for a bound within the time budget.

    A signal (KeyboardInterrupt) ends it with what was measured.

    Raises:
        KeyboardInterrupt: the signal came before any batches were timed.
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
    is_interrupted = result.is_interrupted
    try:
        for point in () if is_interrupted else _curve_of_best(harness, task, times, result):
            points.append(point)
    except KeyboardInterrupt:
        is_interrupted = True
    return Optimum(task, times, timing.powers_w, result, points, is_interrupted)


def _curve_of_best(
    harness: SearchHarness, task: SearchTask, times: Mapping[Shape, ServiceTimes], result: SearchResult
) -> Iterator[CurvePoint]:
    """Yield the points of the best configuration's curve; none where nothing met the bound."""
    if best := result.best.get("rate"):
        own = times[best.configuration.shape]
        yield from curve(harness, best.configuration, own, CURVE_SHARE * task.budget_s, task.seed, task.thresholds)


def _searched(
    harness: SearchHarness, task: SearchTask, times: Mapping[Shape, ServiceTimes], end_s: float
) -> SearchResult:
    """Return the search in some shapes up to a time; it begins with what the times of batches predict."""
    setups = task.configurations(times)
    first_hz = {setup: sustainable_hz(times[setup.shape], setup, task.bound_us) for setup in setups}
    costs = {setup: cost for setup in setups if (cost := task.usd_per_s(setup)) is not None}

    seeds = count(task.seed)  # each trial has arrivals of its own, so that none is lucky with all of them

    def measure(setup: Configuration, rate_hz: float, duration_s: float, rung: int) -> Trial:
        return measured(harness, setup, rate_hz, duration_s, rung, next(seeds), task.thresholds)[0]

    most_hz = {setup: capacity_hz(times[setup.shape], setup) for setup in setups}
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
    return [
        shape
        for own in divisions.values()
        for shape in sorted(own, key=lambda setup: -timing.full_hz(setup, task.batch_max))[:MOST_KEPT]
    ]


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
    sound = [trial for trial in result.trials if not trial.failure]
    run = result.nearest or min(sound, key=lambda trial: trial.rate_hz, default=None)
    if run is None:
        raise PipelineError("the search", f"{EVERY_FAILED}: {result.trials[-1].failure}", "mend the model")
    return run.configuration, run.rate_hz

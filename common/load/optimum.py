"""The best configuration of a service within a bound: batches timed, configurations searched, the best one drawn out.

The time budget is divided: a part measures what batches take, most of it searches, and the rest loads the best
configuration at rising rates, beside what the queue is predicted to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import numpy as np

from common.latency.statistics import Samples, percentile
from common.load.arrivals import poisson
from common.load.batch_times import (
    Response,
    Times,
    capacity_hz,
    every_size,
    measure_times,
    powers_of_two,
    predicted,
    sustainable_hz,
)
from common.load.batching import BatchPolicy
from common.load.concurrency import USUAL, Concurrency
from common.load.record import LoadRecord
from common.load.search import OBJECTIVES, Configuration, Found, Shape, Standing, Trial, on_front, search
from common.load.sources import OpenLoop, Source
from common.load.trials import trial
from common.load.verdict import judge

SCREENING_SHARE, TIMING_SHARE, CURVE_SHARE = 0.2, 0.15, 0.25  # of the budget; screened is where there is a choice
MOST_KEPT = 2  # ways to share the host, of each division of the processors
WAIT_SHARES = (0.0, 0.1, 0.25)  # of the bound
CURVE_LOADS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.1)  # of the capacity
LOADED = 0.8  # utilization up to which prediction and measurement must agree
AGREEMENT = 0.1
SAME_CALLS = 0.05  # calls under load that take longer than this share more are other calls
S_PER_HOUR, MILLION = 3600.0, 1e6


class Rig(Protocol):
    """What runs loads on a service."""

    def run(self, shape: Shape, source: Source, policy: BatchPolicy, last_ns: int | None) -> LoadRecord:
        """Let requests come to a service of a shape; ``last_ns`` is when the last one comes, where that is known."""
        ...

    def power_w(self, begin_s: float, end_s: float) -> float | None:
        """Return the mean power between two times of :meth:`now_s`; None where it is unknown."""
        ...

    def now_s(self) -> float:
        """Return the time."""
        ...


@dataclass(frozen=True, slots=True)
class SearchTask:
    """What is asked.

    Attributes:
        bound_us: p99 at most.
        budget_s: time for all runs.
        batch_max: largest batch to try.
        processors: that may be used.
        usd_per_hour: price of the host; a configuration costs its share of the processors.
        seed: of the arrivals.
        concurrencies: ways in which sessions may share the host.
        is_possible: whether the runtime takes a shape.
    """

    bound_us: float
    budget_s: float
    batch_max: int
    processors: int
    usd_per_hour: float | None = None
    seed: int = 0
    concurrencies: Sequence[Concurrency] = (USUAL,)
    is_possible: Callable[[Shape], bool] = lambda shape: True

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
        """Return the price of the processors that a configuration uses."""
        used = min(self.processors, setup.session_count * setup.thread_count)
        return None if self.usd_per_hour is None else self.usd_per_hour / S_PER_HOUR * used / self.processors


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One rate of the best configuration, measured and predicted.

    Attributes:
        trial: what was measured.
        response: what was predicted; None where the queue would grow.
        call_factor: what its calls took over what they took when batches were timed.
    """

    trial: Trial
    response: Response | None
    call_factor: float

    @property
    def doubt(self) -> str:
        """Why prediction and measurement differ by more than ``AGREEMENT``; empty where they agree or need not."""
        response, measured = self.response, self.trial
        if response is None or response.utilization >= LOADED or measured.p99_us.value is None:
            return ""
        pairs = ((response.p50_us, measured.p50_us), (response.p99_us, measured.p99_us))
        if all(abs(guess / (found.value or guess) - 1) <= AGREEMENT for guess, found in pairs):
            return ""
        if all((found.low or 0) <= guess <= (found.high or np.inf) for guess, found in pairs):
            return "too few requests: the prediction is within the limits of the measurement"
        if abs(self.call_factor - 1) > SAME_CALLS:
            return f"calls took {self.call_factor:.3g} times as long as when batches were timed"
        return "the requests or calls were not as the queue assumes: Poisson arrivals and independent times"


@dataclass(frozen=True, slots=True)
class Optimum:
    """What was found: times of batches by shape, the search, and the curve of the best configuration.

    A signal may have ended it early.
    """

    task: SearchTask
    times: Mapping[Shape, Times]
    powers_w: Mapping[tuple[Shape, int], float | None]
    found: Found
    curve: Sequence[CurvePoint]
    is_interrupted: bool = False

    def times_of(self, setup: Configuration) -> Times:
        """Return the times of batches in the shape of a configuration."""
        return self.times[setup.shape]


def find_optimum(rig: Rig, task: SearchTask) -> Optimum:
    """Find the best configurations for a bound within the time budget.

    A signal (KeyboardInterrupt) ends it with what was measured.

    Raises:
        KeyboardInterrupt: the signal came before any batches were timed.
    """
    timing, end_s = ShapeTimes(rig), rig.now_s() + (1 - CURVE_SHARE) * task.budget_s
    times = timing.times
    try:
        kept = _screened(timing, task) if len(task.concurrencies) > 1 else task.shapes
        timing.measure(kept, powers_of_two(task.batch_max), TIMING_SHARE * task.budget_s)
    except KeyboardInterrupt:
        if not times:
            raise
        nothing = Found([], {}, None, is_interrupted=True)
        return Optimum(task, times, timing.powers_w, nothing, [], is_interrupted=True)
    found, points = _searched(rig, task, {shape: times[shape] for shape in kept}, end_s), list[CurvePoint]()
    is_interrupted = found.is_interrupted
    try:
        for point in () if is_interrupted else _curve_of_best(rig, task, times, found):
            points.append(point)
    except KeyboardInterrupt:
        is_interrupted = True
    return Optimum(task, times, timing.powers_w, found, points, is_interrupted)


def _curve_of_best(rig: Rig, task: SearchTask, times: Mapping[Shape, Times], found: Found) -> Iterator[CurvePoint]:
    """Yield the points of the best configuration's curve; none where nothing met the bound."""
    if best := found.best.get("rate"):
        own = times[best.configuration.shape]
        yield from curve(rig, best.configuration, own, CURVE_SHARE * task.budget_s, task.seed)


def _searched(rig: Rig, task: SearchTask, times: Mapping[Shape, Times], end_s: float) -> Found:
    """Return the search in some shapes up to a time; it begins with what the times of batches predict."""
    setups = task.configurations(times)
    first_hz = {one: sustainable_hz(times[one.shape], one, task.bound_us) for one in setups}
    costs = {one: cost for one in setups if (cost := task.usd_per_s(one)) is not None}

    seeds = count(task.seed)  # each run has arrivals of its own, so that none is lucky with all of them

    def measure(setup: Configuration, rate_hz: float, duration_s: float, rung: int) -> Trial:
        return _measured(rig, setup, rate_hz, duration_s, rung, next(seeds))[0]

    most_hz = {one: capacity_hz(times[one.shape], one) for one in setups}
    screened = SCREENING_SHARE if len(task.concurrencies) > 1 else 0.0
    least_s = (1 - screened - TIMING_SHARE - CURVE_SHARE) * task.budget_s  # also where batches took longer to time
    left_s = max(least_s, end_s - rig.now_s())
    return search(first_hz, task.bound_us, left_s, measure, rig.now_s, costs, most_hz)


class ShapeTimes:
    """Times of full batches by shape and size, and the power that they took, as they are measured."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.times: dict[Shape, dict[int, Samples]] = {}
        self.powers_w: dict[tuple[Shape, int], float | None] = {}

    def measure(self, shapes: Sequence[Shape], sizes: Sequence[int], budget_s: float, *, is_cut: bool = False) -> None:
        """Measure batches of some sizes in some shapes; if it is cut, no shape begins after the budget's end."""
        rig, end_s = self._rig, self._rig.now_s() + budget_s
        for index, shape in enumerate(shapes):
            left_s = end_s - rig.now_s()
            if index and is_cut and left_s <= 0:
                break
            each_s = max(0.0, left_s) / ((len(shapes) - index) * len(sizes))
            for size in sizes:
                load = _Unending(rig, shape)
                found = measure_times(load, shape[0], [size], each_s)
                self.times.setdefault(shape, {}).update(found)
                self.powers_w[shape, size] = load.power_w

    def full_hz(self, shape: Shape, size: int) -> float:
        """Return the requests per second that full batches in all sessions answer."""
        return shape[0] * size / float(self.times[shape][size].mean())


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
        for shape in sorted(own, key=lambda one: -timing.full_hz(one, task.batch_max))[:MOST_KEPT]
    ]


class _Unending:
    """Loads a shape without an end that is known before; ``power_w`` is that of its last run."""

    def __init__(self, rig: Rig, shape: Shape) -> None:
        self._rig, self._shape = rig, shape
        self.power_w: float | None = None

    def __call__(self, source: Source, policy: BatchPolicy) -> LoadRecord:
        """Let requests come."""
        record = _uninterrupted(self._rig.run(self._shape, source, policy, None))
        self.power_w = _power_w(self._rig, record)
        return record


def _power_w(rig: Rig, record: LoadRecord) -> float | None:
    """Return the power during a run that has just ended, without what it took to open its sessions."""
    end_s = rig.now_s()
    return rig.power_w(end_s - record.ended_ns / 1e9, end_s)


def _uninterrupted(record: LoadRecord) -> LoadRecord:
    """Return the record; a signal during its run ends the search."""
    if record.is_interrupted:
        raise KeyboardInterrupt
    return record


def _measured(
    rig: Rig, setup: Configuration, rate_hz: float, duration_s: float, rung: int | None, seed: int
) -> tuple[Trial, LoadRecord]:
    """Load a configuration by a Poisson process."""
    policy = BatchPolicy(most=setup.batch_max, wait_ns=round(1e9 * setup.wait_s))
    arrivals = poisson(rate_hz, duration_s, seed)
    record = _uninterrupted(rig.run(setup.shape, OpenLoop(arrivals), policy, round(1e9 * duration_s)))
    verdict = judge(record, is_open=True, most_running=setup.session_count * policy.most)
    return trial(record, verdict, setup, rate_hz, rung, _power_w(rig, record)), record


def curve(rig: Rig, setup: Configuration, times: Times, budget_s: float, seed: int) -> Iterator[CurvePoint]:
    """Load a configuration at rising rates, with equally many requests each, and yield each with what is predicted.

    Args:
        rig: runs it.
        setup: the configuration.
        times: what its batches take.
        budget_s: time for all runs.
        seed: of the arrivals of the first run; the others have the next ones.
    """
    capacity, inverse = capacity_hz(times, setup), sum(1 / load for load in CURVE_LOADS)
    for own_seed, load in enumerate(CURVE_LOADS, start=seed):
        found, record = _measured(rig, setup, load * capacity, budget_s / (load * inverse), None, own_seed)
        yield CurvePoint(found, predicted(times, setup, found.rate_hz), _call_factor(record, times, setup))


def _call_factor(record: LoadRecord, times: Times, setup: Configuration) -> float:
    means_s = np.array([0.0, *(own.mean() for own in every_size(times, setup.batch_max))])
    spent_s = (record.batches.ended_ns - record.batches.started_ns).sum() / 1e9
    expected_s = float(means_s[record.batches.sizes].sum())
    return float(spent_s) / expected_s if expected_s else 1.0


def batch_rows(optimum: Optimum) -> list[dict[str, Any]]:
    """Return the latency against the batch size: a row per shape and size."""
    return [
        {
            "session_count": shape[0],
            "threads": shape[1],
            **shape[2].columns,
            "request_count": size,
            "measured_call_count": len(taken_s),
            "call_mean_us": 1e6 * float(taken_s.mean()),
            **{f"call_{name}_us": value for name, value in _median(taken_s).items()},
            "full_requests_per_s": (rate := shape[0] * size / float(taken_s.mean())),
            "load_power_w": (power := optimum.powers_w.get((shape, size))),
            "requests_per_joule": rate / power if power else None,
        }
        for shape, times in optimum.times.items()
        for size, taken_s in times.items()
    ]


def _median(taken_s: Samples) -> dict[str, float | None]:
    found = percentile(1e6 * taken_s, 0.5)
    return {"p50": float(np.median(1e6 * taken_s)), "p50_low": found.low, "p50_high": found.high}


def trial_rows(optimum: Optimum) -> list[dict[str, Any]]:
    """Return a row per run of the search and of the curve; the runs of the curve have predictions."""
    task = optimum.task
    pairs: list[tuple[Trial, Response | None, str, str]] = [(one, None, "search", "") for one in optimum.found.trials]
    pairs += [(point.trial, point.response, "curve", point.doubt) for point in optimum.curve]
    fronts = on_front([one for one, *_ in pairs])
    return [
        {
            "trial_index": index,
            "trial_kind": kind,
            "rung_index": one.rung,
            **_setup_columns(one.configuration),
            "offered_requests_per_s": one.rate_hz,
            "answered_requests_per_s": one.completed_hz,
            "validity": "overload" if one.is_overloaded else "invalid" if one.problem else "valid",
            **_limits("request_p50", one.p50_us),
            **_limits("request_p99", one.p99_us),
            "predicted_p50_us": response.p50_us if response else None,
            "predicted_p99_us": response.p99_us if response else None,
            "predicted_utilization_share": response.utilization if response else None,
            "prediction_doubt": doubt or None,
            "is_within_bound": one.is_within(task.bound_us),
            "is_on_load_front": is_front,
            "load_power_w": one.power_w,
            "request_energy_j": one.power_w / one.completed_hz if one.power_w and one.completed_hz else None,
            "million_requests_usd": _usd(task, one.configuration, one.completed_hz),
        }
        for index, ((one, response, kind, doubt), is_front) in enumerate(zip(pairs, fronts, strict=True))
    ]


def _usd(task: SearchTask, setup: Configuration, rate_hz: float | None) -> float | None:
    cost = task.usd_per_s(setup)
    return MILLION * cost / rate_hz if cost is not None and rate_hz else None


def _setup_columns(setup: Configuration) -> dict[str, Any]:
    return {
        "batch_max_count": setup.batch_max,
        "batch_wait_us": 1e6 * setup.wait_s,
        "session_count": setup.session_count,
        "threads": setup.thread_count,
        **setup.concurrency.columns,
    }


def _limits(name: str, estimate: Any) -> dict[str, float | None]:
    return {f"{name}_us": estimate.value, f"{name}_low_us": estimate.low, f"{name}_high_us": estimate.high}


def summary(optimum: Optimum) -> dict[str, Any]:
    """Return what is best, by how much, and, where nothing meets the bound, what is nearest."""
    task, found = optimum.task, optimum.found
    margin, nearest = found.margin, found.nearest
    problems = [one.problem for one in found.trials if one.problem]
    return {
        "bound_us": task.bound_us,
        "is_bound_met": bool(found.best),
        "best_by": {name: _standing(task, found.best[name]) for name in OBJECTIVES if name in found.best},
        "runner_up": _standing(task, found.runner_up) if found.runner_up else {},
        "margin_share": margin.value if margin else None,
        "margin_low_share": margin.low if margin else None,
        "margin_high_share": margin.high if margin else None,
        "nearest": {} if nearest is None else _nearest(nearest),
        "untimed_shape_count": len(task.shapes) - len(optimum.times),
        "trial_count": len(found.trials) + len(optimum.curve),
        "invalid_trial_count": len(problems),
        "invalid_trial_reason": problems[-1] if problems else None,
        "prediction_doubts": sorted({point.doubt for point in optimum.curve if point.doubt}),
    }


def chosen(optimum: Optimum) -> tuple[Configuration, float]:
    """Return the best configuration by rate, and the rate that it sustains.

    Where nothing meets the bound it is the run that is nearest, or the one with the lowest rate.
    """
    found = optimum.found
    if (best := found.best.get("rate")) and best.rate_hz:
        return best.configuration, best.rate_hz
    run = found.nearest or min(found.trials, key=lambda one: one.rate_hz)
    return run.configuration, run.rate_hz


def _nearest(nearest: Trial) -> dict[str, Any]:
    limits = _limits("request_p99", nearest.p99_us)
    return {**_setup_columns(nearest.configuration), "offered_requests_per_s": nearest.rate_hz, **limits}


def _standing(task: SearchTask, standing: Standing) -> dict[str, Any]:
    low, high = standing.limits_hz
    power, rate = standing.power_w, standing.rate_hz
    return {
        **_setup_columns(standing.configuration),
        "sustained_requests_per_s": rate,
        "is_retested": standing.is_retested,
        "sustained_low_requests_per_s": low,
        "sustained_high_requests_per_s": high,
        "request_energy_j": power / rate if power and rate else None,
        "million_requests_usd": _usd(task, standing.configuration, rate),
    }

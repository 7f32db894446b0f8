"""The load curve of a configuration: rising rates, measured and predicted, and why the two differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from common.load.requests.load_record import LoadRecord
from common.load.results.thresholds import USUAL_THRESHOLDS, LoadThresholds
from common.load.search.batch_times import Response, ServiceTimes, capacity_hz, every_size, predicted, unknown_tail
from common.load.search.halving import Configuration, Trial
from common.load.search.trials import SearchHarness, measured

CURVE_LOADS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.1)  # of the capacity
LOADED = 0.8  # utilization up to which prediction and measurement must agree
AGREEMENT = 0.1
SAME_CALLS = 0.05  # means of calls, and predictions from them, that differ by no more are of the same calls
LEAST_CALLS = 20  # of a size, for times of its own


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One rate of the best configuration, measured and predicted."""

    trial: Trial
    response: Response | None  # what was predicted; None where the queue would grow
    call_factor: float = 1.0  # what its calls took over what they took when batches were timed
    of_own_calls: Response | None = None  # what is predicted from the times of its own calls; None as above
    unknown_tail: str = ""  # which timed calls are too few to know their tail; empty where all are enough

    @property
    def doubt(self) -> str:
        """Why prediction and measurement differ by more than ``AGREEMENT``; empty where they agree or need not.

        Times of calls are the reason only where the prediction from those of this very trial does agree.
        """
        response, measured = self.response, self.trial
        if response is None or response.utilization >= LOADED or measured.p99_us.value is None:
            return ""
        if _agrees(response, measured):
            return ""
        if _agrees(response, measured, also_within_limits=True):
            return "too few requests: the prediction is within the limits of the measurement"
        return self._cause(response)

    def _cause(self, response: Response) -> str:
        """Return why the measured queue is surely another one than the predicted."""
        is_same = abs(self.call_factor - 1) <= SAME_CALLS
        if self.unknown_tail and is_same:
            return f"too few calls: {self.unknown_tail}"
        took = f"calls took {self.call_factor:.3g} times as long as when batches were timed"
        if (own := self.of_own_calls) and _are_apart(own, response) and _agrees(own, self.trial):
            return f"{took}; with their times p50 is predicted as {_ms(own.p50_us)}, p99 as {_ms(own.p99_us)}"
        if not is_same:
            return f"{took}, and that explains a part"
        return "the requests or calls were not as the queue assumes: Poisson arrivals and independent times"


def _agrees(response: Response, measured: Trial, *, also_within_limits: bool = False) -> bool:
    """Whether each predicted percentile is near the measured one, or, if asked, within its limits."""
    return all(
        abs(guess / (known.value or guess) - 1) <= AGREEMENT
        or (also_within_limits and (known.low or 0) <= guess <= (known.high or np.inf))
        for guess, known in ((response.p50_us, measured.p50_us), (response.p99_us, measured.p99_us))
    )


def _are_apart(one: Response, other: Response) -> bool:
    pairs = ((one.p50_us, other.p50_us), (one.p99_us, other.p99_us))
    return any(abs(own / guess - 1) > SAME_CALLS for own, guess in pairs)


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.4g} ms"


def curve(
    harness: SearchHarness,
    setup: Configuration,
    times: ServiceTimes,
    budget_s: float,
    seed: int,
    thresholds: LoadThresholds = USUAL_THRESHOLDS,
) -> Iterator[CurvePoint]:
    """Load a configuration at rising rates, with equally many requests each, and yield each with what is predicted.

    The arrivals of the first trial have the seed, and those of the others the next ones.
    """
    capacity, inverse = capacity_hz(times, setup), sum(1 / load for load in CURVE_LOADS)
    unknown = unknown_tail(times)
    for own_seed, load in enumerate(CURVE_LOADS, start=seed):
        trial, record = measured(
            harness, setup, load * capacity, budget_s / (load * inverse), None, own_seed, thresholds
        )
        factor = _call_factor(record, times, setup)
        own = predicted(times_under_load(record, times, setup), setup, trial.rate_hz)
        yield CurvePoint(trial, predicted(times, setup, trial.rate_hz), factor, own, unknown)


def times_under_load(record: LoadRecord, times: ServiceTimes, setup: Configuration) -> ServiceTimes:
    """Return what batches of each size took in a trial; sizes that were rare take what was timed, scaled alike."""
    factor, timed = _call_factor(record, times, setup), every_size(times, setup.batch_max)
    taken_s = (record.batches.ended_ns - record.batches.started_ns) / 1e9
    own = {size: taken_s[record.batches.sizes == size] for size in range(1, setup.batch_max + 1)}
    return {size: taken if len(taken) >= LEAST_CALLS else factor * timed[size - 1] for size, taken in own.items()}


def _call_factor(record: LoadRecord, times: ServiceTimes, setup: Configuration) -> float:
    means_s = np.array([0.0, *(own.mean() for own in every_size(times, setup.batch_max))])
    spent_s = (record.batches.ended_ns - record.batches.started_ns).sum() / 1e9
    expected_s = float(means_s[record.batches.sizes].sum())
    return float(spent_s) / expected_s if expected_s else 1.0

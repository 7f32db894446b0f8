"""Trials of a search: a configuration loaded at a rate, full batches without an end, and what each says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from common.latency.dependence import Samples
from common.latency.statistics import Estimate, percentile
from common.load.generator.wall_clock import Listener, nobody, serve
from common.load.requests.batching import BatchPolicy
from common.load.requests.load_record import LoadRecord, uninterrupted
from common.load.requests.schedules import poisson
from common.load.requests.sources import OpenLoop, Source
from common.load.results.thresholds import LoadThresholds
from common.load.results.validity import LoadValidity, judge, latency_factor, undelayed_us, widened
from common.load.search.halving import Configuration, Shape, Trial
from common.load.service.concurrency import Concurrency
from common.load.service.service import Service
from common.load.service.sessions import warm_up

FILLING_SHARE = 0.25  # of a trial: the queue starts empty, and its first requests wait less than later ones


def trial(
    record: LoadRecord,
    validity: LoadValidity,
    setup: Configuration,
    rate_hz: float,
    rung: int | None = None,
    power_w: float | None = None,
    bound_us: float | None = None,
) -> Trial:
    """Return figures of a trial at a mean rate, whose requests come by a schedule; only a valid one has percentiles.

    An answer within the bound counts as goodput.
    """
    waited_us, undelayed = record.waited_us, undelayed_us(record)
    first = int(FILLING_SHARE * len(waited_us))
    is_judged = validity.status == "valid"
    factor = latency_factor(record, setup.session_count, is_open=True)
    parts = (waited_us[first:], undelayed[first:])
    p50, p99 = (_estimate(*parts, quantile, factor) if is_judged else Estimate() for quantile in (0.5, 0.99))
    return Trial(
        setup,
        rung,
        rate_hz,
        record.answered_hz,
        p50,
        p99,
        validity,
        power_w,
        good_share=LoadThresholds(bound_us=bound_us).good_share(record, int(FILLING_SHARE * len(record))),
        sent_count=len(record),
        failed_count=record.counts["failed"],
    )


def _estimate(waited_us: Samples, undelayed: Samples, quantile: float, factor: float) -> Estimate:
    """Return a quantile, whose lower limit is that without the generator's delays; for too few without limits."""
    estimate = percentile(waited_us, quantile, factor)
    if estimate.value is None:
        return Estimate(float(np.quantile(waited_us, quantile)))
    return widened(estimate, percentile(undelayed, quantile, factor))


class SearchHarness(Protocol):
    def run(self, shape: Shape, source: Source, policy: BatchPolicy, last_ns: int | None) -> LoadRecord:
        """Let requests come to a service of a shape; ``last_ns`` is when the last one comes, where that is known."""

    def power_w(self, begin_s: float, end_s: float) -> float | None:
        """Return the mean power between two times of :meth:`now_s`; None where it is unknown."""

    def now_s(self) -> float: ...


def measured(
    harness: SearchHarness,
    setup: Configuration,
    rate_hz: float,
    duration_s: float,
    rung: int | None,
    seed: int,
    thresholds: LoadThresholds,
) -> tuple[Trial, LoadRecord]:
    """Load a configuration; return its trial, judged by the thresholds, and the record."""
    policy = BatchPolicy(most=setup.batch_max, wait_ns=round(1e9 * setup.wait_s))
    arrivals = poisson(rate_hz, duration_s, seed)
    record = uninterrupted(harness.run(setup.shape, OpenLoop(arrivals), policy, round(1e9 * duration_s)))
    most_running, max_share = setup.session_count * policy.most, thresholds.max_error_share
    validity = judge([record], is_open=True, most_running=most_running, max_error_share=max_share)
    power_w = spent_power_w(harness, record)
    return trial(record, validity, setup, rate_hz, rung, power_w, thresholds.bound_us), record


def spent_power_w(harness: SearchHarness, record: LoadRecord) -> float | None:
    """Return the power during a trial that has just ended, without what it took to open its sessions."""
    end_s = harness.now_s()
    return harness.power_w(end_s - record.ended_ns / 1e9, end_s)


class SessionHarness:
    """Runs loads on sessions by the clock.

    Args:
        open_service: makes a service of so many sessions with so many threads each, which share the host in some way.
        power_w: returns the mean power between two times of ``time.perf_counter``, or None.
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
        return serve(source, self._service, policy, last_ns=last_ns, listener=self._listener)

    def now_s(self) -> float:
        return time.perf_counter()

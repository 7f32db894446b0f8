"""Runs that a search makes: a configuration loaded at a rate, and full batches without an end."""

from __future__ import annotations

from typing import Protocol

from common.load.arrivals import poisson
from common.load.batching import BatchPolicy
from common.load.record import LoadRecord, uninterrupted
from common.load.search import Configuration, Shape, Trial
from common.load.sources import OpenLoop, Source
from common.load.trials import trial
from common.load.verdict import judge


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


class Unending:
    """Loads a shape without an end that is known before; ``power_w`` is that of its last run."""

    def __init__(self, rig: Rig, shape: Shape) -> None:
        self._rig, self._shape = rig, shape
        self.power_w: float | None = None

    def __call__(self, source: Source, policy: BatchPolicy) -> LoadRecord:
        """Let requests come."""
        record = uninterrupted(self._rig.run(self._shape, source, policy, None))
        self.power_w = spent_power_w(self._rig, record)
        return record


def measured(
    rig: Rig, setup: Configuration, rate_hz: float, duration_s: float, rung: int | None, seed: int
) -> tuple[Trial, LoadRecord]:
    """Load a configuration by a Poisson process."""
    policy = BatchPolicy(most=setup.batch_max, wait_ns=round(1e9 * setup.wait_s))
    arrivals = poisson(rate_hz, duration_s, seed)
    record = uninterrupted(rig.run(setup.shape, OpenLoop(arrivals), policy, round(1e9 * duration_s)))
    verdict = judge(record, is_open=True, most_running=setup.session_count * policy.most)
    return trial(record, verdict, setup, rate_hz, rung, spent_power_w(rig, record)), record


def spent_power_w(rig: Rig, record: LoadRecord) -> float | None:
    """Return the power during a run that has just ended, without what it took to open its sessions."""
    end_s = rig.now_s()
    return rig.power_w(end_s - record.ended_ns / 1e9, end_s)

"""Prediction of response times: a queue with Poisson arrivals that sessions serve in batches.

A free session takes what has queued, at most ``most`` requests. Where there are fewer, the oldest one waits ``wait_s``
for others. This is the queue M/G(1,b)/c of bulk service (Bailey 1954, On queueing processes with bulk service, J. Royal
Statistical Society B 16; Neuts 1967, A general class of bulk queues with Poisson input, Ann. Math. Stat. 38), with
service times that depend on the size. M/G/1 and M/G/c are the cases with batches of one request.

No closed form has its percentiles, so it is simulated: many independent queues side by side, one more request in each
of them per step (the recursion of Kiefer and Wolfowitz 1955, On the theory of queues with many servers, Trans. American
Mathematical Society 78, with batches). A call takes one of the measured times of its size, all of them equally likely.
So mean, variance and tail of the calls are the measured ones. A queue starts near its steady state and forgets how it
started before its requests count. The queues are independent, so groups of them say how uncertain a percentile is.
Requests are added until that is little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from common.latency.dependence import Samples

SEED = 27
GROUPS = 32
FIRST_STEPS = 256  # that count, of each queue
RELAXATIONS, MOST_FILLING = 2.0, 12_000  # before requests count, and the most requests of each queue in that time
PRECISION = 0.01  # standard error over the value
JUDGED = (0.5, 0.9, 0.99)  # quantiles that must be that precise

Responses = npt.NDArray[np.float32]


class SimulationSize(NamedTuple):
    """How long a simulation may be: queues, and requests of each that count."""

    queues: int
    most_steps: int


THOROUGH, ROUGH = SimulationSize(2048, 8192), SimulationSize(256, FIRST_STEPS)


@dataclass(frozen=True, slots=True)
class Prediction:
    utilization: float  # share of the time during which a session runs a batch
    responses_s: Responses  # times from arrival to the end of the batch, a row per group of independent queues

    @property
    def mean_s(self) -> float:
        return float(self.responses_s.mean(dtype=np.float64))

    def quantile_s(self, quantile: float) -> float:
        """Return the response time that this share of the requests stays within."""
        return float(np.quantile(self.responses_s, quantile))

    def error_shares(self) -> Samples:
        """Return the standard error of each of the ``JUDGED`` quantiles over its value."""
        own = np.quantile(self.responses_s, JUDGED, axis=1)
        return np.asarray(own.std(axis=1, ddof=1) / own.mean(axis=1) / math.sqrt(GROUPS))


def load_factor(rate_per_s: float, service_s: Sequence[Samples], session_count: int = 1) -> float:
    """Return the share of what full batches can serve; from 1 on, the queue grows without limit."""
    return rate_per_s * float(np.mean(service_s[-1])) / (len(service_s) * session_count)


def predict(
    rate_per_s: float,
    service_s: Sequence[Samples],
    wait_s: float = 0.0,
    session_count: int = 1,
    effort: SimulationSize = THOROUGH,
) -> Prediction | None:
    """Predict the response times of a stable queue; None for one that grows without limit.

    Args:
        rate_per_s: requests per second, a Poisson process.
        service_s: measured service times of a batch of 1, 2, … requests, one or more of each size.
        wait_s: how long the oldest request waits for others.
        effort: the longest simulation; it ends sooner where the percentiles are precise.
    """
    if load_factor(rate_per_s, service_s, session_count) >= 1:
        return None
    queues = _Queues(rate_per_s, service_s, wait_s, session_count, effort.queues)
    queues.fill()
    steps = FIRST_STEPS
    prediction = queues.prediction(queues.responses_s(steps))
    while steps < effort.most_steps and prediction.error_shares().max() > PRECISION:
        prediction = queues.prediction(prediction.responses_s, queues.responses_s(steps))
        steps *= 2
    return prediction


class _Step(NamedTuple):
    """What a step did in each queue: when its request came, and whether it closed a batch, which ends then."""

    came_s: Samples
    closes: npt.NDArray[np.bool_]
    ends_s: Samples


class _Queues:
    """Queues side by side, to each of which a step lets one more request come.

    A batch is open until a request comes that it cannot take, because it is full or has started.

    Attributes:
        free_s: when each session is free, a row per session, in ascending order.
        came_s: when the newest request came.
        held: requests of the open batch.
        start_s: when the open batch starts, unless it is full before.
    """

    def __init__(self, rate: float, service: Sequence[Samples], wait_s: float, sessions: int, count: int) -> None:
        self.rate, self.most, self.wait_s = rate, len(service), wait_s
        self.random = np.random.default_rng(SEED)
        self.times_s = np.concatenate([np.asarray(own, dtype=float) for own in service])
        self.counts = np.array([len(own) for own in service])
        self.firsts = np.cumsum(self.counts) - self.counts
        full = np.asarray(service[-1], dtype=float)
        self.load = load_factor(rate, service, sessions)
        self.variability = 1 / self.most + float(full.var() / full.mean() ** 2)  # of arrivals of batches, and of calls
        # The first waits are as in heavy traffic (Kingman 1962, On queues in heavy traffic, J. R. Stat. Soc. B 24).
        mean_s = self.variability * (full.mean() / sessions) / (2 * (1 - self.load))
        first_s = np.where(self.random.random(count) < self.load, self.random.exponential(mean_s, count), 0.0)
        self.free_s = np.tile(first_s, (sessions, 1))
        self.came_s, self.held = np.zeros(count), np.ones(count, dtype=np.int64)
        self.start_s = self._start_s()
        self.busy_s, self.begin_s = np.zeros(count), self.came_s

    def _start_s(self) -> Samples:
        """Return when open batches start whose only request is the newest."""
        return np.asarray(np.maximum(self.free_s[0], self.came_s + (self.wait_s if self.most > 1 else 0.0)))

    def fill(self) -> None:
        """Let requests come until the start is forgotten.

        That is some relaxation times of the queue in heavy traffic, 2 ρ (1/b + c²) / (1 - ρ)² full batches of ρ b
        requests each, and the longest call.
        """
        relaxation = 2 * self.load**2 * self.most * self.variability / (1 - self.load) ** 2
        steps = RELAXATIONS * relaxation + self.rate * (float(self.times_s.max()) + self.wait_s)
        for _ in range(min(MOST_FILLING, math.ceil(steps))):
            self._step()
        self.busy_s, self.begin_s = np.zeros_like(self.came_s), self.came_s

    def prediction(self, *responses_s: Responses) -> Prediction:
        utilization = float(self.busy_s.sum() / (self.came_s - self.begin_s).sum()) / len(self.free_s)
        return Prediction(utilization, np.concatenate(responses_s, axis=1))

    def responses_s(self, count: int) -> Responses:
        """Return response times of the next requests of each queue, a row per group of queues."""
        steps = [self._step() for _ in range(count + self.most)]  # by then the batch of each of them is closed
        found, ends_s = np.empty((count, len(self.held)), dtype=np.float32), np.zeros(len(self.held))
        for place in reversed(range(1, len(steps))):
            ends_s = np.where(steps[place].closes, steps[place].ends_s, ends_s)
            if place <= count:
                found[place - 1] = ends_s - steps[place - 1].came_s
        return np.ascontiguousarray(found.reshape(count, GROUPS, -1).swapaxes(0, 1)).reshape(GROUPS, -1)

    def _step(self) -> _Step:
        came_s = self.came_s = self.came_s + self.random.exponential(1 / self.rate, len(self.held))
        closes = (self.held == self.most) | (came_s > self.start_s)
        own = self.held - 1  # any of the measured calls of the size of the open batch
        taken_s = self.times_s[self.firsts[own] + (self.random.random(len(own)) * self.counts[own]).astype(np.int64)]
        ends_s = self.start_s + taken_s
        self._occupy(np.where(closes, ends_s, self.free_s[0]))
        self.busy_s = self.busy_s + np.where(closes, taken_s, 0.0)
        self.held = np.where(closes, 1, self.held + 1)
        self.start_s = np.where(closes, self._start_s(), self.start_s)
        self.start_s = np.where(self.held == self.most, np.maximum(self.free_s[0], came_s), self.start_s)
        return _Step(came_s, closes, ends_s)

    def _occupy(self, until_s: Samples) -> None:
        """Let the session that is free first work until a time."""
        for place in range(1, len(self.free_s)):
            self.free_s[place - 1] = np.minimum(self.free_s[place], until_s)
            until_s = np.maximum(self.free_s[place], until_s)
        self.free_s[-1] = until_s

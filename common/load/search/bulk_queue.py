"""Prediction of response times: a queue with Poisson arrivals that one session serves in batches.

The session takes what has queued, at most ``most`` requests. Where there are fewer, the oldest one waits ``wait_s`` for
others. This is the queue M/G(1,b)/1 of bulk service (Bailey 1954, On queueing processes with bulk service, J. Royal
Statistical Society B 16; Neuts 1967, A general class of bulk queues with Poisson input, Ann. Math. Stat. 38), with
service times that depend on the size. M/D/1 is the case of one request and one time.

The method is the chain of states at the starts of batches: the size of the batch, and the requests that it leaves
behind. From it follows what a request meets that comes at some moment of a service: the rest of this service, the full
batches before its own, the wait until its own is complete, and the size of its own.

It is exact without a wait, but for the grid of moments. With a wait there is one approximation: requests that a full
batch left behind are as old as that many Poisson arrivals are on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.latency.dependence import Samples

ATOMS = 8  # service times that replace the measured ones of a size
MOMENTS = 48  # of a service at which a request comes
AGES = 12  # of the oldest request, and moments of a wait
RESTS = 64  # steps of the wait
GRID = 400  # moments of the wait at which the chance of a full batch is known
CELLS = 4000  # of the histogram of waits
NEGLIGIBLE = 1e-8
MOST_QUEUED = 1200
DECAYS = 20.0  # the queue is cut off where it is exp(-20) as likely
LEVELS = (np.arange(AGES) + 0.5) / AGES  # of equally likely values


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction of a queue.

    Attributes:
        utilization: share of the time during which the session runs a batch.
        mean_s: mean time from arrival to the end of the batch.
        sizes: share of the batches of each size, from 1 on.
        times_s: response times, ascending, with ``shares``, the share of the requests of at most that time.
        shares: see ``times_s``.
    """

    utilization: float
    mean_s: float
    sizes: Samples
    times_s: Samples
    shares: Samples

    def quantile_s(self, quantile: float) -> float:
        """Return the response time that this share of the requests stays within."""
        return float(np.interp(quantile, self.shares, self.times_s))


def load_factor(rate_per_s: float, service_s: Sequence[Samples]) -> float:
    """Return the share of what full batches can serve; from 1 on, the queue grows without limit."""
    return rate_per_s * float(np.mean(service_s[-1])) / len(service_s)


def predict(rate_per_s: float, service_s: Sequence[Samples], wait_s: float = 0.0) -> Prediction | None:
    """Predict the response times of a stable queue; None for one that grows without limit.

    Args:
        rate_per_s: requests per second, a Poisson process.
        service_s: measured service times of a batch of 1, 2, … requests, one or more of each size.
        wait_s: how long the oldest request waits for others.
    """
    if load_factor(rate_per_s, service_s) >= 1:
        return None
    return _Queue(rate_per_s, [_atoms(samples) for samples in service_s], wait_s).prediction()


def _atoms(samples: Samples) -> Samples:
    """Return equally likely values that replace a sample, with the same mean."""
    ordered = np.sort(np.asarray(samples, dtype=float))
    if ordered[0] == ordered[-1]:
        return ordered[:1]
    edges = np.linspace(0, len(ordered), min(ATOMS, len(ordered)) + 1).round().astype(int)
    means = [part.mean() for part in np.split(ordered, edges[1:-1])]
    return np.asarray(np.array(means) * (ordered.mean() / np.mean(means)))


def _poisson(mean: Samples, count: int) -> Samples:
    """Return P(0), …, P(count - 1) of the Poisson distribution of each mean, along a last axis."""
    k = np.arange(count)
    log_factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count)))))[:count]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = k * np.log(np.asarray(mean, dtype=float))[..., None]
    logs = np.where(k == 0, 0.0, logs)
    return np.asarray(np.exp(logs - np.asarray(mean)[..., None] - log_factorials))


class _Queue:
    """The chain of batches. Its state is the number of requests that are there when a batch starts, from 1 on.

    A wait is known by the number of requests at its begin and by its rest, in ``RESTS`` steps.
    """

    def __init__(self, rate: float, service: list[Samples], wait_s: float) -> None:
        self.rate, self.service, self.wait_s, self.most = rate, service, wait_s, len(service)
        self.means = np.array([times.mean() for times in service])
        self.count = self._most_queued()
        self.rests_s = np.linspace(0.0, wait_s, RESTS + 1)
        self.held = np.array([self._held(max(waiting, 1)) for waiting in range(self.most + 1)])
        self.holds = np.array([self._holds(present) for present in range(1, self.count + 1)])
        self.start_shares = self._stationary()
        longest_s = wait_s + max(times.max() for times in service) + self.means[-1] * (self.count / self.most)
        self.cell_s = longest_s / CELLS
        self.waits = np.zeros((self.most + 1, CELLS + 2))  # by size of the batch, and by wait

    def _most_queued(self) -> int:
        """Return a number of requests that is practically never exceeded, from the exponential decay of the queue."""
        full = self.service[-1]
        load = self.rate * full.mean() / self.most
        spread = load + self.most * load**2 * full.var() / full.mean() ** 2
        arrivals = self.rate * max(times.max() for times in self.service)
        tail = DECAYS * spread / (2 * (1 - load)) + arrivals + 10 * math.sqrt(arrivals)
        return min(MOST_QUEUED, 3 * self.most + math.ceil(float(tail)))

    def _split(self, present: int) -> tuple[Samples, int]:
        """Return the service times of the batch that starts with so many there, and how many it leaves."""
        size = min(present, self.most)
        return self.service[size - 1], present - size

    def _stationary(self) -> Samples:
        """Return the share of the batches that start with 1, 2, … requests there."""
        moves = np.zeros((self.count, self.count + 1))
        for row, present in zip(moves, range(1, self.count + 1), strict=True):
            times_s, left = self._split(present)
            least = max(left, self.most)  # from here on the next batch is full and starts at once
            come = _poisson(self.rate * times_s, self.count + 1 - left).mean(axis=0)
            row[least:] += come[least - left :]
        moves[:, : self.most + 1] += np.einsum("pwr,wrs->ps", self.holds, self.held[:-1], optimize=True)
        moves[:, -1] += 1 - moves.sum(axis=1)  # beyond what is counted
        equations = moves[:, 1:].T - np.eye(self.count)
        equations[-1] = 1.0
        solved = np.maximum(np.linalg.solve(equations, np.eye(self.count)[-1]), 0.0)
        return np.asarray(solved / solved.sum())

    def _holds(self, present: int) -> Samples:
        """Return how likely the next batch is not full when this one ends: by requests there, and by rest of the wait.

        No request at the end is a wait for the first one, and then the whole wait.
        """
        times_s, left = self._split(present)
        shares = np.zeros((self.most, RESTS + 1))
        for time_s in times_s if left < self.most else ():
            come = _poisson(np.array(self.rate * time_s), self.most - left) / len(times_s)
            waiting = np.arange(left, self.most)
            if left:
                ages_s = np.full((len(waiting), 1), time_s + left / self.rate)
            else:
                ages_s = time_s * LEVELS ** (1 / np.maximum(waiting, 1))[:, None]
                ages_s[0] = 0.0
            weights = np.broadcast_to(come[:, None] / ages_s.shape[1], ages_s.shape)
            np.add.at(shares, (np.broadcast_to(waiting[:, None], ages_s.shape), self._rest_cells(ages_s)), weights)
        return shares

    def _rest_cells(self, ages_s: Samples) -> npt.NDArray[np.int64]:
        """Return the rest of the wait of oldest requests of these ages, in steps."""
        if not self.wait_s:
            return np.zeros(ages_s.shape, dtype=np.int64)
        return np.asarray(np.rint(np.maximum(0.0, 1 - ages_s / self.wait_s) * RESTS), dtype=np.int64)

    def _held(self, waiting: int) -> Samples:
        """Return how likely the batch has 0, 1, … requests after a wait, a row for each rest of it."""
        come = _poisson(self.rate * self.rests_s, self.most - waiting)
        sizes = np.zeros((RESTS + 1, self.most + 1))
        sizes[:, waiting : self.most] = come
        sizes[:, self.most] = 1 - come.sum(axis=1)
        return sizes

    def prediction(self) -> Prediction:
        """Return the response times over all requests, however they came."""
        present = np.arange(1, self.count + 1)
        counted = np.bincount(np.minimum(present, self.most), self.start_shares, self.most + 1)
        sizes = np.asarray(counted[1:], dtype=float)
        self._waits_of_held()
        self._waits_in_service()
        utilization = self.rate * float(sizes @ self.means) / float(sizes @ np.arange(1, self.most + 1))
        times, weights = self._responses()
        order = np.argsort(times, kind="stable")
        times, weights = times[order], weights[order] / weights.sum()
        return Prediction(utilization, float(times @ weights), sizes, times, np.cumsum(weights))

    def _responses(self) -> tuple[Samples, Samples]:
        """Return response times and their weights: each wait with each service time of the size."""
        times, weights = [], []
        for size, services in enumerate(self.service, start=1):
            cells = np.flatnonzero(self.waits[size])
            for time_s in services:
                times.append(cells * self.cell_s + time_s)
                weights.append(self.waits[size][cells] / len(services))
        return np.concatenate(times), np.concatenate(weights)

    def _waits_of_held(self) -> None:
        """Enter the requests that come while no batch runs."""
        holds = np.tensordot(self.start_shares, self.holds, axes=1)
        first = np.array([holds[0].sum()])
        self._enter_held(1, np.zeros(1), np.array([RESTS]), first)
        if self.most > 1 and self.wait_s:
            holds[1] += holds[0]
            for waiting in range(1, self.most):
                self._enter_coming(waiting, holds[waiting])

    def _enter_coming(self, waiting: int, shares: Samples) -> None:
        """Enter the requests that come during waits; but for the last one of a full batch they come at any moment."""
        sizes = self.held[waiting] * shares[:, None]
        for size in range(waiting + 1, self.most):
            weights = np.repeat((size - waiting) * sizes[:, size] / AGES, AGES)
            self._enter(size, np.outer(self.rests_s, LEVELS).ravel(), weights)
        missing, full = self.most - waiting, sizes[:, self.most]
        spans_s = self._times_to_full(missing, np.arange(RESTS + 1))
        weights = np.repeat((missing - 1) * full / AGES**2, AGES**2)
        self._enter(self.most, np.multiply.outer(spans_s, LEVELS).ravel(), weights)
        self._enter(self.most, np.zeros(RESTS + 1), full)

    def _times_to_full(self, missing: int, rests: npt.NDArray[np.int64]) -> Samples:
        """Return equally likely times to so many arrivals, given that they come within the rest of the wait."""
        if not missing:
            return np.zeros((len(rests), AGES))
        grid_s = np.linspace(0.0, self.wait_s, GRID)
        chances = 1 - _poisson(self.rate * grid_s, missing).sum(axis=-1)
        within = np.interp(self.rests_s, grid_s, chances)
        times_s = np.interp(np.outer(within, LEVELS).ravel(), chances, grid_s).reshape(-1, AGES)
        return np.asarray(times_s[rests])

    def _enter_held(self, waiting: int, waited_s: Samples, rests: npt.NDArray[np.int64], weights: Samples) -> None:
        """Enter requests that have waited in the queue, and whose batch now waits for others."""
        sizes = self.held[waiting][rests] * weights[:, None]
        for size in range(waiting, self.most):
            self._enter(size, waited_s + self.rests_s[rests], sizes[:, size])
        full_s = waited_s[:, None] + self._times_to_full(self.most - waiting, rests)
        self._enter(self.most, full_s.ravel(), np.repeat(sizes[:, self.most] / AGES, AGES))

    def _enter(self, size: int, waits_s: Samples, weights: Samples) -> None:
        self.waits[size] += np.bincount(self._cells(waits_s), weights, CELLS + 2)

    def _cells(self, waits_s: Samples) -> npt.NDArray[np.int64]:
        return np.minimum(np.asarray(np.rint(waits_s / self.cell_s), dtype=np.int64), CELLS + 1)

    def _waits_in_service(self) -> None:
        """Enter the requests that come while a batch runs."""
        # By place in the batch, time until it may start, and by how much the oldest one there is older.
        met = np.zeros((self.most + 1, CELLS + 2, RESTS + 1))
        for present in np.flatnonzero(self.start_shares > NEGLIGIBLE) + 1:
            times_s, left = self._split(int(present))
            weights = self.rate * times_s * self.start_shares[present - 1] / len(times_s)
            for time_s, weight in zip(times_s, weights, strict=True):
                self._meet(met, float(weight), float(time_s), left)
        held = np.zeros((self.most, CELLS + 2, RESTS + 1))  # by requests there, time so far, and rest of the wait
        for place in range(1, self.most + 1):
            cells, lags = np.nonzero(met[place])
            self._complete(held, place, cells, self.rests_s[lags], met[place][cells, lags])
        for waiting in range(1, self.most):
            cells, rests = np.nonzero(held[waiting])
            self._enter_held(waiting, cells * self.cell_s, rests, held[waiting][cells, rests])

    def _meet(self, met: Samples, weight: float, time_s: float, left: int) -> None:
        """Add the requests that come during one service."""
        moments_s = time_s * (np.arange(MOMENTS) + 0.5) / MOMENTS
        most_come = math.ceil(self.rate * time_s + 7 * math.sqrt(self.rate * time_s) + 8)
        come = np.arange(most_come)
        batches, before = np.divmod(left + come, self.most)
        older = np.maximum(0, left - batches * self.most)  # requests of the batch that an earlier one left behind
        lags_s = np.where(older > 0, moments_s[:, None] + older / self.rate, np.outer(moments_s, before / (come + 1)))
        lags = np.where(before == 0, 0, RESTS - self._rest_cells(lags_s))
        cells = self._cells((time_s - moments_s)[:, None] + batches * self.means[-1])
        shares = weight / MOMENTS * _poisson(self.rate * moments_s, most_come)
        np.add.at(met, (np.broadcast_to(before + 1, shares.shape), cells, lags), shares)

    def _complete(
        self, held: Samples, place: int, cells: npt.NDArray[np.int64], lags_s: Samples, weights: Samples
    ) -> None:
        """Add requests at one place of their batch by what comes behind them until it may start."""
        waited_s = cells * self.cell_s
        behind = _poisson(self.rate * waited_s, self.most - place)
        rests = self._rest_cells(waited_s + lags_s)
        for more in range(self.most - place):
            np.add.at(held[place + more], (cells, rests), weights * behind[:, more])
        self._enter(self.most, waited_s, weights * (1 - behind.sum(axis=1)))

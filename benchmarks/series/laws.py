"""Laws of latency series whose true figures are known or can be simulated: kinds of noise, and queues.

The estimator of dependence, the noise floor and their constants were chosen on ``NOISES`` and ``SERVICES``. The laws of
``HELD_OUT`` and ``HELD_OUT_QUEUES`` took no part in any choice.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from common.latency.dependence import Samples, queue_factor

Random = np.random.Generator
Law = Callable[[Random, int], Samples]


def autoregressive(random: Random, count: int, phi: float) -> Samples:
    """A series of unit deviation in which each value keeps the share ``phi`` of its neighbour."""
    filling = int(20 / (1 - phi)) + 1
    values = lfilter([1.0], [1.0, -phi], random.standard_normal(count + filling))[filling:]
    return np.asarray(values * np.sqrt(1 - phi**2))


def sticky(random: Random, count: int) -> Samples:
    """Two levels, each kept for 50 runs on average."""
    levels = (np.cumsum(random.random(count) < 0.02) + random.integers(2)) % 2
    return np.asarray(1 + 0.2 * levels + 0.02 * random.standard_normal(count))


def spiky(random: Random, count: int) -> Samples:
    slow = (random.random(count) < 0.02) * random.exponential(1.0, count)
    return np.asarray(1 + 0.02 * random.standard_normal(count) + slow)


NOISES: Mapping[str, Law] = {
    "independent, normal": lambda random, count: 1 + 0.05 * random.standard_normal(count),
    "independent, lognormal": lambda random, count: random.lognormal(0, 0.3, count),
    "independent, Pareto 2.5": lambda random, count: 1 + 0.05 * random.pareto(2.5, count),
    "spikes in 2 % of the runs": spiky,
    "AR(1) 0.3": lambda random, count: 1 + 0.05 * autoregressive(random, count, 0.3),
    "AR(1) 0.7": lambda random, count: 1 + 0.05 * autoregressive(random, count, 0.7),
    "AR(1) 0.95": lambda random, count: 1 + 0.05 * autoregressive(random, count, 0.95),
    "AR(1) 0.9, lognormal": lambda random, count: np.exp(0.1 * autoregressive(random, count, 0.9)),
    "two sticky levels": sticky,
}


class Queue(NamedTuple):
    """Requests of a queue in the order of their arrival."""

    latencies: Samples  # from arrival to answer
    service: Samples  # time of each call
    gaps: Samples  # between arrivals, one per request
    servers: int  # calls that run at once

    def first(self, count: int) -> Queue:
        """Return the first requests alone."""
        return Queue(self.latencies[:count], self.service[:count], self.gaps[:count], self.servers)

    def known_factor(self) -> float:
        """Return the least variance factor from what a load test sees: how busy the servers are, calls and arrivals.

        A series without calls is not known to be a queue.
        """
        if not len(self.service):
            return 1.0
        utilization = float(self.service.sum() / (self.gaps.sum() * self.servers))
        return queue_factor(min(utilization, 1.0), self.service, self.gaps)


class QueueLaw(NamedTuple):
    """A queue that answers in the order of arrival."""

    service: Law  # draws times of calls, of mean 1
    arrivals: Law = lambda random, count: random.exponential(1.0, count)  # draws gaps of mean 1
    servers: int = 1  # calls that run at once

    def draw(self, load: float, random: Random, count: int) -> Queue:
        """Return requests of a queue whose servers are busy for this share of their time, after it has filled."""
        filling = int(50 / (1 - load) ** 2)
        gaps = self.arrivals(random, count + filling) / (load * self.servers)
        service = self.service(random, count + filling)
        waits = _waits(gaps, service) if self.servers == 1 else _shared_waits(gaps, service, self.servers)
        return Queue((waits + service)[filling:], service[filling:], gaps[filling:], self.servers)


def _waits(gaps: Samples, service: Samples) -> Samples:
    """Waits before one server (Lindley 1952)."""
    steps = np.cumsum(np.concatenate([[0.0], service[:-1] - gaps[1:]]))
    return np.asarray(steps - np.minimum.accumulate(np.minimum(steps, 0.0)))


def _shared_waits(gaps: Samples, service: Samples, servers: int) -> Samples:
    """Waits before several servers, one request after the other."""
    free, waits = [0.0] * servers, np.empty(len(gaps))
    comes = np.cumsum(gaps)
    for place, (came, call) in enumerate(zip(comes.tolist(), service.tolist(), strict=True)):
        begins = max(free[0], came)
        waits[place] = begins - came
        heapq.heapreplace(free, begins + call)
    return waits


SERVICES: Mapping[str, Law] = {  # of mean 1
    "constant": lambda random, count: np.ones(count),
    "exponential": lambda random, count: random.exponential(1.0, count),
    "5 % of the calls 19 times as long": lambda random, count: np.where(random.random(count) < 0.05, 10.0, 10 / 19),
}
LOADS = (0.5, 0.7, 0.85, 0.9)


def exponential(random: Random, count: int) -> Samples:
    return random.exponential(1.0, count)


def in_phases(random: Random, count: int) -> Samples:
    """Gaps of arrivals that come 1.3 or 0.81 times as fast as on average, each for 50 requests on average."""
    is_fast = (np.cumsum(random.random(count) < 0.02) + random.integers(2)) % 2 == 0
    return random.exponential(1.0, count) / np.where(is_fast, 1.3, 0.8125)


QUEUES: Mapping[str, QueueLaw] = {
    **{f"service {name}": QueueLaw(service) for name, service in SERVICES.items()},
    "service exponential, arrivals in phases": QueueLaw(exponential, in_phases),
}


def volatile(random: Random, count: int) -> Samples:
    """Noise whose variance remembers the last squares: GARCH(1, 1), Bollerslev 1986."""
    normal, variance, values = random.standard_normal(count + 200), 1.0, []
    for one in normal:
        values.append(np.sqrt(variance) * one)
        variance = 0.05 + 0.15 * values[-1] ** 2 + 0.8 * variance
    return np.asarray(1 + 0.05 * np.array(values[200:]))


def waiting(load: float, random: Random, count: int) -> Samples:
    """Latencies of a queue with Poisson arrivals and lognormal service, which is not known to be one."""
    return QueueLaw(lambda random, count: random.lognormal(-0.35, 0.83, count)).draw(load, random, count).latencies


def long_memory(random: Random, count: int) -> Samples:
    """Fractional noise of d = 0.35 (Hosking 1981): correlations fall as a power of the distance."""
    length, order = 16 * count, np.arange(1, 4 * count)
    weights = np.concatenate([[1.0], np.cumprod((order - 1 + 0.35) / order)])
    spectrum = np.fft.rfft(weights, length) * np.fft.rfft(random.standard_normal(8 * count), length)
    return np.asarray(1 + 0.04 * np.fft.irfft(spectrum, length)[4 * count : 5 * count])


def oscillating(random: Random, count: int) -> Samples:
    """AR(2) with a period of twelve runs."""
    turns = 2 * 0.95 * np.cos(2 * np.pi / 12)
    values = lfilter([1.0], [1.0, -turns, 0.95**2], random.standard_normal(count + 300))[300:]
    return np.asarray(1 + 0.011 * values)


def bursts(random: Random, count: int) -> Samples:
    """Rare bursts of a dozen consecutive runs that are half as long again."""
    values = 1 + 0.03 * random.standard_normal(count)
    for start in np.flatnonzero(random.random(count) < 0.003):
        values[start : start + random.geometric(1 / 12)] *= 1.5
    return np.asarray(values)


def three_levels(random: Random, count: int) -> Samples:
    """Three levels, each kept for 20 runs on average."""
    levels = random.integers(0, 3, count + 1)[np.cumsum(random.random(count) < 0.05)]
    return np.asarray(1 + 0.08 * levels + 0.02 * random.standard_normal(count))


HELD_OUT: Mapping[str, Law] = {
    "volatility (GARCH)": volatile,
    "queue at 50 % load": partial(waiting, 0.5),
    "queue at 80 % load": partial(waiting, 0.8),
    "long memory (d = 0.35)": long_memory,
    "oscillation (AR(2))": oscillating,
    "Weibull 0.7": lambda random, count: 1 + 0.1 * random.weibull(0.7, count),
    "Student's law, 3 degrees": lambda random, count: 1 + 0.02 * np.abs(random.standard_t(3, count)),
    "moving average of 20 runs": lambda random, count: (
        1 + 0.05 * np.convolve(random.standard_normal(count + 19), np.ones(20) / np.sqrt(20), "valid")
    ),
    "bursts of slow runs": bursts,
    "three levels": three_levels,
}


def lognormal(random: Random, count: int) -> Samples:
    return random.lognormal(-0.5, 1.0, count)


def in_bursts(random: Random, count: int) -> Samples:
    """Gaps of arrivals in groups of four on average, within a group at ten times the rate."""
    return np.where(random.random(count) < 0.25, random.exponential(3.7, count), random.exponential(0.1, count))


def in_waves(random: Random, count: int) -> Samples:
    """Gaps of Poisson arrivals whose rate swings by a quarter, once in the time of 400 requests."""
    period, swing = 400.0, 0.25
    wanted = np.cumsum(random.exponential(1.0, count))  # requests expected until each arrival
    times = random.random() * period + np.linspace(0.0, 1.1 * wanted[-1] + period, 4 * count)
    expected = times - swing * period / (2 * np.pi) * np.cos(2 * np.pi * times / period)
    return np.diff(np.interp(wanted, expected - expected[0], times), prepend=times[0])


def exciting(random: Random, count: int) -> Samples:
    """Gaps of arrivals that excite others (Hawkes 1971): each brings 0.4 more, after 3 mean gaps on average."""
    born = np.cumsum(random.exponential(1 / 0.6, count + 1000))
    generations = [born]
    while len(born):
        children = random.poisson(0.4, len(born))
        born = np.repeat(born, children) + random.exponential(3.0, children.sum())
        generations.append(born)
    return np.diff(np.sort(np.concatenate(generations))[200 : 201 + count])


def pausing(random: Random, count: int) -> Samples:
    """Gaps of arrivals that pause: after a tenth of the requests, for as long as five others, by a lognormal law."""
    is_pause = random.random(count) < 0.1
    return np.where(is_pause, random.lognormal(np.log(5.0) - 0.5, 1.0, count), random.exponential(5 / 9, count))


HELD_OUT_QUEUES: Mapping[str, QueueLaw] = {
    "service lognormal 1": QueueLaw(lognormal),
    "service Weibull 0.6": QueueLaw(lambda random, count: random.weibull(0.6, count) / 1.5045755),
    "service gamma 0.3": QueueLaw(lambda random, count: random.gamma(0.3, 1 / 0.3, count)),
    "service exponential, arrivals at equal times": QueueLaw(exponential, lambda random, count: np.ones(count)),
    "service constant, arrivals in bursts": QueueLaw(lambda random, count: np.ones(count), in_bursts),
    "service exponential, arrivals in waves": QueueLaw(exponential, in_waves),
    "service lognormal 1, arrivals that excite others": QueueLaw(lognormal, exciting),
    "service constant, arrivals with pauses": QueueLaw(lambda random, count: np.ones(count), pausing),
    "service exponential, 4 servers": QueueLaw(exponential, servers=4),
    "service lognormal 1, 2 servers": QueueLaw(lognormal, servers=2),
}

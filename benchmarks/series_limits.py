"""Count how often the limits of dependent series hold what they are meant to hold.

Run by ``python -m benchmarks.series_limits``; no test depends on it. Each kind of noise, and each queue with Poisson
arrivals, has many series. Their percentiles, mean and deviation are those of 01 and 10. The true values come from two
million samples of the same law. A cell has the share of the series that have both limits, and among these the share
whose limits hold the true value. Limits of 95 % on each side are meant to hold nine in ten.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from scipy.signal import lfilter

from common.latency.dependence import Samples, queue_factor
from common.latency.statistics import QUANTILES, figures

Random = np.random.Generator
Draw = Callable[[Random, int], tuple[Samples, float]]  # a series, and the least variance factor of its queue

FIGURES = ("p50", "p90", "p95", "p99", "mean", "jitter")
TRUE_SAMPLES = 2_000_000


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


NOISES: Mapping[str, Callable[[Random, int], Samples]] = {
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
SERVICES: Mapping[str, Callable[[Random, int], Samples]] = {  # of mean 1
    "constant": lambda random, count: np.ones(count),
    "exponential": lambda random, count: random.exponential(1.0, count),
    "5 % of the calls 19 times as long": lambda random, count: np.where(random.random(count) < 0.05, 10.0, 10 / 19),
}
LOADS = (0.5, 0.7, 0.85, 0.9)


def noise(law: Callable[[Random, int], Samples], random: Random, count: int) -> tuple[Samples, float]:
    return law(random, count), 1.0


def queue(service: Callable[[Random, int], Samples], load: float, random: Random, count: int) -> tuple[Samples, float]:
    latencies, taken, gaps = queued(service, load, random, count)
    return latencies, queue_factor(load, taken, gaps)


def queued(
    service: Callable[[Random, int], Samples], load: float, random: Random, count: int
) -> tuple[Samples, Samples, Samples]:
    """Latencies, service times and gaps of a queue with one server, by Lindley's recursion after its filling."""
    filling = int(50 / (1 - load) ** 2)
    gaps, taken = random.exponential(1 / load, count + filling), service(random, count + filling)
    steps = np.cumsum(np.concatenate([[0.0], taken[:-1] - gaps[1:]]))
    waits = steps - np.minimum.accumulate(np.minimum(steps, 0.0))
    return (waits + taken)[filling:], taken[filling:], gaps[filling:]


def cases() -> Iterator[tuple[str, Draw, tuple[int, ...]]]:
    """Yield each kind of series with the numbers of samples at which it is tried."""
    for name, law in NOISES.items():
        yield name, partial(noise, law), (200, 1000)
    for name, service in SERVICES.items():
        for load in LOADS:
            yield f"queue at {load:.0%}, service {name}", partial(queue, service, load), (1500, 10_000, 100_000)


def true_figures(draw: Draw, random: Random) -> dict[str, float]:
    samples, _ = draw(random, TRUE_SAMPLES)
    quantiles = {name: float(np.quantile(samples, share)) for name, share in QUANTILES.items()}
    return quantiles | {"mean": float(samples.mean()), "jitter": float(samples.std())}


def shares(draw: Draw, count: int, truth: Mapping[str, float], series: int, random: Random) -> dict[str, str]:
    """Return for each figure the share of series with both limits, and of those the share that hold the true value."""
    held: dict[str, list[bool]] = {name: [] for name in FIGURES}
    for _ in range(series):
        samples, least_factor = draw(random, count)
        found = figures(samples, least_factor)
        for name in FIGURES:
            low, high = found[f"{name}_low_us"], found[f"{name}_high_us"]
            if low is not None and high is not None:
                held[name].append(low <= truth[name] <= high)
    return {
        name: f"{len(each) / series:.2f} {np.mean(each):.2f}" if each else "0.00    -" for name, each in held.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=300, help="series per row")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    print(f"{'stated, and of these held':56}{'samples':>8}  " + "  ".join(f"{name:>9}" for name in FIGURES))
    for name, draw, counts in cases():
        truth = true_figures(draw, random)
        for count in counts:
            cells = shares(draw, count, truth, options.series, random)
            print(f"{name:56}{count:>8}  " + "  ".join(f"{cell:>9}" for cell in cells.values()), flush=True)


if __name__ == "__main__":
    main()

"""Count how often the limits hold when they themselves end the series, as ``10_load_test.py --until`` does.

Run by ``python -m benchmarks.stopping_limits``; no test depends on it. A series is looked at when it has 300 samples,
and each time that it is a quarter longer. It ends when the limits of a percentile are near enough. Ending by chance at
a look with narrow limits would make them hold less often than limits of a fixed length. A row has how many series
ended, how often the limits of these held the true value, and the median number of samples. Laws and queues are those
of :mod:`benchmarks.series_limits`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from benchmarks.series_limits import LOADS, NOISES, SERVICES, Random, queued
from common.latency.dependence import Samples, queue_factor
from common.latency.statistics import QUANTILES, percentile
from common.load.generator.wall_clock import FIRST_REQUESTS, MORE

MOST_SAMPLES = 300_000
TRUE_SERIES = 8
NOISE_GOALS = (("p50", 0.02), ("p90", 0.03))
QUEUE_GOAL = ("p99", 0.1)

Series = tuple[Samples, Samples, Samples]  # latencies, and of a queue service times and gaps between arrivals


def noise_series(name: str, random: Random) -> Series:
    return NOISES[name](random, MOST_SAMPLES), np.empty(0), np.empty(0)


def ends_at(series: Series, load: float | None, figure: str, share: float) -> tuple[int, float, float] | None:
    """Return after how many samples the limits are near enough, and the limits; None where they never are."""
    samples, service, gaps = series
    count = FIRST_REQUESTS
    while count <= len(samples):
        factor = queue_factor(load, service[:count], gaps[:count]) if load else 1.0
        estimate = percentile(samples[:count], QUANTILES[figure], factor)
        if estimate.reach_share is not None and estimate.reach_share <= share:
            return count, estimate.low or 0.0, estimate.high or 0.0
        count = int(np.ceil(MORE * count))
    return None


def cases() -> Iterator[tuple[str, float | None, str, float]]:
    for name in NOISES:
        for figure, share in NOISE_GOALS:
            yield name, None, figure, share
    for name in SERVICES:
        for load in LOADS:
            yield name, load, *QUEUE_GOAL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=100, help="series per row")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    print(f"{'series':58}{'goal':>9}{'ended':>9}{'held':>7}{'samples':>10}")
    for name, load, figure, share in cases():

        def draw(name: str = name, load: float | None = load) -> Series:
            return queued(SERVICES[name], load, random, MOST_SAMPLES) if load else noise_series(name, random)

        truth = float(np.quantile(np.concatenate([draw()[0] for _ in range(TRUE_SERIES)]), QUANTILES[figure]))
        ends = [ends_at(draw(), load, figure, share) for _ in range(options.series)]
        found = [end for end in ends if end]
        held = f"{np.mean([low <= truth <= high for _, low, high in found]):.2f}" if found else "-"
        count = f"{np.median([count for count, _, _ in found]):,.0f}" if found else "-"
        title = f"queue at {load:.0%}, service {name}" if load else name
        goal = f"{figure} {share:.0%}"
        print(f"{title:58}{goal:>9}{len(found):>5}/{options.series}{held:>7}{count:>10}", flush=True)


if __name__ == "__main__":
    main()

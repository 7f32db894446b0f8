"""Count how often the limits hold when they themselves end the series, as ``10_load_test.py --until`` does.

Run by ``make check-limits``; no test depends on it. A series is looked at when it has 300 samples, and each time that
it is a quarter longer. It ends when the limits of a percentile are near enough. Ending by chance at a look with narrow
limits would make them hold less often than limits of a fixed length. A row has how many series ended, how often the
limits of these held the true value, and the median number of samples. Laws and queues are those of
:mod:`benchmarks.series.laws`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from benchmarks.series.laws import (
    HELD_OUT,
    HELD_OUT_QUEUES,
    LOADS,
    NOISES,
    QUEUES,
    Law,
    Queue,
    QueueLaw,
    Random,
)
from common.latency.statistics import QUANTILES, percentile
from common.load.generator.wall_clock import FIRST_REQUESTS, MORE

MOST_SAMPLES = 300_000
TRUE_SERIES = 8
NOISE_GOALS = (("p50", 0.02), ("p90", 0.03))
QUEUE_GOAL = ("p99", 0.1)

Draw = Callable[[Random], Queue]


def noise(law: Law, random: Random) -> Queue:
    """Return a series as if it were a queue of which nothing is known."""
    return Queue(law(random, MOST_SAMPLES), np.empty(0), np.empty(0), 1)


def ends_at(series: Queue, figure: str, share: float) -> tuple[int, float, float] | None:
    """Return after how many samples the limits are near enough, and the limits; None where they never are."""
    count = FIRST_REQUESTS
    while count <= len(series.latencies):
        start = series.first(count)
        estimate = percentile(start.latencies, QUANTILES[figure], start.known_factor())
        if estimate.reach_share is not None and estimate.reach_share <= share:
            return count, estimate.low or 0.0, estimate.high or 0.0
        count = int(np.ceil(MORE * count))
    return None


def cases(noises: Mapping[str, Law], queues: Mapping[str, QueueLaw]) -> Iterator[tuple[str, Draw, str, float]]:
    for name, law in noises.items():
        for figure, share in NOISE_GOALS:
            yield name, partial(noise, law), figure, share
    for name, queue_law in queues.items():
        for load in LOADS:
            yield f"queue at {load:.0%}, {name}", partial(queue_law.draw, load, count=MOST_SAMPLES), *QUEUE_GOAL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=100, help="series per row")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for title, noises, queues in (("chosen on", NOISES, QUEUES), ("held out", HELD_OUT, HELD_OUT_QUEUES)):
        print(f"\n| {title} | goal | ended | held | samples |", flush=True)
        for name, draw, figure, share in cases(noises, queues):
            random = np.random.default_rng(options.seed)
            truth = float(
                np.quantile(np.concatenate([draw(random).latencies for _ in range(TRUE_SERIES)]), QUANTILES[figure])
            )
            ends = [ends_at(draw(random), figure, share) for _ in range(options.series)]
            found = [end for end in ends if end]
            held = f"{np.mean([low <= truth <= high for _, low, high in found]):.2f}" if found else "–"
            count = f"{np.median([count for count, _, _ in found]):,.0f}" if found else "–"
            print(f"| {name} | {figure} {share:.0%} | {len(found)} | {held} | {count} |", flush=True)


if __name__ == "__main__":
    main()

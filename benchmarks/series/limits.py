"""Count how often the limits of dependent series hold what they are meant to hold.

Run by ``make check-limits``; no test depends on it. Each kind of noise, and each queue, has many series. Their
percentiles, mean and deviation are those of 01 and 10. The true values come from two million samples of the same law. A
cell has the share of stated limits that hold the true value, on both sides, and in brackets the share of the series
that have both limits, where it is not all of them. Limits of 95 % on each side are meant to hold nine in ten.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from benchmarks.series.laws import HELD_OUT, HELD_OUT_QUEUES, LOADS, NOISES, QUEUES, Law, QueueLaw, Random
from common.latency.dependence import Samples
from common.latency.statistics import QUANTILES, figures

Draw = Callable[[Random, int], tuple[Samples, float]]  # a series, and the least variance factor of its queue

FIGURES = ("p50", "p90", "p95", "p99", "mean", "jitter")
TRUE_SAMPLES = 2_000_000
NOISE_COUNTS, QUEUE_COUNTS = (30, 100, 200, 1000), (1500, 10_000, 100_000)


def noise(law: Law, random: Random, count: int) -> tuple[Samples, float]:
    return law(random, count), 1.0


def queue(law: QueueLaw, load: float, random: Random, count: int) -> tuple[Samples, float]:
    return (found := law.draw(load, random, count)).latencies, found.known_factor()


def cases(noises: Mapping[str, Law], queues: Mapping[str, QueueLaw]) -> Iterator[tuple[str, Draw, tuple[int, ...]]]:
    """Yield each kind of series with the numbers of samples at which it is tried."""
    for name, law in noises.items():
        yield name, partial(noise, law), NOISE_COUNTS
    for name, queue_law in queues.items():
        for load in LOADS:
            yield f"queue at {load:.0%}, {name}", partial(queue, queue_law, load), QUEUE_COUNTS


def true_figures(draw: Draw, random: Random) -> dict[str, float]:
    samples, _ = draw(random, TRUE_SAMPLES)
    quantiles = {name: float(np.quantile(samples, share)) for name, share in QUANTILES.items()}
    return quantiles | {"mean": float(samples.mean()), "jitter": float(samples.std())}


def cells(draw: Draw, count: int, truth: Mapping[str, float], series: int, random: Random) -> list[str]:
    """Return for each figure the share of limits that hold the true value, and the share of series that have both."""
    held: dict[str, list[bool]] = {name: [] for name in FIGURES}
    for _ in range(series):
        samples, least_factor = draw(random, count)
        found = figures(samples, least_factor)
        for name in FIGURES:
            low, high = found[f"{name}_low_us"], found[f"{name}_high_us"]
            if low is not None and high is not None:
                held[name].append(low <= truth[name] <= high)
    return [_cell(each, series) for each in held.values()]


def _cell(held: list[bool], series: int) -> str:
    if not held:
        return "–"
    stated = len(held) / series
    return f"{np.mean(held):.2f}" + (f" ({stated:.0%})" if stated < 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=300, help="series per row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", action="store_true", help="only the laws that took no part in any choice")
    options = parser.parse_args()
    tables = [("held out", HELD_OUT, HELD_OUT_QUEUES)]
    if not options.held_out:
        tables.insert(0, ("chosen on", NOISES, QUEUES))
    for title, noises, queues in tables:
        print(f"\n| {title} | samples | {' | '.join(FIGURES)} |", flush=True)
        for name, draw, counts in cases(noises, queues):
            random = np.random.default_rng(options.seed)
            truth = true_figures(draw, random)
            for count in counts:
                row = cells(draw, count, truth, options.series, random)
                print(f"| {name} | {count:,} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

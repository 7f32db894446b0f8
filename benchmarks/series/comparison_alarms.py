"""Count how often 11 calls figures of the latency different where nothing is, and which slowdown it finds.

Run by ``make check-alarms``; no test depends on it. Each law draws pairs of series, which the comparison's own function
judges. The family is median, percentiles, mean and deviation together: an alarm is a pair in which any of them
regressed or improved, and a failure is a pair in which any regressed, as ``--fail-above 0.1%`` would count it. The
slowdown found is the least of ``SLOWDOWNS`` that is called a regression in four of five pairs, by figure.

The reach of the noise floor was chosen on the first half of the laws. Nothing was chosen on the others. A second table
has sessions whose levels differ by 1 %.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from benchmarks.series.laws import HELD_OUT, NOISES, Law, Random, autoregressive
from common.comparison.latency_family import LatencySide, judged_latency
from common.latency.dependence import Samples

LOUD = ("regressed", "improved")
MARGIN_SHARE = 0.05
COUNTS = (200, 1000)
SLOWDOWNS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
FOUND_SHARE = 0.8
SHOWN = ("p50", "mean", "p90", "p95", "p99")
SESSION_SHARE = 0.01
SESSIONS = ((1, 1), (3, 1), (2, 2), (3, 3), (5, 5))


def ramp(random: Random, count: int, most: float = 0.05) -> Samples:
    """A level that rises or falls by up to 5 %, in each series by another share."""
    slope = random.uniform(-most, most)
    return np.asarray((1 + slope * np.linspace(0, 1, count)) * (1 + 0.05 * random.standard_normal(count)))


def same_ramp(random: Random, count: int) -> Samples:
    return np.asarray((1 + 0.05 * np.linspace(0, 1, count)) * (1 + 0.05 * random.standard_normal(count)))


def wandering(random: Random, count: int) -> Samples:
    """A random walk of 2 % over the series, below independent noise."""
    walk = 0.02 / np.sqrt(count) * np.cumsum(random.standard_normal(count))
    return np.asarray(1 + walk + 0.05 * random.standard_normal(count))


def wave(random: Random, count: int) -> Samples:
    phase = random.random() + np.linspace(0, random.uniform(0.5, 2), count)
    return np.asarray(1 + 0.03 * np.sin(2 * np.pi * phase) + 0.05 * random.standard_normal(count))


CHOSEN_ON: Mapping[str, Law] = {
    **NOISES,
    "drift: a ramp of up to ±5 %": ramp,
    "drift: the same ramp of 5 %": same_ramp,
    "drift: a random walk of 2 %": wandering,
    "drift: a wave of 3 %": wave,
}


SESSION_LAWS: Mapping[str, Law] = {
    "independent": lambda random, count: 1 + 0.03 * random.standard_normal(count),
    "AR(1) 0.7": lambda random, count: 1 + 0.03 * autoregressive(random, count, 0.7),
    "spikes in 2 % of the runs": NOISES["spikes in 2 % of the runs"],
    "two sticky levels": NOISES["two sticky levels"],
}
Pair = tuple[LatencySide, Sequence[Samples]]


class Alarms(NamedTuple):
    """Shares of pairs of equal series, and the share of their figures that were judged."""

    alarm: float
    failure: float
    judged: float


def verdicts(before: LatencySide, after: Sequence[Samples], slowdown: float = 0.0) -> dict[str, str]:
    """Return the verdict on each figure, where the candidate is slower by a share."""
    slower = LatencySide([(1 + slowdown) * session for session in after])
    return {name: judgement.outcome for name, (_, judgement) in judged_latency(before, slower, MARGIN_SHARE).items()}


def alarms(pairs: Sequence[Pair]) -> Alarms:
    found = [verdicts(*pair) for pair in pairs]
    loud = [bool({*one.values()} & {*LOUD}) for one in found]
    failed = ["regressed" in one.values() for one in found]
    judged = [verdict != "not judged" for one in found for verdict in one.values()]
    return Alarms(float(np.mean(loud)), float(np.mean(failed)), float(np.mean(judged)))


def found_slowdowns(pairs: Sequence[Pair]) -> dict[str, float | None]:
    """Return the least slowdown that is found in four of five pairs, by figure; None where none of them is."""

    @cache
    def verdicts_at(slowdown: float) -> list[dict[str, str]]:
        return [verdicts(*pair, slowdown) for pair in pairs]

    def is_found(name: str, slowdown: float) -> bool:
        return sum(one.get(name) == "regressed" for one in verdicts_at(slowdown)) >= FOUND_SHARE * len(pairs)

    places = {name: bisect_left(SLOWDOWNS, True, key=partial(is_found, name)) for name in SHOWN}
    return {name: SLOWDOWNS[place] if place < len(SLOWDOWNS) else None for name, place in places.items()}


def session_pair(law: Law, counts: tuple[int, int], runs: int, random: Random) -> Pair:
    """Draw sessions whose levels differ by 1 %."""
    before, after = (
        [(1 + SESSION_SHARE * random.standard_normal()) * law(random, runs) for _ in range(count)] for count in counts
    )
    return LatencySide(before), after


def rows(laws: Mapping[str, Law], options: argparse.Namespace) -> Iterator[str]:
    for name, law in laws.items():
        for count in COUNTS:
            random = np.random.default_rng(options.seed)
            pairs = [(LatencySide([law(random, count)]), [law(random, count)]) for _ in range(options.pairs)]
            yield _row(f"{name} | {count:,}", pairs, options)


def session_rows(options: argparse.Namespace) -> Iterator[str]:
    for name, law in SESSION_LAWS.items():
        for counts in SESSIONS:
            random = np.random.default_rng(options.seed)
            pairs = [session_pair(law, counts, options.session_runs, random) for _ in range(options.pairs)]
            yield _row(f"{name} | {counts[0]} and {counts[1]}", pairs, options)


def _row(head: str, pairs: Sequence[Pair], options: argparse.Namespace) -> str:
    share, found = alarms(pairs), found_slowdowns(pairs[: options.power_pairs])
    cells = ["–" if found[name] is None else f"{found[name]:.1%}" for name in SHOWN]
    return f"| {head} | {share.alarm:.1%} | {share.failure:.1%} | {share.judged:.0%} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200, help="pairs per row")
    parser.add_argument("--power-pairs", type=int, default=25, help="of these, pairs that are slowed down")
    parser.add_argument("--session-runs", type=int, default=200, help="runs of each session")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    figures = " | ".join(f"{name} found" for name in SHOWN)
    for title, lines in (
        ("chosen on", rows(CHOSEN_ON, options)),
        ("held out", rows(HELD_OUT, options)),
        ("sessions", session_rows(options)),
    ):
        print(f"\n| {title} | runs or sessions | alarms | failures | judged | {figures} |", flush=True)
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()

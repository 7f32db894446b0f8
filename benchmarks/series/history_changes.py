"""Count false changes of level in histories of known laws, and find the step that is found in four of five histories.

Run by ``make check-history``; no test depends on it. The first table has, for each law and number of records, the share
of histories without a change in which a change is found, and the share whose newest record is beyond the noise floor.
At most one change in twenty is promised for the laws of ``PROMISED``: independent figures of any distribution, and
AR(1) to 0.8. The others took no part in the design. The second table has the smallest step with which a change is found
in 80 % of the histories. Its unit is the standard deviation of a record.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import numpy as np
from scipy.signal import lfilter

from common.history.levels import changes, from_level
from common.latency.dependence import Samples
from common.view.text import percent, text_table

COUNTS = (10, 20, 50, 200)
LEVEL, SCATTER = 1000.0, 10.0  # 1 % of scatter
STEPS = (1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 30)  # standard deviations
POWER = 0.8
FILLING = 300
LENGTHS, WIDTH = tuple(f"{count} records" for count in COUNTS), 120
Random = np.random.Generator
Law = Callable[[Random, int], Samples]


def autoregressive(*weights: float) -> Law:
    """Return the law of series in which each value keeps shares of the ones before it."""

    def drawn(random: Random, count: int) -> Samples:
        noise = random.standard_normal(count + FILLING)
        return np.asarray(lfilter([1.0], [1.0, *(-weight for weight in weights)], noise)[FILLING:])

    return drawn


def skewed(random: Random, count: int) -> Samples:
    """AR(1) 0.8 with a lognormal distribution."""
    return np.asarray(np.exp(0.6 * autoregressive(0.8)(random, count)))


def moving(random: Random, count: int) -> Samples:
    return np.convolve(random.standard_normal(count + 3), [1.0, 0.8, 0.5, 0.3], "valid")


def weekly(random: Random, count: int) -> Samples:
    return np.sin(2 * np.pi * (np.arange(count) / 7 + random.random())) + 0.7 * random.standard_normal(count)


def bursts(longest: int) -> Law:
    """Return the law of noise in which one record in twenty begins a burst of up to so many slow ones."""

    def drawn(random: Random, count: int) -> Samples:
        values = random.standard_normal(count)
        for start in np.flatnonzero(random.random(count) < 0.05):
            values[start : start + random.integers(1, longest + 1)] += random.exponential(4.0)
        return values

    return drawn


PROMISED: Mapping[str, Law] = {
    "independent, normal": lambda random, count: random.standard_normal(count),
    "independent, lognormal": lambda random, count: random.lognormal(0, 1, count),
    "independent, Pareto 1.5": lambda random, count: random.pareto(1.5, count),
    "independent, two values": lambda random, count: random.integers(0, 2, count).astype(float),
    "AR(1) 0.3": autoregressive(0.3),
    "AR(1) 0.5": autoregressive(0.5),
    "AR(1) 0.8": autoregressive(0.8),
}
OTHERS: Mapping[str, Law] = {
    "AR(1) -0.5": autoregressive(-0.5),
    "AR(1) 0.8, lognormal": skewed,
    "AR(1) 0.9": autoregressive(0.9),
    "AR(2) 0.4, 0.2": autoregressive(0.4, 0.2),
    "AR(2) 0.5, 0.3": autoregressive(0.5, 0.3),
    "AR(2) 1.2, -0.6": autoregressive(1.2, -0.6),
    "AR(3) 0.3, 0.2, 0.2": autoregressive(0.3, 0.2, 0.2),
    "moving average of four": moving,
    "weekly": weekly,
    "bursts of 1 or 2 records": bursts(2),
    "bursts of up to 10 records": bursts(10),
}


def history(law: Law, random: Random, count: int) -> Samples:
    return LEVEL + SCATTER * law(random, count)


def false_shares(law: Law, random: Random, count: int, histories: int) -> tuple[float, float]:
    """Return the share of histories with a change, and of those whose newest record is beyond the floor."""
    changed = beyond = 0
    for _ in range(histories):
        values = history(law, random, count + 1)
        changed += bool(changes(values[:-1].tolist(), 1))
        found = from_level(values[:-1].tolist(), float(values[-1]), 1)
        beyond += abs(found.share or 0.0) > (found.noise_floor_share or np.inf)
    return changed / histories, beyond / histories


def found_step(law: Law, random: Random, count: int, place: int, family: int, histories: int) -> str:
    """Return the smallest step that is found in 80 % of the histories."""
    for step in STEPS:
        found = 0
        for _ in range(histories):
            values = history(law, random, count)
            values[place:] += step * SCATTER
            found += bool(changes(values.tolist(), family))
        if found >= POWER * histories:
            return f"{step:g}"
    return f"above {STEPS[-1]:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1000, help="of each law and length; a fifth for each step")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    rows = []
    for name, law in {**PROMISED, **OTHERS}.items():
        shares = [false_shares(law, random, count, options.histories) for count in COUNTS]
        rows.append([name, *(f"{percent(one)}, {percent(two)}" for one, two in shares)])
    print(text_table(("changes, newest records", *LENGTHS), rows, width=WIDTH), flush=True)
    rows = []
    for name in ("independent, normal", "AR(1) 0.5"):
        for where, share in (("in the middle", 0.5), ("before the last fifth", 0.8)):
            for family in (1, 10, 100):
                steps = (
                    found_step(PROMISED[name], random, count, round(share * count), family, options.histories // 5)
                    for count in COUNTS
                )
                rows.append([f"{name}, {where}, of {family}", *steps])
    print(text_table(("step, in deviations", *LENGTHS), rows, width=WIDTH))


if __name__ == "__main__":
    main()

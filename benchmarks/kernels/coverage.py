"""Intervals for designs of a kind that has not been seen yet, and how many published figures they hold.

A model is compared with designs of several families. Designs of one family resemble each other, so the next design, of
another family, is a draw of a family and of a design within it. With x = ln(published / model):

    interval = mean of the families ± t(0.95, families - 1) · sqrt(between · (1 + 1 / families) + within)

the prediction interval of a random-effects model (Higgins, Thompson, Spiegelhalter, J. R. Statist. Soc. A 172, 2009),
with the variance between families by moments (DerSimonian, Laird 1986) and the pooled variance within them. Two or
three families say little about the next one, and t makes such intervals wide. *Coverage* is counted by leaving each
family out: its figures are compared with the interval that the others give.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, inf, log, sqrt
from statistics import fmean, median, variance

from scipy.stats import t as student

TAIL = 0.05  # on either side: the interval of times is meant to hold 90 %
RESOURCE_TAIL = 0.1  # that of resources 80 %
Ratios = Mapping[str, Sequence[float]]  # published / model, by family


@dataclass(frozen=True, slots=True)
class Band:
    """Factors of the model's value between which 90 % of designs are expected."""

    low: float
    high: float

    def __contains__(self, ratio: float) -> bool:
        return self.low <= ratio <= self.high

    def __str__(self) -> str:
        return f"{self.low:.3f} to {self.high:.3f}"

    @property
    def around_one(self) -> Band:
        """The band, widened so that it holds the model's value itself."""
        return Band(min(self.low, 1.0), max(self.high, 1.0))


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of ln(published / model): between families, for a further one, and within them."""

    mean: float  # of the families' means
    median: float  # of the families' medians, without the referees'
    family_sd: float  # between families; the uncertainty of their mean counts as well
    design_sd: float  # within families
    family_count: int

    def reach(self, tail: float = TAIL) -> float:
        """Return the logarithm from the middle to an end of the prediction interval."""
        return float(student.ppf(1 - tail, self.family_count - 1)) * hypot(self.family_sd, self.design_sd)

    def around_median(self, tail: float = TAIL) -> Band:
        """Return the interval around the median of the families."""
        return Band(exp(self.median - self.reach(tail)), exp(self.median + self.reach(tail)))


def spread_of(ratios: Ratios, referees: Container[str] = ()) -> Spread:
    """Return how the families scatter, of which there must be two; referees take no part in the median."""
    logs = [[log(ratio) for ratio in family] for family in ratios.values() if family]
    means, free = [fmean(family) for family in logs], sum(len(family) - 1 for family in logs)
    spread = sum(variance(family) * (len(family) - 1) for family in logs if len(family) > 1)
    within = spread / free if free else 0.0
    between = max(0.0, variance(means) - fmean(within / len(family) for family in logs))
    middle = median(median(map(log, family)) for name, family in ratios.items() if family and name not in referees)
    return Spread(fmean(means), middle, sqrt(between * (1 + 1 / len(logs))), sqrt(within), len(logs))


def band_of(ratios: Ratios) -> Band:
    """Return the band around the mean of the families that also holds 1; without a second family, everything."""
    if sum(1 for family in ratios.values() if family) < 2:
        return Band(0.0, inf)
    found = spread_of(ratios)
    return Band(exp(found.mean - found.reach()), exp(found.mean + found.reach())).around_one


def narrowest(ratios: Ratios, share: float) -> Band:
    """Return the narrowest band that holds this share of the figures, as a mean over the families, chosen in hindsight.

    No interval whose ends are the same multiples of the model's value for all families does better.
    """
    ends = sorted(ratio for family in ratios.values() for ratio in family)
    bands = (Band(low, high) for at, low in enumerate(ends) for high in ends[at:])
    return min((band for band in bands if held(ratios, band) >= share), key=lambda band: band.high / band.low)


def held(ratios: Ratios, band: Band) -> float:
    """Return the share of the figures inside a band, as a mean over the families."""
    return fmean(fmean(ratio in band for ratio in family) for family in ratios.values())


def left_out(ratios: Ratios) -> dict[str, tuple[Band, int, int]]:
    """Return for each family the band that the others give, and how many of its figures that band holds."""
    found = {}
    for family, own in ratios.items():
        band = band_of({name: values for name, values in ratios.items() if name != family})
        found[family] = (band, sum(ratio in band for ratio in own), len(own))
    return found

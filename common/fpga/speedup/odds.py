"""The distribution of a gain over all draws: interval, probability of a gain, and terms that would decide it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.fpga.speedup.draws import DRAWS, Draws, Values

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
PARTS = 32  # of the draws of a term, by rank
MIDDLE = slice(PARTS // 2 - 2, PARTS // 2 + 2)  # the parts around the likely value
# Adjusted R² that a term without effect exceeds once in twenty: the 95 % quantile of F(31, 4064) is 1.454.
BY_CHANCE = 0.454 * (PARTS - 1) / (DRAWS - PARTS)


@dataclass(frozen=True, slots=True)
class TermInformation:
    """The influence of a term on the gain, and the value of knowing the term."""

    term: str
    variance_share: float  # share of the variance of the gain's logarithm that this term alone explains (Sobol' 1993)
    # Probability of a gain if the term has its likely value: from the eighth of the draws around it
    pays_probability: float
    # Expected saving of one inference beyond today's better decision, if the term were known before the decision (the
    # expected value of partial perfect information; Strong, Oakley 2013, Medical Decision Making 33(6)), in the unit of
    # the objective
    value: float


@dataclass(frozen=True, slots=True)
class Odds:
    """The distribution of a gain: ``quantiles`` at :data:`QUANTILES`, the probability that it is above 1, its terms."""

    quantiles: tuple[float, ...]
    pays_probability: float
    terms: tuple[TermInformation, ...]


def odds_of(alone: Values, new: Values, draws: Draws, names: Iterable[str]) -> Odds:
    """Return the distribution of alone / new, and the named terms by their share of its variance."""
    alone, new = (np.broadcast_to(values, (DRAWS,)) for values in (alone, new))
    gains = alone / new
    terms = [_information(term, draws.ranks[term], gains, alone - new) for term in names]
    return Odds(
        tuple(float(value) for value in np.quantile(gains, QUANTILES)),
        float(np.mean(gains > 1)),
        tuple(sorted(terms, key=lambda each: (-each.variance_share, each.term))),
    )


def _information(term: str, ranks: npt.NDArray[np.int64], gains: Values, savings: Values) -> TermInformation:
    mean = float(np.mean(savings))
    # Means of a few draws differ by chance; near a gain of 1 a decision after each would gain by chance. So they are
    # drawn towards their mean, until they vary as much as the term makes them; chance alone has no value.
    by_part, share = _means(ranks, savings), _explained_share(ranks, savings)
    spread, wanted = float(np.std(by_part)), float(np.sqrt(share)) * float(np.std(savings))
    drawn = mean + (by_part - mean) * (wanted / spread) if share > BY_CHANCE else np.full(PARTS, mean)
    known = float(np.mean(np.maximum(drawn, 0.0))) - max(mean, 0.0)
    middle = float(np.mean(_means(ranks, (gains > 1).astype(np.float64))[MIDDLE]))
    return TermInformation(term, _explained_share(ranks, np.log(gains)), middle, max(known, 0.0))


def _means(ranks: npt.NDArray[np.int64], values: Values) -> Values:
    """Return the mean of the values in each part of a term's distribution."""
    return np.asarray(np.bincount(ranks * PARTS // DRAWS, values, PARTS) * (PARTS / DRAWS), np.float64)


def _explained_share(ranks: npt.NDArray[np.int64], values: Values) -> float:
    """Return the share of a variance that a term explains, less the share that so many parts explain by chance.

    That is the adjusted R².
    """
    total = float(np.var(values))
    share = float(np.var(_means(ranks, values))) / total if total > 0 else 0.0
    return max(0.0, 1.0 - (1.0 - share) * (DRAWS - 1) / (DRAWS - PARTS)) if share > 0 else 0.0

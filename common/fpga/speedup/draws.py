"""Draws of uncertain quantities; a cause that several quantities have in common is drawn once.

An interval of a three-point estimate holds 90 % of what was published or measured. Its ends are the 5 % and the 95 %
quantile, and the likely value is the median. The logarithm is normal on each side of the median, with a spread of its
own (a split normal distribution; Wallis 2014, Statistical Science 29(1)).

Terms are drawn by Latin hypercube sampling (McKay, Beckman, Conover 1979, Technometrics 21(2)): each term has every
quantile of its distribution once, in an order that is independent of the other terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from math import log, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from common.intervals import END_Z, ThreePoint, combine

Values = npt.NDArray[np.float64]
DRAWS = 4096
SEED = 26


@cache
def quantiles() -> Values:
    """Return the middles of as many equally probable parts of the standard normal distribution as there are draws."""
    standard = NormalDist()
    return np.array([standard.inv_cdf((rank + 0.5) / DRAWS) for rank in range(DRAWS)])


class Draws:
    """Draws of each term by its name. A high draw is good for the plan."""

    def __init__(self, terms: Iterable[str]) -> None:
        generator = np.random.default_rng(SEED)
        # Of each term, the rank of every draw among all draws of that term
        self.ranks: Mapping[str, npt.NDArray[np.int64]] = {term: generator.permutation(DRAWS) for term in terms}
        self._sides = {term: _sides(quantiles()[ranks]) for term, ranks in self.ranks.items()}

    def of(self, term: str, estimate: ThreePoint) -> Values:
        """Return an estimate at every draw of a term.

        A quantity that is zero in a case has no logarithm; it is drawn between its cases.
        """
        (slow, fast), (pessimistic, likely, optimistic) = self._sides[term], estimate.cases
        if not min(estimate.cases) > 0 or pessimistic == optimistic:
            return self.between(term, estimate)
        return np.asarray(likely * np.exp(slow * log(pessimistic / likely) + fast * log(optimistic / likely)))

    def between(self, term: str, estimate: ThreePoint) -> Values:
        """Return an estimate at every draw, on straight lines between its cases; no draw is beyond them.

        Parts of a known whole keep their sum: if one part is larger, the others are smaller.
        """
        pessimistic, likely, optimistic = estimate.cases
        if pessimistic == likely == optimistic:
            return np.full(1, likely)
        slow, fast = (np.minimum(side, 1.0) for side in self._sides[term])
        return np.asarray(likely + slow * (pessimistic - likely) + fast * (optimistic - likely))

    def kernel_us(self, causes: Mapping[str, float], clock: str, time_us: ThreePoint, clock_mhz: ThreePoint) -> Values:
        """Return the time of a kernel at every draw of its causes and of the card's clock.

        The interval of the time holds all of them. They are independent, so the squares of the logarithms add up. No
        draw is faster than the optimistic case: the best published one, or what ports and multipliers allow. ``causes``
        are terms with their shares of the variance that the clock does not explain; the shares add up to 1.
        """
        if not min(time_us.cases) > 0 or time_us.pessimistic == time_us.optimistic:
            return self.of(max(causes, key=causes.__getitem__), time_us)
        whole = combine(lambda us: abs(log(us / time_us.likely)), time_us)
        of_clock = combine(lambda mhz, all_of_it: min(abs(log(mhz / clock_mhz.likely)), all_of_it), clock_mhz, whole)
        exponents = self._reach(clock, of_clock)
        for term, share in causes.items():
            rest = combine(lambda all_of_it, part: sqrt(all_of_it**2 - part**2), whole, of_clock)
            exponents = exponents + sqrt(share) * self._reach(term, rest)
        return np.maximum(time_us.likely * np.exp(exponents), time_us.optimistic)

    def _reach(self, term: str, reach: ThreePoint) -> Values:
        """Return logarithms of a time: how much longer it gets, at most by the pessimistic end at the 5 % quantile."""
        slow, fast = self._sides[term]
        return slow * reach.pessimistic - fast * reach.optimistic


def _sides(z: Values) -> tuple[Values, Values]:
    """Return how far each draw is from the median to the pessimistic and to the optimistic end, which are at 1."""
    return np.maximum(-z, 0.0) / END_Z, np.maximum(z, 0.0) / END_Z

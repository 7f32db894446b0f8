"""Lengths of requests, such as tokens, from a distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from common.load.requests.load_record import TimesNs
from common.messages.errors import UnusableValueError

FORMS = "uniform:LEAST,MOST, normal:MEAN,DEVIATION,MOST or lognormal:MEDIAN,SIGMA,MOST"
PARAMETERS = {"uniform": 2, "normal": 3, "lognormal": 3}
LONGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of whole lengths, cut off below 1 and above the longest.

    What is cut off is drawn again. The middle of the distribution is inside, so at least about half of it remains.
    """

    kind: str  # ``uniform``, ``normal`` or ``lognormal``, which is exp of a normal distribution
    place: float  # the least length, the mean, or the median
    spread: float  # the standard deviation, for ``lognormal`` that of the logarithm; 0 for ``uniform``
    most: int

    @classmethod
    def parse(cls, text: str, quantity: str = "lengths") -> Lengths:
        """Return the distribution that a text such as ``lognormal:64,0.8,512`` names.

        Args:
            quantity: the setting that it is the value of.

        Raises:
            UnusableValueError: it names none, or one without a length between 1 and its longest.
        """
        kind, _, parameters = text.partition(":")
        try:
            numbers = [float(number) for number in parameters.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != PARAMETERS.get(kind) or not all(map(math.isfinite, numbers)):
            raise UnusableValueError(quantity, f"{text!r} is no distribution", f"give {FORMS}")
        place, spread, most = numbers if len(numbers) == PARAMETERS["normal"] else (numbers[0], 0.0, numbers[1])
        if not (most == int(most) and 1 <= place <= most <= LONGEST and spread >= 0):
            problem = f"{text!r} is not within 1 and its longest length"
            raise UnusableValueError(quantity, problem, f"give whole lengths up to {LONGEST:,}: {FORMS}")
        return cls(kind, place, spread, int(most))

    def draw(self, count: int, seed: int) -> TimesNs:
        """Return lengths of so many requests; equal seeds give equal ones."""
        random = np.random.default_rng((seed, 1))  # other numbers than those of the arrivals
        if self.kind == "uniform":
            return random.integers(round(self.place), self.most, count, endpoint=True)
        kept = np.zeros(0, np.int64)
        while len(kept) < count:
            if self.kind == "normal":
                drawn = random.normal(self.place, self.spread, count)
            else:
                drawn = random.lognormal(math.log(self.place), self.spread, count)
            drawn = np.rint(drawn)
            kept = np.concatenate([kept, drawn[(drawn >= 1) & (drawn <= self.most)].astype(np.int64)])
        return kept[:count]

"""A precision that a load may aim at: how near the limits of one figure of the latency must be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from common.latency.dependence import Dependence, Samples
from common.latency.statistics import QUANTILES, mean_and_deviation, percentile
from common.messages.errors import UnusableValueError
from common.messages.names import quoted

MEAN = "mean"
FIGURES = (*QUANTILES, MEAN)


@dataclass(frozen=True, slots=True)
class Precision:
    """A precision of a figure.

    Attributes:
        figure: one of ``FIGURES``.
        most_share: largest distance of a limit from the figure, as a share of the figure.
    """

    figure: str
    most_share: float

    @classmethod
    def parse(cls, text: str) -> Precision:
        """Return the precision of ``FIGURE PERCENT%``.

        Raises:
            UnusableValueError: there is no such figure, or the percentage is not between 0 and 100.
        """
        name, _, percent = text.strip().partition(" ")
        figure = name.replace(".", "_")
        if figure not in FIGURES or not percent.endswith("%"):
            figures = ", ".join(each.replace("_", ".") for each in FIGURES)
            problem = f"{quoted(text)} is not a figure and a percentage"
            raise UnusableValueError("until", problem, f'such as "p99 5%"; figures are {figures}')
        try:
            most_share = float(percent.removesuffix("%")) / 100
        except ValueError:
            most_share = math.nan
        if not 0 < most_share < 1:
            raise UnusableValueError("until", f"{quoted(percent.strip())}", "it takes a percentage between 0 and 100")
        return cls(figure, most_share)

    def __str__(self) -> str:
        return f"{self.figure.replace('_', '.')} {100 * self.most_share:g}%"

    def reached_share(self, samples_us: Samples, least_factor: float) -> float | None:
        """Return how far the farther limit is from the figure, as a share of it; None without both limits.

        Args:
            samples_us: latencies that count, in their order; at least one.
            least_factor: see :class:`common.latency.dependence.Dependence`.
        """
        if self.figure == MEAN:
            return mean_and_deviation(Dependence(samples_us, least_factor))[0].reach_share
        return percentile(samples_us, QUANTILES[self.figure], least_factor).reach_share

"""What is asked of a load: how few requests fail, how many are answered in time, and how precise a figure is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from common.latency.dependence import Dependence, Samples
from common.latency.statistics import QUANTILES, mean_and_deviation, percentile
from common.load.requests.load_record import LoadRecord
from common.messages.errors import UnusableValueError
from common.messages.names import quoted

MAX_ERROR_SHARE = 0.001
MEAN = "mean"


@dataclass(frozen=True, slots=True)
class LoadThresholds:
    max_error_share: float = MAX_ERROR_SHARE  # of all that come: may fail, expire, be turned away, or not be served
    bound_us: float | None = None  # latency within which an answer counts as goodput; None: any answer does
    min_goodput_hz: float | None = None  # least requests per second that are to be answered so; None: any number

    def is_good(self, record: LoadRecord) -> npt.NDArray[np.bool_]:
        bound_us = np.inf if self.bound_us is None else self.bound_us
        return np.asarray(record.is_completed & (record.settled_ns - record.intended_ns <= 1e3 * bound_us))

    def good_share(self, record: LoadRecord, first: int = 0) -> float:
        """Return the share of the requests that were answered within the bound; 0 where none came."""
        is_good, is_known = self.is_good(record)[first:], ~record.is_cut[first:]
        return float(is_good.sum()) / max(1, int(is_known.sum()))

    def broken(self, figures: Mapping[str, Any]) -> list[str]:
        """Return which of them a load breaks whose figures are given by field of load_summary."""
        problems = []
        if (share := figures["error_share"]) > self.max_error_share:
            problem = f"{percent(share)} of the requests got no answer; <max_error_share> is"
            problems.append(f"{problem} {percent(self.max_error_share)}")
        least_hz = self.min_goodput_hz
        if least_hz is not None and (goodput_hz := figures["goodput_requests_per_s"]) < least_hz:
            within = "" if self.bound_us is None else f" within {self.bound_us / 1e3:.4g} ms"
            problem = f"{goodput_hz:.4g} requests/s were answered{within}; <min_goodput> is"
            problems.append(f"{problem} {least_hz:.4g}")
        return problems


USUAL_THRESHOLDS = LoadThresholds()


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


@dataclass(frozen=True, slots=True)
class Precision:
    """A precision that ends a load before its time."""

    figure: str  # one of ``QUANTILES``, or the mean
    most_share: float  # largest distance of a limit from the figure, as a share of the figure

    @classmethod
    def parse(cls, text: str) -> Precision:
        """Return the precision of ``FIGURE PERCENT%``; refuse unknown figures, and more or less than 0 to 100 %."""
        name, _, percent = text.strip().partition(" ")
        figure = name.replace(".", "_")
        if figure not in (*QUANTILES, MEAN) or not percent.endswith("%"):
            figures = ", ".join(each.replace("_", ".") for each in (*QUANTILES, MEAN))
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

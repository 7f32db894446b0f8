"""What is asked of a load: how many requests may fail, within which time an answer counts, how many have to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from common.load.requests.load_record import LoadRecord

MAX_ERROR_SHARE = 0.001


@dataclass(frozen=True, slots=True)
class LoadThresholds:
    """What is asked of a load.

    Attributes:
        max_error_share: most requests that may fail, expire, be turned away or not be served, of all that come.
        bound_us: latency within which an answer counts as goodput; None: any answer does.
        min_goodput_hz: least requests per second that are to be answered so; None: any number.
    """

    max_error_share: float = MAX_ERROR_SHARE
    bound_us: float | None = None
    min_goodput_hz: float | None = None

    def is_good(self, record: LoadRecord) -> npt.NDArray[np.bool_]:
        """Return whether each request was answered within the bound."""
        bound_us = np.inf if self.bound_us is None else self.bound_us
        return np.asarray(record.is_completed & (record.settled_ns - record.intended_ns <= 1e3 * bound_us))

    def good_share(self, record: LoadRecord, first: int = 0) -> float:
        """Return the share of the requests that were answered within the bound; 0 where none came."""
        is_good, is_known = self.is_good(record)[first:], ~record.is_cut[first:]
        return float(is_good.sum()) / max(1, int(is_known.sum()))

    def broken(self, figures: Mapping[str, Any]) -> list[str]:
        """Return which of them a load breaks.

        Args:
            figures: by field of load_summary.
        """
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

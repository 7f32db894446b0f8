"""Figures of several sessions of one measurement: how far one session is from the next.

What shifts all runs of a session alike cannot be seen within it. Sessions in processes of their own are independent. So
the figure of a session is one value, and Student's law gives the limits of their mean, whatever happened within a
session (sectioning: Asmussen and Glynn, Stochastic Simulation, 2007, section III.5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from common.latency.dependence import Samples
from common.latency.statistics import CONFIDENCE, FIGURES, QUANTILES


def point_figures(samples: Samples) -> Samples:
    """Return the figures of a series of two samples or more without limits, in the order of ``FIGURES``."""
    return np.array([*np.quantile(samples, [*QUANTILES.values()]), np.mean(samples), np.std(samples, ddof=1)])


def student_quantile(degrees: int, probability: float) -> float:
    from scipy.special import stdtrit  # a tenth of a second

    return float(stdtrit(degrees, probability))


def with_sessions(columns: Mapping[str, float | None], sessions: Sequence[Samples]) -> dict[str, float | None]:
    """Return figures whose limits also cover the difference between sessions; a single session changes nothing.

    ``columns`` are what :func:`common.latency.statistics.figures` gives for the runs of all sessions.
    """
    result = dict(columns)
    if len(sessions) == 1:
        return result
    each = np.array([point_figures(session) for session in sessions])
    half_widths = student_quantile(len(each) - 1, CONFIDENCE) * each.std(axis=0, ddof=1) / math.sqrt(len(each))
    for name, half_width in zip(FIGURES, half_widths.tolist(), strict=True):
        value, low, high = (columns[f"{name}{end}_us"] for end in ("", "_low", "_high"))
        if value is not None and low is not None:
            result[f"{name}_low_us"] = max(0.0, min(low, value - half_width))
        if value is not None and high is not None:
            result[f"{name}_high_us"] = max(high, value + half_width)
    return result

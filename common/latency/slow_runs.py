"""The limit above which a run of a series is slow.

A run is slow beyond ``median + max(10 µs, 5 % of the median, 3 · 1.4826 · MAD)`` of its series. The median absolute
deviation times 1.4826 estimates the standard deviation of normally distributed values (Rousseeuw and Croux, J. Am.
Stat. Assoc. 88, 1993). Unlike the standard deviation itself, it does not grow with the slow runs that are sought.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from common.latency.dependence import Samples

LEAST_RUNS = 5
LEAST_EXCESS_SHARE = 0.05
LEAST_EXCESS_US = 10.0  # no event of the scheduler delays a run by less
DEVIATIONS = 3.0
NORMAL_DEVIATION_PER_MAD = 1.4826


def slow_limit_us(latencies_us: Sequence[float] | Samples) -> float:
    """Return the latency above which a run of a series is slow; infinite for a series that is too short."""
    if len(latencies_us) < LEAST_RUNS:
        return float("inf")
    median = float(np.median(latencies_us))
    deviation = float(np.median(np.abs(np.asarray(latencies_us) - median)))
    return median + max(LEAST_EXCESS_US, LEAST_EXCESS_SHARE * median, DEVIATIONS * NORMAL_DEVIATION_PER_MAD * deviation)


def leading_slow_runs(durations_us: Sequence[float]) -> int:
    """Count the first run and the slow runs right after it; the only run of a series is no warm-up."""
    limit_us = slow_limit_us(durations_us)
    slow = sum(1 for _ in takewhile(lambda duration_us: duration_us > limit_us, durations_us[1:]))
    return min(1 + slow, len(durations_us) - 1)

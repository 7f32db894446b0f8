"""Whether memory grows with the number of inferences: the slope with its 95 % interval.

Resident memory is no line with noise around it. It stays constant until an allocator takes more, then jumps, and the
allocator seldom gives memory back. The residuals of a fitted line are therefore correlated, and its usual interval is
far too narrow. So the series is cut into blocks of equally many inferences, and the increments from block to block are
the sample: their mean has a Student interval. A single jump, however high, is then one outlier that widens the
interval, and a leak is an increment in every block. For memory that only fluctuates around a level, the interval is
wider than it has to be.

The limits are wider by what readings cannot show: malloc takes memory from the system in steps of 128 KiB (mallopt(3),
M_TOP_PAD), so less growth than that over the whole series is no growth of what is in use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.latency.dependence import Samples

BLOCKS = 20
LEAST_BLOCKS = 8
STEP_BYTES = 128 * 1024
SETTLING_SHARE = 0.2  # of the inferences: arenas and caches fill
LATER_SHARE = 0.5  # a leak goes on; what no longer grows after half of the inferences has settled
CONFIDENCE = 0.95  # two-sided
# Student's quantile at 0.975 for 6 to 19 degrees of freedom (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7).
STUDENT = (2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093)
LEAST_DEGREES = 6


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth of memory in bytes per inference, with the limits of its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_leak(self) -> bool:
        return self.low > 0


def memory_slope(inferences: npt.NDArray[np.int64], resident_bytes: npt.NDArray[np.int64]) -> Slope | None:
    """Return the slope of samples after the settling over the inferences that had run by then; None for too few.

    Memory that grows at first and not in the second half has only settled late: its slope is that of the second half.
    """
    whole, later = (_slope(inferences, resident_bytes, share) for share in (SETTLING_SHARE, LATER_SHARE))
    return later if whole and later and whole.is_leak and not later.is_leak else whole


def _slope(inferences: npt.NDArray[np.int64], resident_bytes: npt.NDArray[np.int64], left_out: float) -> Slope | None:
    first, last = (int(inferences[0]), int(inferences[-1])) if len(inferences) else (0, 0)
    edges = np.linspace(first + left_out * (last - first), last, BLOCKS + 1)
    places = np.searchsorted(edges, inferences, side="right") - 1
    blocks = [(inferences[places == block], resident_bytes[places == block]) for block in range(BLOCKS)]
    means = np.array([(own.mean(), held.mean()) for own, held in blocks if len(own)])
    if len(means) < LEAST_BLOCKS:
        return None
    steps = np.diff(means, axis=0)
    return _student(steps[:, 1] / steps[:, 0], STEP_BYTES / float(steps[:, 0].sum()))


def _student(increments: Samples, resolution: float) -> Slope:
    """Return the mean with Student's interval, which the resolution widens."""
    degrees = len(increments) - 1
    error = float(np.std(increments, ddof=1)) / math.sqrt(len(increments))
    reach = STUDENT[degrees - LEAST_DEGREES] * error + resolution
    mean = float(np.mean(increments))
    return Slope(mean, mean - reach, mean + reach)

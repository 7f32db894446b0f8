"""From the record of a load run to a trial of the search."""

from __future__ import annotations

import numpy as np

from common.latency.statistics import Estimate, Samples, dependent_percentile
from common.load.requests.load_record import LoadRecord
from common.load.results.validity import LoadValidity
from common.load.search.halving import Configuration, Trial

FILLING_SHARE = 0.25  # of a run: the queue starts empty, and its first requests wait less than later ones
UNKNOWN = Estimate(None, None, None)


def trial(
    record: LoadRecord,
    validity: LoadValidity,
    setup: Configuration,
    rate_hz: float,
    rung: int | None = None,
    power_w: float | None = None,
) -> Trial:
    """Return what a run at a mean rate tells; without percentiles where the queue grew or the run is invalid."""
    answered_us = record.latencies_us
    latencies_us = answered_us[int(FILLING_SHARE * len(answered_us)) :]
    answered = record.counts["completed"]
    is_judged = validity.status == "valid"
    p50, p99 = (_estimate(latencies_us, quantile) if is_judged else UNKNOWN for quantile in (0.5, 0.99))
    problem = validity.reason if validity.status == "invalid" else ""
    completed_hz = answered / (record.ended_ns / 1e9) if record.ended_ns else 0.0
    return Trial(setup, rung, rate_hz, completed_hz, p50, p99, problem, validity.status == "overload", power_w)


def _estimate(latencies_us: Samples, quantile: float) -> Estimate:
    """Return a quantile; for too few requests without limits."""
    found = dependent_percentile(latencies_us, quantile)
    return found if found.value is not None else Estimate(float(np.quantile(latencies_us, quantile)), None, None)

"""What the generator's own delays do to the latencies, which count from the intended start and so hold these delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from common.latency.statistics import Estimate
from common.load.requests.load_record import LATE_NS, NO_BATCH, LoadRecord


def undelayed_us(record: LoadRecord) -> npt.NDArray[np.float64]:
    """Return ``record.waited_us`` as it would be if the generator had held up no batch for more than ``LATE_NS``.

    Each worker makes the same calls one after the other (Lindley 1952): a call that is ready at r and takes s ends at
    max(r, end of the call before) + s. So a delay also counts for the requests that queue behind it. A call is ready
    when the policy allows it, and not before its newest request has come: a late generator also takes requests that
    came during its delay.
    """
    batches, ends_ns = record.batches, record.batches.ended_ns.copy()
    late_ns = batches.batched_ns - batches.ready_ns
    if not (late_ns > LATE_NS).any():
        return record.waited_us
    service_ns = batches.ended_ns - batches.batched_ns + np.where(late_ns > LATE_NS, 0, late_ns)
    is_served = record.batch_indices != NO_BATCH
    newest_ns = np.zeros_like(ends_ns)
    np.maximum.at(newest_ns, record.batch_indices[is_served], record.intended_ns[is_served])
    for worker in np.unique(batches.workers):
        own = np.flatnonzero(batches.workers == worker)
        free_ns = np.concatenate([[0], batches.ended_ns[own][:-1]])
        allowed_ns = np.where(batches.ready_ns[own] > free_ns, batches.ready_ns[own], 0)
        ready_ns = np.maximum(allowed_ns, newest_ns[own])
        total_ns = np.cumsum(service_ns[own])
        ends_ns[own] = total_ns + np.maximum.accumulate(ready_ns - (total_ns - service_ns[own]))
    return np.asarray((record.settled_with(ends_ns) - record.intended_ns)[record.is_waited] / 1e3)


def delay_share(records: Sequence[LoadRecord]) -> float:
    """Return the share of all latency that the generator's delays of more than ``LATE_NS`` make."""
    waited_us = sum(float(record.waited_us.sum()) for record in records)
    undelayed = sum(float(undelayed_us(record).sum()) for record in records)
    return max(0.0, 1 - undelayed / waited_us) if waited_us else 0.0


def widened(measured: Estimate, undelayed: Estimate) -> Estimate:
    """Return a figure with the lower one of two lower limits: its own, and that without the generator's delays."""
    return Estimate(measured.value, _lower(measured.low, undelayed.low), measured.high)


def widened_columns(
    measured: Mapping[str, float | None], undelayed: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Return figures by their column names, with lower limits as by :func:`widened`."""
    limits = {name: _lower(low, undelayed[name]) for name, low in measured.items() if name.endswith("_low_us")}
    return {**measured, **limits}


def _lower(one: float | None, other: float | None) -> float | None:
    return None if one is None else one if other is None else min(one, other)

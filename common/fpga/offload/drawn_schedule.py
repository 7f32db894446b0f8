"""The finish of one assignment for many draws of its times at once.

The calls, and the order of the jobs on each resource, are those of the likely case: a plan is a program, which starts
its calls in the order in which it was written. From draw to draw, each job starts after everything that it waits for
and after the job before it on its resource. So the finish is a longest path, here over arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.fpga.offload.jobs import Job, links, released
from common.intervals import ThreePoint

Values = npt.NDArray[np.float64]
DrawnTimes = Callable[[ThreePoint], Values]  # from a time in three cases to its draws


@dataclass(frozen=True, slots=True)
class JobTimes:
    """How the times of a plan are drawn, by their cause; a kernel is drawn by the option that it computes."""

    host: DrawnTimes
    launch: DrawnTimes
    transfer: DrawnTimes
    conversion: DrawnTimes
    kernel: Callable[[int, ThreePoint], Values]


@dataclass(frozen=True, slots=True)
class DrawnSchedule:
    """The finish of each draw, and the busy time of each resource."""

    finish_us: Values
    busy_us: Mapping[str, Values]


def drawn_schedule(cases: Sequence[Sequence[Job]], starts: Sequence[float], times: JobTimes) -> DrawnSchedule:
    """Return the schedules of all draws.

    Args:
        cases: the same jobs with the times of the pessimistic, the likely and the optimistic case.
        starts: start of each job in the likely case.
    """
    jobs = cases[1]
    ends: dict[int, Values] = {}
    free_us: dict[str, Values] = {}
    busy_us: dict[str, Values] = {}
    finish_us: Values = np.zeros(1)
    for index in released(*links(jobs, []), starts):  # by start in the likely case
        job, (pessimistic, likely, optimistic) = jobs[index], (case[index] for case in cases)
        start = free_us.get(job.resource, np.zeros(1))
        lags = zip(pessimistic.after, likely.after, optimistic.after, strict=True)
        for (before, _), lag_us in zip(likely.after, ([lag for _, lag in three] for three in lags), strict=True):
            lag_of = times.host if jobs[before].key[0] == "host" else times.conversion
            start = np.maximum(start, ends[before] + _drawn(lag_of, lag_us))
        length = _length(job, (pessimistic, likely, optimistic), times)
        ends[index] = free_us[job.resource] = start + length
        busy_us[job.resource] = busy_us.get(job.resource, 0.0) + length
        tail_us = _drawn(times.conversion, [each.tail_us for each in (pessimistic, likely, optimistic)])
        finish_us = np.maximum(finish_us, ends[index] + tail_us)
    return DrawnSchedule(finish_us, busy_us)


def _length(job: Job, cases: Sequence[Job], times: JobTimes) -> Values:
    kind, index = job.key
    if kind != "call":
        return _drawn(times.host if kind == "host" else times.transfer, [each.duration_us for each in cases])
    kernel = ThreePoint(*(each.duration_us - each.launch_us for each in cases))
    return times.kernel(index, kernel) + _drawn(times.launch, [each.launch_us for each in cases])


def _drawn(times: DrawnTimes, cases_us: Sequence[float]) -> Values:
    return times(ThreePoint(*cases_us)) if any(cases_us) else np.zeros(1)

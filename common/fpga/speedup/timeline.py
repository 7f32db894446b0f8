"""A schedule as what the gains need of it, and as intervals for the picture of before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from common.fpga.offload.problem import Item
from common.fpga.offload.schedule import Placed, Schedule
from common.fpga.speedup.totals import HOST, TO_CARD, TO_HOST, CaseTotals

Scenario = Literal["before", "after"]
Activity = Literal["host", "launch", "kernel", "transfer", "conversion"]
ACTIVITY: Mapping[str, Activity] = {
    "host": "host",
    "call": "kernel",
    "h2d": "transfer",
    "d2h": "transfer",
    "convert": "conversion",
}


@dataclass(frozen=True, slots=True)
class Interval:
    """One lane does one thing for some time."""

    interval_index: int
    scenario: Scenario
    lane: str
    activity: Activity
    item: str
    interval_start_us: float
    interval_finish_us: float


def case_totals(schedule: Schedule, finish_without_launch_us: float | None = None) -> CaseTotals:
    """The sums of one schedule.

    Args:
        schedule: of one case.
        finish_without_launch_us: end of the same assignment's schedule with free launches, if it was computed.
    """
    sums = schedule.totals
    busy_us = {HOST: sums.host_us, TO_CARD: sums.h2d_us, TO_HOST: sums.d2h_us, **sums.engine_us}
    return CaseTotals(
        kernel_us=sums.kernel_us,
        transfer_us=sums.h2d_us + sums.d2h_us,
        conversion_us=sums.convert_us,
        launch_us=sums.launch_us,
        finish_us=schedule.finish_us,
        busy_us=busy_us,
        launch_count=sums.launch_count,
        finish_without_launch_us=finish_without_launch_us,
    )


def timeline(items: Sequence[Item], schedule: Schedule) -> list[Interval]:
    """Before: the host's items one after the other. After: the schedule, with launches apart from their kernels.

    What takes no time has no interval.
    """
    spans = [*_before(items), *(part for placed in schedule.placed for part in _parts(placed))]
    shown = (span for span in spans if span[-1] > span[-2])
    return [Interval(index, *span) for index, span in enumerate(shown)]


Span = tuple[Scenario, str, Activity, str, float, float]


def _before(items: Sequence[Item]) -> Iterator[Span]:
    clock_us = 0.0
    for item in items:
        yield "before", HOST, "host", item.name, clock_us, clock_us + item.host_us
        clock_us += item.host_us


def _parts(placed: Placed) -> Iterator[Span]:
    begin_us = placed.start_us + placed.launch_us
    if placed.launch_us:
        yield "after", placed.resource, "launch", placed.what, placed.start_us, begin_us
    yield "after", placed.resource, ACTIVITY[placed.kind], placed.what, begin_us, placed.finish_us

"""Sums of a schedule for the speedup, and its intervals for the timeline before and after offloading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from common.fpga.offload.problem import Item
from common.fpga.offload.schedule import Schedule, TimelineBar
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
class LaneInterval:
    interval_index: int
    scenario: Scenario
    lane: str
    activity: Activity
    item: str
    interval_start_us: float
    interval_finish_us: float


def case_totals(schedule: Schedule, finish_without_launch_us: float | None = None) -> CaseTotals:
    """Return the sums of one schedule.

    Args:
        schedule: in one case.
        finish_without_launch_us: finish of the same assignment with free launches, if it was computed.
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


def timeline(items: Sequence[Item], schedule: Schedule) -> list[LaneInterval]:
    """Return the host's items one after the other (before) and the schedule (after), launches apart from kernels.

    Anything that takes no time has no interval.
    """
    spans = [*_before(items), *(part for bar in schedule.bars for part in _parts(bar))]
    shown = (span for span in spans if span[-1] > span[-2])
    return [LaneInterval(index, *span) for index, span in enumerate(shown)]


Span = tuple[Scenario, str, Activity, str, float, float]


def _before(items: Sequence[Item]) -> Iterator[Span]:
    clock_us = 0.0
    for item in items:
        yield "before", HOST, "host", item.name, clock_us, clock_us + item.host_us
        clock_us += item.host_us


def _parts(bar: TimelineBar) -> Iterator[Span]:
    begin_us = bar.start_us + bar.launch_us
    if bar.launch_us:
        yield "after", bar.resource, "launch", bar.label, bar.start_us, begin_us
    yield "after", bar.resource, ACTIVITY[bar.kind], bar.label, begin_us, bar.finish_us

"""Rows of a plan's schedule before and after offloading, and of the resources that it uses in each region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from common.fpga.device.board import Board
from common.fpga.device.resources import RESOURCE_NAMES, Resources, total
from common.fpga.offload.problem import Item
from common.fpga.offload.schedule import Schedule, TimelineBar
from common.fpga.speedup.totals import HOST
from common.table_rows import BoardResourcesRow, OffloadScheduleRow

WHOLE_BOARD = "board"
ACTIVITY = {"host": "host", "call": "kernel", "h2d": "transfer", "d2h": "transfer", "convert": "conversion"}
Span = tuple[str, str, str, str, float, float]


def timeline(items: Sequence[Item], schedule: Schedule) -> list[OffloadScheduleRow]:
    """Return the host's items one after the other (before) and the schedule (after), launches apart from kernels.

    Anything that takes no time has no interval.
    """
    spans = [*_before(items), *(part for bar in schedule.bars for part in _parts(bar))]
    shown = (span for span in spans if span[-1] > span[-2])
    return [
        {
            "interval_index": index,
            "scenario": scenario,
            "lane": lane,
            "activity": activity,
            "item": item,
            "interval_start_us": start_us,
            "interval_finish_us": finish_us,
        }
        for index, (scenario, lane, activity, item, start_us, finish_us) in enumerate(shown)
    ]


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


def resource_use(board: Board, used: Mapping[str, Resources], spanning: Resources) -> list[BoardResourcesRow]:
    """Return the use of each resource in each region and on the whole board.

    Engines that span regions count for the whole board only. Memory channels have a row for the whole board only, since
    every region reaches each of them.
    """
    rows: list[BoardResourcesRow] = []
    for region in board.regions:
        amounts = used.get(region.name, Resources()), board.budget(region), region.usable, region.total
        rows += [row for row in _rows(board, region.name, *amounts) if row["resource"] != "memory_channels"]
    all_used = total([spanning, *used.values()])
    return [*rows, *_rows(board, WHOLE_BOARD, all_used, board.total_budget, board.usable, board.total)]


def _rows(
    board: Board, region: str, used: Resources, budget: Resources, usable: Resources, there: Resources
) -> Iterator[BoardResourcesRow]:
    for name in RESOURCE_NAMES:
        yield {
            "board": board.name,
            "region": region,
            "resource": name,
            "used_count": float(getattr(used, name)),
            "budget_count": float(getattr(budget, name)),
            "usable_count": float(getattr(usable, name)),
            "total_count": float(getattr(there, name)),
        }

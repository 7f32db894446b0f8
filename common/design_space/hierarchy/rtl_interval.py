"""Cycles of a schedule by the costs of the RTL, with the interval of their error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.hierarchy.schedule import LayerStep, MappedSchedule
from common.design_space.mapping.tiled_rtl import is_product


class RtlInterval(NamedTuple):
    """Cycles by the costs of the RTL, and the ends between which nine in ten layers that were not fitted are."""

    low: float
    likely: float
    high: float

    @classmethod
    def sum_of(cls, parts: Iterable[tuple[int, RtlInterval]]) -> RtlInterval:
        """Return the sum of intervals, each of so many runs: all errors are taken to be in one direction."""
        table = [[runs * end for end in part] for runs, part in parts]
        return cls(*map(float, np.sum(table, axis=0)))


def step_intervals(step: LayerStep, hardware: Hardware) -> Mapping[str, RtlInterval]:
    """Return the cycles of one run of each nest of a layer; nothing where the file has no costs of the RTL."""
    if hardware.rtl is None or hardware.rtl_errors is None:
        return {}
    costs, found = step.costs(hardware.with_rtl()), dict[str, RtlInterval]()
    for name, mapped in step.mapped.items():
        low, high = hardware.rtl_errors.product if is_product(mapped.nest) else hardware.rtl_errors.window
        cycles = float(np.asarray(costs[name].rtl_cycles)[0])
        found[name] = RtlInterval(cycles * low, cycles, cycles * high)
    return found


def schedule_interval(schedule: MappedSchedule, hardware: Hardware) -> RtlInterval | None:
    """Return the cycles of a schedule; layers without a nest count as they do without the RTL."""
    if hardware.rtl is None:
        return None
    parts = [(1, RtlInterval(*[step.option.stream_cycles] * 3)) for step in schedule.steps]
    for step in schedule.steps:
        parts += [(step.mapped[name].runs, part) for name, part in step_intervals(step, hardware).items()]
    return RtlInterval.sum_of(parts)

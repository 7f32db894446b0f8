"""Throughput of successive inferences in a pipeline: while the card works on one, the host starts the next."""

from __future__ import annotations

from collections.abc import Iterable

from common.fpga.speedup.terms import SpeedupRow, row
from common.fpga.speedup.totals import HOST, NOT_ENGINES, TO_CARD, TO_HOST, CaseTotals, HostRun, PlanTotals

MICROSECONDS = 1e6


def initiation_interval_us(busy_us: Iterable[float]) -> float:
    """Return the least time between two inferences: the busy time of the busiest resource.

    A full pipeline reaches it if buffers let every resource run ahead. A single inference gets no faster.
    """
    return max(busy_us, default=0.0)


def throughput_rows(host: HostRun, totals: PlanTotals) -> list[SpeedupRow]:
    """Return the rows of the throughput: busy time by kind of resource, interval, and rate before and after.

    Before offloading, one inference follows the other, because the host is the only resource.
    """
    busy = {
        "busy_host": [case.busy_us.get(HOST, 0.0) for case in totals.cases],
        "busy_engine": [_busiest_engine_us(case) for case in totals.cases],
        "busy_h2d": [case.busy_us.get(TO_CARD, 0.0) for case in totals.cases],
        "busy_d2h": [case.busy_us.get(TO_HOST, 0.0) for case in totals.cases],
    }
    intervals = [initiation_interval_us(case.busy_us.values()) for case in totals.cases]
    alone = host.latency_us.cases
    speedups = [us / interval for us, interval in zip(alone, intervals, strict=True)]
    return [
        row("throughput", "host_total", alone, "us"),
        *(row("throughput", name, values, "us") for name, values in busy.items()),
        row("throughput", "new_total", intervals, "us"),
        row("throughput", "host_rate", [MICROSECONDS / us for us in alone], "per_s"),
        row("throughput", "new_rate", [MICROSECONDS / interval for interval in intervals], "per_s"),
        row("throughput", "total_speedup", speedups, "ratio"),
    ]


def _busiest_engine_us(case: CaseTotals) -> float:
    return max((busy for name, busy in case.busy_us.items() if name not in NOT_ENGINES), default=0.0)

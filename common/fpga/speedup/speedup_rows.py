"""Rows of the speedup table by objective: latency, energy and throughput, one term per row."""

from __future__ import annotations

from collections.abc import Sequence

from common.fpga.speedup.amdahl import (
    AmdahlTerms,
    amdahl_rows,
    break_even_batch,
    break_even_launch_us,
    payback_count,
    row,
)
from common.fpga.speedup.energy import CardEnergy, energy_rows
from common.fpga.speedup.totals import HOST, NOT_ENGINES, TO_CARD, TO_HOST, Card, CardWork, CaseTotals, HostRun
from common.table_rows import SpeedupRow


def speedup_rows(
    host: HostRun, totals: Sequence[CaseTotals], work: CardWork, card: Card, coefficients: CardEnergy
) -> list[SpeedupRow]:
    """Return all terms of all objectives, for the work of one inference on the card.

    Raises:
        PipelineError: the energy per byte of the card's memory or link is unknown.
    """
    return [
        *latency_rows(host, totals, work, card),
        *energy_rows(host, totals, work, card, coefficients),
        *throughput_rows(host, totals),
    ]


def latency_rows(host: HostRun, totals: Sequence[CaseTotals], work: CardWork, card: Card) -> list[SpeedupRow]:
    """Return the rows of the latency: rest + kernels + transfer + conversion + launch - overlap = finish."""
    terms = AmdahlTerms(
        total=host.latency_us.cases,
        moved=host.offloaded_us.cases,
        kernels={"kernel": [case.kernel_us for case in totals]},
        added={
            "transfer": [case.transfer_us for case in totals],
            "conversion": [case.conversion_us for case in totals],
            "launch": [case.launch_us for case in totals],
        },
        hidden={"overlap": [case.overlap_us(us) for case, us in zip(totals, host.rest_us.cases, strict=True)]},
    )
    load_us = [1e6 * work.weight_bytes / rate for rate in card.link_bytes_per_s.cases]
    return [*amdahl_rows("latency", "us", terms), *_break_even_rows(host, totals, load_us)]


def _break_even_rows(host: HostRun, totals: Sequence[CaseTotals], load_us: Sequence[float]) -> list[SpeedupRow]:
    launches: list[float | None] = []
    batches: list[float | None] = []
    paybacks: list[float | None] = []
    of_host = zip(host.latency_us.cases, host.rest_us.cases, strict=True)
    for case, load, (alone_us, rest_us) in zip(totals, load_us, of_host, strict=True):
        times_us = alone_us, case.finish_us, case.without_launch_us(rest_us)
        launches.append(break_even_launch_us(*times_us, case.launch_us, case.launch_count))
        batches.append(break_even_batch(*times_us) if case.launch_count else None)
        paybacks.append(payback_count(load, alone_us, case.finish_us))
    return [
        row("latency", "break_even_launch", launches, "us"),
        row("latency", "break_even_batch", batches, "count"),
        row("latency", "weight_load", load_us, "us"),
        row("latency", "payback_runs", paybacks, "count"),
    ]


def throughput_rows(host: HostRun, totals: Sequence[CaseTotals]) -> list[SpeedupRow]:
    """Return the rows of the throughput: busy time by kind of resource, interval, and rate before and after.

    The interval is the busy time of the busiest resource, which a pipeline with enough buffers reaches.
    Before offloading, one inference follows the other, because the host is the only resource.
    """
    busy = {
        "busy_host": [case.busy_us.get(HOST, 0.0) for case in totals],
        "busy_engine": [
            max((us for name, us in case.busy_us.items() if name not in NOT_ENGINES), default=0.0) for case in totals
        ],
        "busy_h2d": [case.busy_us.get(TO_CARD, 0.0) for case in totals],
        "busy_d2h": [case.busy_us.get(TO_HOST, 0.0) for case in totals],
    }
    intervals = [max(case.busy_us.values()) for case in totals]
    alone = host.latency_us.cases
    speedups = [us / interval for us, interval in zip(alone, intervals, strict=True)]
    return [
        row("throughput", "host_total", alone, "us"),
        *(row("throughput", name, values, "us") for name, values in busy.items()),
        row("throughput", "new_total", intervals, "us"),
        row("throughput", "host_rate", [1e6 / us for us in alone], "per_s"),
        row("throughput", "new_rate", [1e6 / interval for interval in intervals], "per_s"),
        row("throughput", "total_speedup", speedups, "ratio"),
    ]

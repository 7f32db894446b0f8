"""Latency of one inference with the card, term by term, and its break-even points."""

from __future__ import annotations

from collections.abc import Sequence

from common.fpga.speedup.amdahl import break_even_batch, break_even_launch_us, payback_count
from common.fpga.speedup.terms import AmdahlTerms, SpeedupRow, amdahl_rows, row
from common.fpga.speedup.totals import Card, CardWork, HostRun, PlanTotals


def latency_rows(host: HostRun, totals: PlanTotals, work: CardWork, card: Card) -> list[SpeedupRow]:
    """Return the rows of the latency: rest + kernels + transfer + conversion + launch - overlap = finish."""
    cases = totals.cases
    terms = AmdahlTerms(
        total=host.latency_us.cases,
        moved=host.offloaded_us.cases,
        kernels={"kernel": [case.kernel_us for case in cases]},
        added={
            "transfer": [case.transfer_us for case in cases],
            "conversion": [case.conversion_us for case in cases],
            "launch": [case.launch_us for case in cases],
        },
        hidden={"overlap": [case.overlap_us(rest_us) for case, rest_us in zip(cases, host.rest_us.cases, strict=True)]},
    )
    load_us = [1e6 * work.weight_bytes / rate for rate in card.link_bytes_per_s.cases]
    return [*amdahl_rows("latency", "us", terms), *_break_even_rows(host, totals, load_us)]


def _break_even_rows(host: HostRun, totals: PlanTotals, load_us: Sequence[float]) -> list[SpeedupRow]:
    launches: list[float | None] = []
    batches: list[float | None] = []
    paybacks: list[float | None] = []
    of_host = zip(host.latency_us.cases, host.rest_us.cases, strict=True)
    for case, load, (alone_us, rest_us) in zip(totals.cases, load_us, of_host, strict=True):
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

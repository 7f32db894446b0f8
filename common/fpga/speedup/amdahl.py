"""Rows of the speedup table, one term per row: Amdahl's law with overheads, its break-even points, and throughput.

Amdahl, AFIPS 1967: if a fraction f of the total becomes S_k times faster, S = 1 / ((1 - f) + f / S_k). Overheads are
added to the denominator as fractions of the former total. Time that host and card overlap is a negative overhead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from common.fpga.device.board import Board
from common.fpga.speedup.totals import HOST, NOT_ENGINES, TO_CARD, TO_HOST, CardWork, CaseTotals, HostRun
from common.table_rows import SpeedupRow


def total_speedup(accelerated_fraction: float, kernel_speedup: float, overhead_fraction: float = 0.0) -> float:
    """Return 1 / ((1 - f) + f / S_k + o), with overlapped time as a negative o: below 1, the whole gets slower."""
    return 1.0 / ((1.0 - accelerated_fraction) + accelerated_fraction / kernel_speedup + overhead_fraction)


def break_even_kernel_speedup(accelerated_fraction: float, overhead_fraction: float) -> float | None:
    """Return the S_k at which the total speedup is 1, f / (f - o); None if no kernel is fast enough."""
    if overhead_fraction >= accelerated_fraction:
        return None
    return accelerated_fraction / (accelerated_fraction - overhead_fraction)


def break_even_batch(host_us: float, finish_us: float, without_launch_us: float) -> int | None:
    """Return the smallest batch with a total speedup of at least 1 if each call is launched once per batch.

    B inferences take B·H on the host and B·F₀ + L with the card, where L = F - F₀ is the part of the finish due to
    launches: B >= L / (H - F₀). The batch is None if even free launches do not pay.
    """
    if finish_us <= host_us:
        return 1
    saved_us = host_us - without_launch_us
    return max(1, math.ceil((finish_us - without_launch_us) / saved_us - 1e-9)) if saved_us > 0 else None


def break_even_launch_us(
    host_us: float, finish_us: float, without_launch_us: float, launch_us: float, launch_count: int
) -> float | None:
    """Return the time of one launch at which the total speedup is 1.

    The finish is a convex function of that time, and its slope is at most the number of launches. The estimate follows
    the chord below the present time and the steepest slope above it. It is exact if nothing overlaps with a launch;
    otherwise it is too small, never too large. It is None if there is no launch, or if even free launches do not pay.
    ``launch_us`` is the time of all launches of one inference.
    """
    if not launch_count or without_launch_us > host_us:
        return None
    present_us = launch_us / launch_count
    if finish_us <= host_us:
        return present_us + (host_us - finish_us) / launch_count
    return present_us * (host_us - without_launch_us) / (finish_us - without_launch_us)


def payback_count(one_off_us: float, host_us: float, finish_us: float) -> int | None:
    """Return after how many inferences a one-off cost is repaid; None if an inference saves nothing."""
    if finish_us >= host_us:
        return None
    return math.ceil(one_off_us / (host_us - finish_us) - 1e-9)


Objective = Literal["latency", "energy", "throughput"]
Cases = Sequence[float | None]
UNKNOWN: Cases = (None, None, None)


@dataclass(frozen=True, slots=True)
class AmdahlTerms:
    """Terms of Amdahl's law for one objective, each in three cases."""

    total: Sequence[float] | None  # on the host alone; None makes every term unknown
    moved: Sequence[float]  # the part of it that moves to the card
    # Cost of the moved part on the card, by name; each name has a row if there are several
    kernels: Mapping[str, Sequence[float]]
    added: Mapping[str, Sequence[float]]  # overheads, by name
    hidden: Mapping[str, Sequence[float]]  # overlapped amounts, which are subtracted, by name

    @property
    def amounts(self) -> dict[str, Sequence[float]]:
        split = self.kernels if len(self.kernels) > 1 else {}
        return {**split, **self.added, **self.hidden}


def row(objective: Objective, term: str, values: Cases, unit: str) -> SpeedupRow:
    pessimistic, likely, optimistic = values
    return {
        "objective": objective,
        "term": term,
        "pessimistic": pessimistic,
        "likely": likely,
        "optimistic": optimistic,
        "term_unit": unit,
        "is_judged": True,  # unless the plan has a reason why not
    }


def amdahl_rows(objective: Objective, unit: str, terms: AmdahlTerms) -> list[SpeedupRow]:
    """Return the terms of one objective, one per row. ``new_total`` = total - moved + kernels + added - hidden.

    ``total_speedup`` is the former total over the new one: :func:`common.fpga.speedup.amdahl.total_speedup` of f, S_k
    and the overheads as fractions of the former total.
    """
    cases = [_derived(terms, total, case) for case, total in enumerate(terms.total or ())]
    host, fraction, kernel, new, speedup, break_even = zip(*cases, strict=True) if cases else [UNKNOWN] * 6
    amounts: Mapping[str, Cases] = terms.amounts if cases else dict.fromkeys(terms.amounts, UNKNOWN)
    return [
        row(objective, "host_total", host, unit),
        row(objective, "accelerated_fraction", fraction, "share"),
        row(objective, "kernel_speedup", kernel, "ratio"),
        *(row(objective, name, values, unit) for name, values in amounts.items()),
        row(objective, "new_total", new, unit),
        row(objective, "total_speedup", speedup, "ratio"),
        row(objective, "break_even_kernel_speedup", break_even, "ratio"),
    ]


def _derived(terms: AmdahlTerms, total: float, case: int) -> tuple[float | None, ...]:
    parts = terms.kernels, terms.added, terms.hidden
    kernel, added, hidden = (sum(values[case] for values in part.values()) for part in parts)
    moved, overhead = terms.moved[case], added - hidden
    new = total - moved + kernel + overhead
    fraction = moved / total
    break_even = break_even_kernel_speedup(fraction, overhead / total)
    return total, fraction, moved / kernel if kernel > 0 else None, new, total / new, break_even


def latency_rows(host: HostRun, totals: Sequence[CaseTotals], work: CardWork, card: Board) -> list[SpeedupRow]:
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
    load_us = [1e6 * work.weight_bytes / rate for rate in card.link.bytes_per_s.cases]
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

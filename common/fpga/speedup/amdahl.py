"""Rows of the speedup table: Amdahl's law with the overheads of offloading, and its break-even points.

Amdahl, AFIPS 1967: if a fraction f of the total becomes S_k times faster, S = 1 / ((1 - f) + f / S_k). Overheads are
added to the denominator as fractions of the former total. Time that host and card overlap is a negative overhead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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
    """Terms of Amdahl's law for one objective, each in three cases.

    Attributes:
        total: on the host alone; None makes every term unknown.
        moved: the part of it that moves to the card.
        kernels: cost of the moved part on the card, by name; each name has a row if there are several.
        added: overheads, by name.
        hidden: overlapped amounts, which are subtracted, by name.
    """

    total: Sequence[float] | None
    moved: Sequence[float]
    kernels: Mapping[str, Sequence[float]]
    added: Mapping[str, Sequence[float]]
    hidden: Mapping[str, Sequence[float]]

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

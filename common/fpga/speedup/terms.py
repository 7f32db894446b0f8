"""Rows of the speedup table, and Amdahl's law over the terms of one objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from common.fpga.speedup.amdahl import break_even_kernel_speedup

Objective = Literal["latency", "energy", "throughput"]
Cases = Sequence[float | None]
UNKNOWN: Cases = (None, None, None)


@dataclass(frozen=True, slots=True)
class SpeedupRow:
    """One term of one objective, in three cases."""

    objective: Objective
    term: str
    pessimistic: float | None
    likely: float | None
    optimistic: float | None
    term_unit: str


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

    def kernel(self, case: int) -> float:
        return sum(values[case] for values in self.kernels.values())

    def overhead(self, case: int) -> float:
        plus, minus = (sum(values[case] for values in part.values()) for part in (self.added, self.hidden))
        return plus - minus

    @property
    def amounts(self) -> dict[str, Sequence[float]]:
        split = self.kernels if len(self.kernels) > 1 else {}
        return {**split, **self.added, **self.hidden}


def row(objective: Objective, term: str, values: Cases, unit: str) -> SpeedupRow:
    pessimistic, likely, optimistic = values
    return SpeedupRow(objective, term, pessimistic, likely, optimistic, unit)


def amdahl_rows(objective: Objective, unit: str, terms: AmdahlTerms) -> list[SpeedupRow]:
    """Return the terms of one objective, one per row. ``new_total`` = total - moved + kernels + added - hidden.

    ``total_speedup`` is the former total over the new one: :func:`common.fpga.speedup.amdahl.total_speedup` of f, S_k
    and the overheads as fractions of the former total.
    """
    derived = _derived(terms, terms.total) if terms.total else dict.fromkeys(_NAMES, UNKNOWN)
    amounts: Mapping[str, Cases] = terms.amounts if terms.total else dict.fromkeys(terms.amounts, UNKNOWN)
    return [
        row(objective, "host_total", derived["host_total"], unit),
        row(objective, "accelerated_fraction", derived["accelerated_fraction"], "share"),
        row(objective, "kernel_speedup", derived["kernel_speedup"], "ratio"),
        *(row(objective, name, values, unit) for name, values in amounts.items()),
        row(objective, "new_total", derived["new_total"], unit),
        row(objective, "total_speedup", derived["total_speedup"], "ratio"),
        row(objective, "break_even_kernel_speedup", derived["break_even_kernel_speedup"], "ratio"),
    ]


_NAMES = (
    "host_total",
    "accelerated_fraction",
    "kernel_speedup",
    "new_total",
    "total_speedup",
    "break_even_kernel_speedup",
)


def _derived(terms: AmdahlTerms, totals: Sequence[float]) -> dict[str, Cases]:
    cases = (_derived_case(terms, total, case) for case, total in enumerate(totals))
    return dict(zip(_NAMES, zip(*cases, strict=True), strict=True))


def _derived_case(terms: AmdahlTerms, total: float, case: int) -> tuple[float | None, ...]:
    moved, kernel, overhead = terms.moved[case], terms.kernel(case), terms.overhead(case)
    new = total - moved + kernel + overhead
    fraction = moved / total
    break_even = break_even_kernel_speedup(fraction, overhead / total)
    return total, fraction, moved / kernel if kernel > 0 else None, new, total / new, break_even

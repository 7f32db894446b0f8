"""Rows of the table of gains, and Amdahl's law joining the terms of one objective."""

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
class Terms:
    """What Amdahl's law joins, in three cases each: a former total, a part that moves, and what that part costs then.

    Attributes:
        total: former total; None makes every term unknown.
        moved: the part of it that moves to the card.
        kernels: what the moved part costs there, by name; the names get rows where there are several.
        added: what is added to it, by name.
        hidden: what is taken off again, by name.
    """

    total: float | None
    moved: float
    kernels: Mapping[str, Sequence[float]]
    added: Mapping[str, Sequence[float]]
    hidden: Mapping[str, Sequence[float]]

    def kernel(self, case: int) -> float:
        """What the moved part costs on the card."""
        return sum(values[case] for values in self.kernels.values())

    def overhead(self, case: int) -> float:
        """What is added, less what is hidden."""
        plus, minus = (sum(values[case] for values in part.values()) for part in (self.added, self.hidden))
        return plus - minus

    @property
    def amounts(self) -> dict[str, Sequence[float]]:
        """All parts that have a row of their own."""
        split = self.kernels if len(self.kernels) > 1 else {}
        return {**split, **self.added, **self.hidden}


def row(objective: Objective, term: str, values: Cases, unit: str) -> SpeedupRow:
    """One term in three cases."""
    pessimistic, likely, optimistic = values
    return SpeedupRow(objective, term, pessimistic, likely, optimistic, unit)


def amdahl_rows(objective: Objective, unit: str, terms: Terms) -> list[SpeedupRow]:
    """Each term on a row of its own. ``new_total`` = total - moved + kernels + added - hidden, in every case.

    ``total_speedup`` is the former total over the new one: :func:`common.fpga.speedup.amdahl.total_speedup` of f, S_k
    and the overheads as fractions of the former total.
    """
    found = _known(terms, terms.total) if terms.total else dict.fromkeys(_NAMES, UNKNOWN)
    amounts: Mapping[str, Cases] = terms.amounts if terms.total else dict.fromkeys(terms.amounts, UNKNOWN)
    return [
        row(objective, "host_total", found["host_total"], unit),
        row(objective, "accelerated_fraction", found["accelerated_fraction"], "share"),
        row(objective, "kernel_speedup", found["kernel_speedup"], "ratio"),
        *(row(objective, name, values, unit) for name, values in amounts.items()),
        row(objective, "new_total", found["new_total"], unit),
        row(objective, "total_speedup", found["total_speedup"], "ratio"),
        row(objective, "break_even_kernel_speedup", found["break_even_kernel_speedup"], "ratio"),
    ]


_NAMES = (
    "host_total",
    "accelerated_fraction",
    "kernel_speedup",
    "new_total",
    "total_speedup",
    "break_even_kernel_speedup",
)


def _known(terms: Terms, total: float) -> dict[str, Cases]:
    cases = range(3)
    moved, kernels = terms.moved, [terms.kernel(case) for case in cases]
    overheads = [terms.overhead(case) for case in cases]
    totals = [total - moved + kernel + overhead for kernel, overhead in zip(kernels, overheads, strict=True)]
    return {
        "host_total": (total,) * 3,
        "accelerated_fraction": (moved / total,) * 3,
        "kernel_speedup": [moved / kernel if kernel > 0 else None for kernel in kernels],
        "new_total": totals,
        "total_speedup": [total / new for new in totals],
        "break_even_kernel_speedup": [break_even_kernel_speedup(moved / total, added / total) for added in overheads],
    }

"""The terms of Amdahl's law as rows, for latency and for energy, in three cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from common.fpga.amdahl import break_even_kernel_speedup, total_speedup
from common.fpga.boards import Board
from common.fpga.figures import Outlook, combine
from common.fpga.selection import HostTotals

Objective = Literal["latency", "energy"]


@dataclass(frozen=True, slots=True)
class SpeedupRow:
    """One term; ``low`` is its pessimistic value and ``high`` its optimistic one."""

    objective: Objective
    term: str
    low: float | None
    likely: float | None
    high: float | None
    term_unit: str


@dataclass(frozen=True, slots=True)
class BoardTimes:
    """What one run spends on the board and on the way there. ``offloaded_us`` is what the host is spared."""

    offloaded_us: float
    kernel_us: Outlook
    transfer_us: Outlook
    launch_us: Outlook


def latency_rows(host: HostTotals, times: BoardTimes) -> list[SpeedupRow]:
    """Host and board take turns, as the sequential executor would have it: their times add up."""
    overheads = {"transfer": times.transfer_us, "launch": times.launch_us}
    return amdahl_rows("latency", "us", host.latency_us, times.offloaded_us, times.kernel_us, overheads)


def energy_rows(host: HostTotals, offloaded_uj: float | None, times: BoardTimes, board: Board) -> list[SpeedupRow]:
    """While the card works the host idles; while the host works the card idles. W × µs = µJ.

    Kernel: (card static + card dynamic + host static) × time. Transfer and launch: (card static + host static) × time.
    Idle card: card static × the time left to the host. Without the host's energy or static power all is unknown.
    """
    idle_w = host.static_power_w
    if idle_w is None or offloaded_uj is None or host.energy_uj is None:
        return amdahl_rows("energy", "uj", None, 0.0, Outlook.known(0.0), dict.fromkeys(_ENERGY_OVERHEADS, _NOTHING))
    waiting_w = combine(lambda static: static + idle_w, board.static_w)
    busy_w = combine(lambda static, dynamic: static + dynamic, waiting_w, board.dynamic_w)
    rest_us = host.latency_us - times.offloaded_us if times.offloaded_us else 0.0  # without a kernel, without a card
    overheads = {
        "transfer": combine(_product, times.transfer_us, waiting_w),
        "launch": combine(_product, times.launch_us, waiting_w),
        "idle_card": combine(_product, Outlook.known(rest_us), board.static_w),
    }
    kernel_uj = combine(_product, times.kernel_us, busy_w)
    return amdahl_rows("energy", "uj", host.energy_uj, offloaded_uj, kernel_uj, overheads)


_NOTHING = Outlook.known(0.0)
_ENERGY_OVERHEADS = ("transfer", "launch", "idle_card")


def _product(first: float, second: float) -> float:
    return first * second


def amdahl_rows(
    objective: Objective,
    unit: str,
    total: float | None,
    moved: float,
    kernel: Outlook,
    overheads: Mapping[str, Outlook],
) -> list[SpeedupRow]:
    """Each term on a row of its own; :func:`common.fpga.amdahl.total_speedup` joins them.

    Args:
        objective: what the terms are of.
        unit: unit of the amounts.
        total: former total; None makes every term unknown.
        moved: the part of it that moves to the board.
        kernel: what that part costs there.
        overheads: what is added, by name.
    """
    amounts = {name: overhead.cases for name, overhead in overheads.items()}
    terms: dict[str, Sequence[float | None]] = dict.fromkeys(
        ("host_total", "accelerated_fraction", "kernel_speedup", *amounts, "new_total", *_RATIOS[2:]), (None,) * 3
    )
    if total is not None and total > 0:
        added = [sum(values[case] for values in amounts.values()) for case in range(3)]
        fraction = moved / total
        speedups = [moved / cost if cost > 0 else None for cost in kernel.cases]
        totals = [total_speedup(fraction, s or 1.0, a / total) for s, a in zip(speedups, added, strict=True)]
        terms |= {"host_total": (total,) * 3, "accelerated_fraction": (fraction,) * 3, "kernel_speedup": speedups}
        terms |= {**amounts, "new_total": [total / value for value in totals], "total_speedup": totals}
        terms["break_even_kernel_speedup"] = [break_even_kernel_speedup(fraction, a / total) for a in added]
    return [_row(objective, name, values, unit) for name, values in terms.items()]


_RATIOS = ("accelerated_fraction", "kernel_speedup", "total_speedup", "break_even_kernel_speedup")


def _row(objective: Objective, term: str, values: Sequence[float | None], unit: str) -> SpeedupRow:
    if term in _RATIOS:
        unit = "share" if term == "accelerated_fraction" else "ratio"
    low, likely, high = values
    return SpeedupRow(objective, term, low, likely, high, unit)

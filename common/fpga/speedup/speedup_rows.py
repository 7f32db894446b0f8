"""The table of gains: latency, energy and throughput, one term a row."""

from __future__ import annotations

from common.fpga.speedup.card_energy import CardEnergy
from common.fpga.speedup.energy import energy_rows
from common.fpga.speedup.latency import latency_rows
from common.fpga.speedup.terms import SpeedupRow
from common.fpga.speedup.throughput import throughput_rows
from common.fpga.speedup.totals import Card, CardWork, HostRun, PlanTotals


def speedup_rows(
    host: HostRun, totals: PlanTotals, work: CardWork, card: Card, coefficients: CardEnergy
) -> list[SpeedupRow]:
    """All terms of all objectives.

    Args:
        host: one inference without the card.
        totals: one inference with it, as the schedule has it in each case.
        work: what that inference puts on the card, at the kernels' number format.
        card: power and link of the board.
        coefficients: energy per operation and byte.

    Raises:
        CommandLineError: the card's memory or link has no energy per byte.
    """
    return [
        *latency_rows(host, totals, work, card),
        *energy_rows(host, totals, work, card, coefficients),
        *throughput_rows(host, totals),
    ]

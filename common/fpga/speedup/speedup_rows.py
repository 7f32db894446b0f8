"""Rows of the speedup table: latency, energy and throughput, one term per row."""

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
    """Return all terms of all objectives.

    Args:
        host: one inference on the host alone.
        totals: sums of the plan's schedule in each case.
        work: work of one inference on the card, in the kernels' number format.
        card: power and link of the board.
        coefficients: energy per operation and byte.

    Raises:
        PipelineError: the energy per byte of the card's memory or link is unknown.
    """
    return [
        *latency_rows(host, totals, work, card),
        *energy_rows(host, totals, work, card, coefficients),
        *throughput_rows(host, totals),
    ]

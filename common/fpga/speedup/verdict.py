"""The verdict on a plan for each objective: whether it pays, or why nobody can say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from common.fpga.speedup.energy_basis import boundary, weaker_side
from common.fpga.speedup.terms import Objective, SpeedupRow

Judgement = Literal["pays", "likely pays", "likely does not pay", "does not pay", "host alone", "not judged", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one objective.

    Attributes:
        objective: latency, energy or throughput.
        verdict: the plan pays if its whole interval lies above 1, and likely pays if its likely case does.
        pessimistic: speedup in the pessimistic case; None is unknown.
        likely: in the likely case.
        optimistic: in the optimistic case.
        doubts: why the host's times decide nothing; with any, nothing is judged.
        weaker_side: which side of the energy is known less well, host or card; empty for other objectives.
        boundary: what the energy covers; empty for other objectives.
    """

    objective: Objective
    verdict: Judgement
    pessimistic: float | None
    likely: float | None
    optimistic: float | None
    doubts: tuple[str, ...]
    weaker_side: str = ""
    boundary: str = ""


def verdicts(rows: Sequence[SpeedupRow], doubts: tuple[str, ...], energy_source: str = "unavailable") -> list[Verdict]:
    """Return the verdict on each objective of the speedup.

    Args:
        rows: all terms of all objectives.
        doubts: why the host's times decide nothing.
        energy_source: how the host's energy is known.
    """
    moved = next(row for row in rows if (row.objective, row.term) == ("latency", "accelerated_fraction"))
    totals = [row for row in rows if row.term == "total_speedup"]
    return [
        Verdict(
            row.objective,
            "not judged" if doubts else _judge(row, is_offloaded=bool(moved.likely)),
            row.pessimistic,
            row.likely,
            row.optimistic,
            doubts,
            *((weaker_side(energy_source, rows), boundary(energy_source)) if row.objective == "energy" else ()),
        )
        for row in totals
    ]


def _judge(row: SpeedupRow, *, is_offloaded: bool) -> Judgement:
    if row.pessimistic is None or row.likely is None or row.optimistic is None:
        return "unknown"
    if not is_offloaded:
        return "host alone"
    if row.pessimistic > 1:
        return "pays"
    if row.optimistic < 1:
        return "does not pay"
    return "likely pays" if row.likely > 1 else "likely does not pay"

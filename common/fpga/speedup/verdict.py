"""The verdict on a plan for each objective: whether it pays, or why nobody can say; and what counts as its energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from common.fpga.speedup.amdahl import Objective, SpeedupRow

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


HOST_COVERS = {
    "measured": "the domains of its power sensors",
    "given": "what the given power covers",
    "modelled": "the share of a machine that the energy model assigns to the threads in use",
}
CARD_COVERS = "the whole card: static power from start to finish, arithmetic, memory, buffers and the link"
NOT_COUNTED = (
    "the host's memory during transfers, the conversion of number formats, losses of power supplies, cooling, and what "
    "is done once (configuring the device, loading weights)"
)


def boundary(host_source: str) -> str:
    """Return what the energy of both sides covers, and what it leaves out.

    Args:
        host_source: how the host's energy is known.
    """
    covered = HOST_COVERS.get(host_source, "what its source covers")
    return f"energy counts for the host {covered}, and for {CARD_COVERS}; it does not count {NOT_COUNTED}"


def weaker_side(host_source: str, rows: Sequence[SpeedupRow]) -> str:
    """Return which side of the energy is known less well, and why; empty where nothing is compared.

    The card's energy is modelled throughout, so it is the weaker side beside a measured or given host. Beside a
    modelled host, the weaker one is that with the wider interval.
    """
    terms = {row.term: (row.pessimistic, row.likely, row.optimistic) for row in rows if row.objective == "energy"}
    host, fraction, new = (terms[name] for name in ("host_total", "accelerated_fraction", "new_total"))
    known = [cell for cells in (host, fraction, new) for cell in cells if cell is not None]
    if len(known) < 9 or not fraction[1]:
        return ""
    cells = zip(host, fraction, new, strict=True)
    card = [after - alone * (1 - moved) for alone, moved, after in cells]  # type: ignore[operator]
    spans = {"host": max(known[:3]) / min(known[:3]), "card": max(card) / min(card)}
    sources = {"host": host_source, "card": "modelled"}
    weaker = "host" if host_source == "modelled" and spans["host"] > spans["card"] else "card"
    other = "card" if weaker == "host" else "host"
    texts = {name: f"is {sources[name]} and spans a factor of {spans[name]:.1f}" for name in spans}
    return f"the {weaker} is the weaker side: its energy {texts[weaker]}, that of the {other} {texts[other]}"

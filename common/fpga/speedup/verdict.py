"""The verdict on a plan for each objective: whether it pays, or why nobody can say; and what counts as its energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from common.fpga.speedup.odds import QUANTILES, Odds
from common.table_rows import OffloadUncertaintyRow, OffloadVerdictRow, SpeedupRow

PAYS, DOES_NOT_PAY = 0.95, 0.05  # probabilities from which on a plan is judged
UNKNOWN: tuple[float | None, ...] = (None,) * len(QUANTILES)
Judgement = Literal[
    "pays", "undecided", "does not pay", "host alone", "not judged", "not judged for this host", "unknown"
]


@dataclass(frozen=True, slots=True)
class JudgedHost:
    """The host that a verdict is about."""

    basis: str = "profiled"  # profiled, scaled or measured: where its times come from
    name: str = ""  # the host, and where its times come from, in words
    doubts: tuple[str, ...] = ()  # why its times decide nothing
    mismatch: str = ""  # why they say nothing about the host of the board; empty if they do

    @property
    def obstacle(self) -> Judgement | None:
        if self.doubts:
            return "not judged"
        return "not judged for this host" if self.mismatch else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why nothing is judged, in words."""
        return tuple(filter(None, (*self.doubts, self.mismatch)))


def verdicts(
    rows: Sequence[SpeedupRow],
    odds: Mapping[str, Odds],
    host: JudgedHost,
    energy_source: str = "unavailable",
    energy_boundary: str = "",
) -> list[OffloadVerdictRow]:
    """Return the verdict on each objective of the speedup; with a doubt about the host's times, nothing is judged.

    A plan pays from a probability of 0.95 on, and does not pay up to 0.05. The pessimistic and the optimistic case of
    the speedup are beside it and decide nothing: each takes all unfavourable, or all favourable, assumptions together.

    Args:
        odds: distribution of the gain, by objective.
        energy_source: how the host's energy is known.
        energy_boundary: which part of the host it covers.
    """
    terms = {(row["objective"], row["term"]): row for row in rows}
    is_judged = host.obstacle is None and bool(terms["latency", "accelerated_fraction"]["likely"])
    known = odds if is_judged else {}
    return [
        {
            "objective": row["objective"],
            "verdict": host.obstacle or (judged(known.get(row["objective"])) if is_judged else "host alone"),
            "is_judged": host.obstacle is None,
            "host_basis": host.basis,
            "judged_host": host.name,
            "pessimistic": row["pessimistic"],
            "likely": row["likely"],
            "optimistic": row["optimistic"],
            **_distribution(known.get(row["objective"])),
            "doubts": host.reasons,
            "weaker_side": weaker_side(energy_source, rows) if row["objective"] == "energy" else "",
            "boundary": boundary(energy_source, energy_boundary) if row["objective"] == "energy" else "",
        }
        for row in rows
        if row["term"] == "total_speedup"
    ]


class Distribution(TypedDict):
    """The columns of a gain's distribution; without a verdict they are empty."""

    pays_probability: float | None
    speedup_p5_factor: float | None
    speedup_p25_factor: float | None
    speedup_p50_factor: float | None
    speedup_p75_factor: float | None
    speedup_p95_factor: float | None


def _distribution(odds: Odds | None) -> Distribution:
    p5, p25, p50, p75, p95 = UNKNOWN if odds is None else odds.quantiles
    return {
        "pays_probability": None if odds is None else odds.pays_probability,
        "speedup_p5_factor": p5,
        "speedup_p25_factor": p25,
        "speedup_p50_factor": p50,
        "speedup_p75_factor": p75,
        "speedup_p95_factor": p95,
    }


def judged(odds: Odds | None) -> Judgement:
    """Return the verdict that the probability of a gain gives; unknown without a distribution."""
    if odds is None:
        return "unknown"
    if odds.pays_probability >= PAYS:
        return "pays"
    return "does not pay" if odds.pays_probability <= DOES_NOT_PAY else "undecided"


def uncertainty_rows(
    rows: Sequence[SpeedupRow], odds: Mapping[str, Odds], *, is_judged: bool
) -> list[OffloadUncertaintyRow]:
    """Return what each uncertain term does to the gain in each objective, the largest part of the variance first.

    Of a plan that is not judged, nobody can say what would decide it.
    """
    units = {row["objective"]: row["term_unit"] for row in rows if row["term"] == "new_total"}
    return [
        {
            "objective": objective,
            "uncertain_term": term.term,
            "variance_share": term.variance_share,
            "known_pays_probability": term.pays_probability if is_judged else None,
            "information_value": term.value if is_judged else None,
            "term_unit": units[objective],
            "is_judged": is_judged,
        }
        for objective, of_objective in odds.items()
        for term in of_objective.terms
    ]


HOST_COVERS = {
    "measured": "the domains of its power sensors",
    "given": "what the given power covers",
    "modelled": "the packages and their memory, as the name of the processor gives them",
}
CARD_COVERS = "the whole card: static power from start to finish, arithmetic, memory, buffers and the link"
NOT_COUNTED = (
    "the host's memory during transfers, the conversion of number formats, losses of power supplies, cooling, and what "
    "is done once (configuring the device, loading weights)"
)


def boundary(host_source: str, covered: str = "") -> str:
    """Return what the energy of both sides covers and leaves out; ``covered`` is the part of the host, if known."""
    covered = covered or HOST_COVERS.get(host_source, "what its source covers")
    return f"energy counts for the host {covered}, and for {CARD_COVERS}; it does not count {NOT_COUNTED}"


def weaker_side(host_source: str, rows: Sequence[SpeedupRow]) -> str:
    """Return which side of the energy is known less well, and why; empty where nothing is compared.

    The card's energy is modelled throughout, so it is known less well than a measured or given energy of the host.
    Beside a modelled host, the side with the wider interval is known less well.
    """
    energy = (row for row in rows if row["objective"] == "energy")
    terms = {row["term"]: (row["pessimistic"], row["likely"], row["optimistic"]) for row in energy}
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
    texts = {name: f"is {sources[name]}, within a factor of {spans[name]:.1f}" for name in spans}
    return f"the {weaker}'s energy is known less well: it {texts[weaker]}; the {other}'s {texts[other]}"

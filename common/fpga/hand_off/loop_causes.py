"""Why the loops of an array's C++ take more or fewer cycles than the plan counts: one line for each product."""

from __future__ import annotations

from collections.abc import Sequence

from common.fpga.hand_off.trips import ArrayTrips, Phase
from common.fpga.kernels.systolic.array import MappedProduct

MOST_APART = 0.1  # of the planned cycles
CAUSES = {
    "steps": "all tiles have one size in the C++, so its array takes another number of steps",
    "results": "bank conflicts limit the results per cycle",
    "pieces": "each load fills only part of the banks",
    "ports": "the ports move whole words, and read again what the line buffer does not keep",
}
ENDS = "the first tile loads and the last one leaves while the array has no steps"
FILLING = "the plan counts fill and drain of the array, and the C++ loops have none"
AVERAGED = "the plan counts pieces and words of the map from averages over its windows"


def loop_cause(trips: ArrayTrips, product: MappedProduct) -> str:
    """Return the cause, with the sums over the phases of what one takes; empty where both are within a tenth.

    A phase lasts as long as the longest of its steps, results, pieces and words.
    """
    ratio = trips.cycles / product.cycles
    if abs(ratio - 1) <= MOST_APART:
        return ""
    cause = CAUSES.get(longest(trips.phases), ENDS) if ratio > 1 else _shorter(trips, product)
    sums = ", ".join(f"{name} {sum(_parts(phase)[name] for phase in trips.phases):,.0f}" for name in CAUSES)
    moved = f"bytes {_moved(trips):,.0f}, in the plan {product.moved_bytes:,.0f}"
    return f"{cause} (cycles over {len(trips.phases)} phases: {sums}; {moved})"


def _parts(phase: Phase) -> dict[str, float]:
    parts = phase.steps, phase.results, phase.pieces, phase.port_cycles
    return dict(zip(CAUSES, parts, strict=True))


def longest(phases: Sequence[Phase]) -> str:
    """Return what takes the most cycles beyond the steps of its phases; empty for phases without steps."""
    beyond = dict.fromkeys(("", *CAUSES), 0.0)
    for phase in phases:
        parts = _parts(phase)
        longest = max(parts, key=parts.__getitem__)
        beyond[longest if phase.steps else ""] += parts[longest] - phase.steps
    return max(beyond, key=beyond.__getitem__)


def _shorter(trips: ArrayTrips, product: MappedProduct) -> str:
    """Return what the plan counts and the loops do not have."""
    is_filling = trips.cycles >= (1 - MOST_APART) * (product.cycles - trips.engine.once_cycles)
    return FILLING if is_filling else AVERAGED


def _moved(trips: ArrayTrips) -> float:
    return sum(phase.moved_bytes for phase in trips.phases)

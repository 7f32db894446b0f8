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
    "ports": "the ports move whole words, and read a window again in each tile along k",
}
ENDS = "the first tile loads and the last one leaves while the array has no steps"
SKIPPED = "the C++ does not read the pixels that the stride skips; the plan counts them"
SHARED = "the C++ moves fewer bytes than the plan, which counts the lines between two tiles twice"
FILLING = "the plan counts fill and drain of the array, and the C++ loops have none"
WIDE_PIECES = "the plan counts one beat per cycle for a depthwise convolution, and a load of the C++ has up to three"
APART = "the plan does not overlap the first load and the last store, and its tiles are larger"


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
    layer, once = trips.call.layer, trips.engine.once_cycles
    if layer.is_depthwise and layer.groups > 1:
        return WIDE_PIECES
    if (1 - MOST_APART) * product.moved_bytes > _moved(trips):
        is_skipped = layer.stride_height > layer.kernel_height or layer.stride_width > layer.kernel_width
        return SKIPPED if is_skipped else SHARED
    return FILLING if trips.cycles >= (1 - MOST_APART) * (product.cycles - once) else APART


def _moved(trips: ArrayTrips) -> float:
    return sum(phase.moved_bytes for phase in trips.phases)

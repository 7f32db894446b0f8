"""Plans that launch a kernel for each phase: which hardware they assume, and their place behind all others.

No published array that we know of answers one image as fast as such a plan says. So texts name the hardware with the
figure, and never begin with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from common.table_rows import OffloadComparisonRow

HARDWARE = "a command processor on the card"
ASSUMED = (
    f"per phase: assumes {HARDWARE}, which fetches the calls and starts each kernel "
    "when its operands are there, as a DPU's scheduler does; a hand-off has no such processor"
)


def is_per_phase(row: OffloadComparisonRow) -> bool:
    return row["launch_per"] == "phase"


def per_phase_last(compared: Iterable[OffloadComparisonRow]) -> list[OffloadComparisonRow]:
    """Return the plans in their order, those with a launch for each phase behind the others."""
    return sorted(compared, key=is_per_phase)

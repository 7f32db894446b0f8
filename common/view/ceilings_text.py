"""The table that 00 prints: the best slice of each operator, and the two ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from common.view.text import WIDTH, percent, quantity, table


def ceilings_report(ceilings: Mapping[str, Any], rows: Sequence[tuple[str, float, bool]]) -> str:
    """One row per operator (label, rate, whether it streams), then the ridge and whether two halves agree."""
    body = [[label, quantity(rate, "B/s" if streams else "FLOP/s")] for label, rate, streams in rows]
    ridge = ceilings["peak_flop_per_s"] / ceilings["memory_bytes_per_s"]
    compute, memory = (percent(ceilings[f"{kind}_halves_difference_share"]) for kind in ("peak", "memory"))
    verdict = "stable" if ceilings["stable"] else "unstable"
    return "\n".join(
        [
            f"ceilings at {ceilings['threads']} threads, best of {ceilings['slice_count']} slices each",
            str(ceilings["cpu_model"])[:WIDTH],
            table(("operator", "best"), body),
            f"ridge point {quantity(ridge, 'FLOP/byte')}",
            f"{verdict}: two halves differ by {compute} (compute) and {memory} (memory)",
        ]
    )

"""Several chips that one model was compiled for: what each moves, and which nodes it places otherwise.

All of it was decided by the compiler, so it is as valid on the emulator as on a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.npu.nodes import BYTES, UNITS, NpuNode, placement_row

FIGURES = (*BYTES, "spill_bytes", "htp_op_count", *(f"{unit}_op_count" for unit in UNITS), "vtcm_peak_bytes")


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip by Qualcomm's number, the nodes as compiled for it, its figures by name, and the largest error."""

    soc_model: int
    nodes: Sequence[NpuNode]
    figures: Mapping[str, float | None]
    max_error: float | None


def chip_rows(chips: Sequence[Chip]) -> list[dict[str, Any]]:
    """Return a row per chip for npu_chips."""
    return [
        {
            "soc_model": chip.soc_model,
            "npu_node_count": len(chip.nodes),
            "fused_node_count": sum(bool(node.fused_into) for node in chip.nodes),
            "moved_node_count": len(_moved(chip, chips[0])),
            **{name: chip.figures.get(name) for name in FIGURES},
            "max_error": chip.max_error,
        }
        for chip in chips
    ]


def chip_node_rows(chips: Sequence[Chip]) -> list[dict[str, Any]]:
    """Return a row per chip and node for npu_chip_nodes."""
    rows = []
    for chip in chips:
        moved = _moved(chip, chips[0])
        rows += [
            {"soc_model": chip.soc_model, **placement_row(node), "is_moved": node.op_id in moved} for node in chip.nodes
        ]
    return rows


def _moved(chip: Chip, first: Chip) -> set[int]:
    """Return the ids of the nodes that the first chip places otherwise, or does not have."""
    known = {node.op_id: node.placement for node in first.nodes}
    return {node.op_id for node in chip.nodes if known.get(node.op_id) != node.placement}

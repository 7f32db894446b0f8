"""Several chips that one model was compiled for: what each moves, and which nodes it places otherwise.

All of it was decided by the compiler, so it is as valid on the emulator as on a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.npu.nodes import NpuNode, placement_cells

if TYPE_CHECKING:
    from common.table_rows import NpuChipNodesRow, NpuChipsRow


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip by Qualcomm's number, the nodes as compiled for it, its figures by name, and the largest error."""

    soc_model: int
    nodes: Sequence[NpuNode]
    figures: Mapping[str, float | None]
    max_error: float | None


def chip_rows(chips: Sequence[Chip]) -> list[NpuChipsRow]:
    return [
        {
            "soc_model": chip.soc_model,
            "npu_node_count": len(chip.nodes),
            "fused_node_count": sum(bool(node.fused_into) for node in chip.nodes),
            "moved_node_count": len(_moved(chip, chips[0])),
            "htp_op_count": _whole(chip, "htp_op_count"),
            "hvx_op_count": _whole(chip, "hvx_op_count"),
            "hmx_op_count": _whole(chip, "hmx_op_count"),
            "dma_op_count": _whole(chip, "dma_op_count"),
            "dram_read_bytes": _whole(chip, "dram_read_bytes"),
            "dram_write_bytes": _whole(chip, "dram_write_bytes"),
            "vtcm_read_bytes": _whole(chip, "vtcm_read_bytes"),
            "vtcm_write_bytes": _whole(chip, "vtcm_write_bytes"),
            "spill_bytes": _whole(chip, "spill_bytes"),
            "vtcm_peak_bytes": _whole(chip, "vtcm_peak_bytes"),
            "max_error": chip.max_error,
        }
        for chip in chips
    ]


def chip_node_rows(chips: Sequence[Chip]) -> list[NpuChipNodesRow]:
    rows: list[NpuChipNodesRow] = []
    for chip in chips:
        moved = _moved(chip, chips[0])
        for node in chip.nodes:
            rows.append({"soc_model": chip.soc_model, **placement_cells(node), "is_moved": node.op_id in moved})
    return rows


def _whole(chip: Chip, name: str) -> int | None:
    value = chip.figures.get(name)
    return None if value is None else int(value)


def _moved(chip: Chip, first: Chip) -> set[int]:
    known = {node.op_id: node.placement for node in first.nodes}
    return {node.op_id for node in chip.nodes if known.get(node.op_id) != node.placement}

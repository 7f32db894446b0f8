"""Resources that a plan uses in each region of a board, with the budget, what the shell leaves, and the total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from common.fpga.device.board import Board
from common.fpga.device.resources import RESOURCE_NAMES, Resources, total

WHOLE_BOARD = "board"


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Use of one resource in one region. The region ``board`` is the whole, engines that span regions included."""

    board: str
    region: str
    resource: str
    used_count: float
    budget_count: float
    usable_count: float
    total_count: float


def resource_use(board: Board, used: Mapping[str, Resources], spanning: Resources) -> list[ResourceUse]:
    """Return the use of each resource in each region and on the whole board.

    Memory channels have a row for the whole board only, since every region reaches each of them.

    Args:
        board: with its regions.
        used: resources of the engines in each region, by region.
        spanning: resources of engines that span regions, which count for the whole board only.
    """
    rows = []
    for region in board.regions:
        amounts = used.get(region.name, Resources()), board.budget(region), region.usable, region.total
        rows += [row for row in _rows(board.name, region.name, *amounts) if row.resource != "memory_channels"]
    all_used = total([spanning, *used.values()])
    whole = _rows(board.name, WHOLE_BOARD, all_used, board.total_budget, board.usable, board.total)
    return [*rows, *whole]


def _rows(
    board: str, region: str, used: Resources, budget: Resources, usable: Resources, there: Resources
) -> Iterator[ResourceUse]:
    for name in RESOURCE_NAMES:
        counts = (float(getattr(amounts, name)) for amounts in (used, budget, usable, there))
        yield ResourceUse(board, region, name, *counts)

"""How much of each region of a board a plan takes, beside what closes timing, what the shell leaves, and the total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from common.fpga.device.board import Board
from common.fpga.device.resources import RESOURCE_NAMES, Resources, total

WHOLE = "board"


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """One kind of resource in one region; ``board`` is the sum, engines that span regions included."""

    board: str
    region: str
    resource: str
    used_count: float
    budget_count: float
    usable_count: float
    total_count: float


def resource_use(board: Board, used: Mapping[str, Resources], spanning: Resources) -> list[ResourceUse]:
    """What there is of each kind in each region and on the whole board.

    Memory channels belong to the board, since every region reaches each of them.

    Args:
        board: with its regions.
        used: by region, what the engines that stand in it take.
        spanning: what the engines take that are divided over regions; it counts for the whole board alone.
    """
    rows = []
    for region in board.regions:
        amounts = used.get(region.name, Resources()), board.budget(region), region.usable, region.total
        rows += [row for row in _rows(board.name, region.name, *amounts) if row.resource != "memory_channels"]
    all_used = total([spanning, *used.values()])
    whole = _rows(board.name, WHOLE, all_used, board.total_budget, board.usable, board.total)
    return [*rows, *whole]


def _rows(
    board: str, region: str, used: Resources, budget: Resources, usable: Resources, there: Resources
) -> Iterator[ResourceUse]:
    for name in RESOURCE_NAMES:
        counts = (float(getattr(amounts, name)) for amounts in (used, budget, usable, there))
        yield ResourceUse(board, region, name, *counts)

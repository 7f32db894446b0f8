"""The memories of a systolic array on the chip: double buffers of both operands, sums and results.

The rows of a chain and its weights are kept in the operands' buffers, beside the tiles. So these are as deep as the
longest chain needs, in block RAM or in UltraRAM, whichever leaves more of the budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, inf
from typing import Literal

from common.fpga.device.resources import Resources, total
from common.fpga.kernels.systolic_tiling import Tile
from common.fpga.rtl.generate import FORMATS
from common.number_formats import PRECISION_BITS

SUM_BITS = {"fp32": 32, "bf16": 32} | {name: form.accumulator_bits for name, form in FORMATS.items()}
LUT_RAM_DEPTH = 64
BRAM18_SHAPES = ((36, 512), (18, 1024), (9, 2048))  # bits x words of one 18 Kb block
URAM_BITS, URAM_WORDS = 72, 4096  # of one UltraRAM, which has no other shape (UG573)
DEEPER = (1, 2, 4, 8)  # times the depth that the tile needs, in block RAM
MOST_OF_MEMORY = 0.8  # of the blocks or of the UltraRAM that the rest of the array leaves

Memory = Literal["block", "ultra"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Equal memories on the chip: ``count`` banks of ``depth`` words, each with a write and a read port."""

    name: str
    count: int
    bits: int
    depth: int
    kind: Memory = "block"

    @property
    def resources(self) -> Resources:
        return bank(self.bits, self.depth, self.kind).times(self.count)

    @property
    def memory(self) -> str:
        needed = self.resources
        return "UltraRAM" if needed.uram else "block RAM" if needed.bram36 else "LUT RAM"

    @property
    def content_bytes(self) -> float:
        return self.count * self.depth * self.bits / 8


def buffers(size: tuple[int, int, int], precision: str, tile: Tile) -> tuple[Buffer, ...]:
    rows, cols, simd = size
    bits, sum_bits = PRECISION_BITS[precision], SUM_BITS[precision]
    row_folds, col_folds, steps = ceil(tile.rows / rows), ceil(tile.cols / cols), ceil(tile.depth / simd)
    folds = row_folds * col_folds
    return (
        Buffer("a", rows, simd * bits, 2 * row_folds * steps),
        Buffer("b", cols, simd * bits, 2 * col_folds * steps),
        Buffer("sums", rows * cols, sum_bits, folds if folds > 1 else 0),
        Buffer("results", cols, bits, tile.rows * col_folds),
    )


def with_room_for(held: tuple[Buffer, ...], kept_bytes: float, room: Resources) -> tuple[Buffer, ...]:
    """Return the buffers with the operands' ones deep enough to keep so many bytes, as far as the room allows.

    Of all ways to put both into block RAM or UltraRAM, those that keep the most of ``kept_bytes`` come first, then the
    one that takes the least share of either memory.

    Args:
        held: as :func:`buffers` returns them.
        kept_bytes: of the longest chain.
        room: budget of the array, less what it needs beside these two.
    """
    a, b, *others = held
    ways = [way for way in product(_ways(a), _ways(b)) if _share(way, room) <= MOST_OF_MEMORY]
    if not ways:
        return held

    def cost(way: tuple[Buffer, Buffer]) -> tuple[float, float]:
        return max(0.0, kept_bytes - sum(each.content_bytes for each in way)), _share(way, room)

    return (*min(ways, key=cost), *others)


def _ways(held: Buffer) -> Iterator[Buffer]:
    for times in DEEPER:
        yield replace(held, depth=times * held.depth)
    yield replace(held, depth=URAM_WORDS * ceil(held.depth / URAM_WORDS), kind="ultra")


def _share(way: tuple[Buffer, ...], room: Resources) -> float:
    """Return the larger share of blocks and of UltraRAM that buffers take of the room."""
    needed = total(each.resources for each in way)
    pairs = ((needed.bram36, room.bram36), (needed.uram, room.uram), (needed.lut, room.lut))
    return max((amount / limit if limit > 0 else inf) for amount, limit in pairs if amount)


def sums_per_cycle(simd: int, precision: str) -> int:
    """Return d, the sums that leave a column per cycle: the drain is as wide as the operands, but at least one sum."""
    return max(1, simd * PRECISION_BITS[precision] // SUM_BITS[precision])


def bank(bits: int, depth: int, kind: Memory = "block") -> Resources:
    """Return a memory with a write and a read port.

    In block RAM, up to 64 words are LUT RAM, and more are 18 Kb blocks in their best shape. A RAM64M8 keeps 7 bits in
    the 8 LUTs of a slice (Xilinx UG574).
    """
    if kind == "ultra":
        return Resources(uram=ceil(bits / URAM_BITS) * ceil(depth / URAM_WORDS))
    if depth <= LUT_RAM_DEPTH:
        return Resources(lut=8 * ceil(bits / 7)) if depth else Resources()
    blocks = min(ceil(bits / width) * ceil(depth / words) for width, words in BRAM18_SHAPES)
    return Resources(bram36=blocks / 2)

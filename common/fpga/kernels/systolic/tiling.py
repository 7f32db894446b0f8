"""Tiling of one product on an array, and the memories on the chip that hold its tiles: operands, sums and results.

A tiling decides which operand is read again, and how loads, folds and stores overlap.
The rows of a chain and its weights are kept in the operands' buffers, beside the tiles. So these are as deep as the
longest chain needs, in block RAM or in UltraRAM, whichever leaves more of the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, inf, sqrt
from typing import Literal

from common.fpga.device.resources import BLOCK_BITS, URAM_WORDS, Resources, total
from common.fpga.rtl.generate import FORMATS
from common.graphs.number_formats import PRECISION_BITS
from common.workload.layers import Convolution, Matmul

OuterLoop = Literal["rows", "columns"]
OUTER_LOOPS: tuple[OuterLoop, ...] = ("rows", "columns")
LEAST_FOLDS = 8  # along each side of a square array: 64 sums per processing element fill one LUT RAM
LOAD_MARGIN = 2.0  # a step should load in half of the time that it computes
BANK_WORDS = 512  # words of an 18 Kb block at its greatest width
LEAST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile on the chip: ``rows`` x ``depth`` of a, ``depth`` x ``cols`` of b, ``rows`` x ``cols`` sums."""

    rows: int
    cols: int
    depth: int

    @classmethod
    def balanced(
        cls, size: tuple[int, int, int], element_bytes: float, bytes_per_cycle: float, most_sums: float = inf
    ) -> Tile:
        """Return a square tile that takes longer to compute than to load, with double-buffered banks one block deep.

        A step of T x T sums computes T^2 / (R C s) cycles per product of depth and loads 2 T elements for it, so
        T >= 2 R C s e / B for e bytes per element and B bytes per cycle. It is twice that, or less where a processing
        element had more than ``most_sums`` then.
        """
        rows, cols, simd = size
        needed = 2 * rows * cols * simd * element_bytes / bytes_per_cycle
        wanted = min(LOAD_MARGIN * needed, sqrt(most_sums * rows * cols))
        side = max(LEAST_FOLDS * sqrt(rows * cols), needed, wanted)
        folds = (max(1, int(side / rows + 1e-9)), max(1, int(side / cols + 1e-9)))
        return cls(folds[0] * rows, folds[1] * cols, max(LEAST_STEPS, BANK_WORDS // (2 * max(folds))) * simd)


@dataclass(frozen=True, slots=True)
class Operands:
    """Bytes of a product's operands: their size in memory, or their traffic over the ports."""

    a: float
    b: float
    c: float

    @property
    def total(self) -> float:
        return self.a + self.b + self.c

    @property
    def swapped(self) -> Operands:
        """Return them as the transposed product has them."""
        return Operands(self.b, self.a, self.c)

    def less(self, other: Operands) -> Operands:
        return Operands(self.a - other.a, self.b - other.b, self.c - other.c)


def as_matmul(layer: Matmul | Convolution) -> Matmul:
    return layer.as_matmul() if isinstance(layer, Convolution) else layer


def operands(layer: Matmul | Convolution, element_bytes: float, tile: Tile) -> Operands:
    """Return the bytes that one product of the batch reads and writes, each element once.

    The rows of a convolution are gathered on the chip. It reads each input element once per band of rows, plus the
    overhang of the window between two bands, and never more than the gathered matrix holds.
    """
    matmul = as_matmul(layer)
    gathered = float(matmul.m * matmul.k)
    read = min(gathered, _read_elements(layer, tile)) if isinstance(layer, Convolution) else gathered
    return Operands(read * element_bytes, matmul.k * matmul.n * element_bytes, matmul.m * matmul.n * element_bytes)


def input_elements(layer: Matmul | Convolution) -> int:
    """Return the elements of the first operand of one product of the batch: of a convolution's group, its input."""
    if isinstance(layer, Matmul):
        return layer.m * layer.k
    return layer.batch * layer.in_channels // layer.groups * layer.in_height * layer.in_width


def turned_elements(layer: Matmul | Convolution) -> tuple[int, int]:
    """Return the elements of the two maps of a depthwise convolution, which change their order beside an array.

    Each channel is a product of its own. Its maps lie channel by channel, those of the layers around it pixel by pixel.
    So each map is read and written once more. Other contractions have none.
    """
    if isinstance(layer, Matmul) or not layer.is_depthwise:
        return 0, 0
    read = layer.batch * layer.in_channels * layer.in_height * layer.in_width
    return read, layer.batch * layer.out_channels * layer.out_height * layer.out_width


def _read_elements(layer: Convolution, tile: Tile) -> float:
    per_group = input_elements(layer)
    if layer.is_transposed:
        return float(per_group)
    band = max(1, tile.rows // layer.out_width) * layer.stride_height
    overhang = max(0, layer.kernel_height - layer.stride_height) if band < layer.in_height else 0
    return per_group * (band + overhang) / band


def read_bytes(layer: Matmul | Convolution, element_bytes: float) -> float:
    """Return the bytes of the activations of a product, each element once."""
    second = layer.k * layer.n if isinstance(layer, Matmul) and not layer.has_weight else 0
    return (input_elements(layer) + second) * element_bytes


def used_share(layer: Matmul | Convolution) -> float:
    """Return the share of the map that windows cover: a stride may skip rows and columns."""
    if isinstance(layer, Matmul) or layer.is_transposed:
        return 1.0

    def along(size: int, out: int, kernel: int, stride: int) -> float:
        return min(size, out * kernel) / size if kernel < stride else 1.0

    rows = along(layer.in_height, layer.out_height, layer.kernel_height, layer.stride_height)
    return rows * along(layer.in_width, layer.out_width, layer.kernel_width, layer.stride_width)


def tile_traffic(matmul: Matmul, tile: Tile, parts: Operands) -> tuple[OuterLoop, Operands]:
    """Return whose tiles the outer loop runs over, and the traffic of one product over all tiles, k innermost.

    Of the two orders of the outer loops, it is the one with less traffic. A tile is not loaded again where the next
    step needs the same one. With one tile along k, that is the tile of the outer loop. An operand that fits as a whole
    is loaded once.
    """
    rows_outside, cols_outside = (loaded(matmul, tile, parts, outer) for outer in OUTER_LOOPS)
    return ("rows", rows_outside) if rows_outside.total <= cols_outside.total else ("columns", cols_outside)


def loaded(matmul: Matmul, tile: Tile, parts: Operands, outer_loop: OuterLoop) -> Operands:
    """Return the traffic of one product with its tiles in a given order: each operand as often as it is loaded."""
    rows, cols, deep = _counts(matmul, tile)
    once = {"rows": (deep == 1, cols == deep == 1), "columns": (rows == deep == 1, deep == 1)}
    once_a, once_b = once[outer_loop]
    return Operands(parts.a * (1 if once_a else cols), parts.b * (1 if once_b else rows), parts.c)


def _counts(matmul: Matmul, tile: Tile) -> tuple[int, int, int]:
    return ceil(matmul.m / tile.rows), ceil(matmul.n / tile.cols), ceil(matmul.k / tile.depth)


def double_buffered_cycles(
    matmul: Matmul,
    tile: Tile,  # of a full step; steps at the edges are smaller
    traffic: Operands,  # of one product, distributed over the steps by the size of their tiles
    step_cycles: Callable[[int, int, int], float],  # to compute a step, by its rows, columns and products per sum
    port_cycles: Callable[[float, float], float],  # to read and write at once, by bytes read and bytes written
) -> float:
    """Return the cycles of a batch with double-buffered operands: a step loads the next tiles and stores the last.

    load(first) + sum over all steps but one of max(compute, load + store) + compute(last) + store(last).
    """

    def step(m: int, n: int, k: int) -> float:
        return max(step_cycles(m, n, k), port_cycles(*_step_bytes(matmul, traffic, tile, m, n, k)))

    def along(whole: int, full: int) -> list[tuple[int, int]]:
        """Return the extents of tiles along an axis, the last one behind, and how many have each."""
        before = ceil(whole / full) - 1
        return [*([(full, before)] if before else []), (whole - before * full, 1)]

    sizes = along(matmul.m, tile.rows), along(matmul.n, tile.cols), along(matmul.k, tile.depth)
    total = 0.0
    for (m, rows), (n, cols), (k, deep) in product(*sizes):
        total += matmul.batch * rows * cols * deep * step(m, n, k)
    first, last = (tuple(each[end][0] for each in sizes) for end in (0, -1))
    load, _ = _step_bytes(matmul, traffic, tile, *first)
    store = traffic.c * (last[0] / matmul.m) * (last[1] / matmul.n)
    return total - step(*last) + step_cycles(*last) + port_cycles(load, 0) + port_cycles(0, store)


def _step_bytes(matmul: Matmul, traffic: Operands, tile: Tile, m: int, n: int, k: int) -> tuple[float, float]:
    """Return the bytes that a step loads and stores, averaged over the steps that share a tile or a sum."""
    rows, cols, deep = _counts(matmul, tile)
    load_a = traffic.a * (m / matmul.m) * (k / matmul.k) / cols
    load_b = traffic.b * (n / matmul.n) * (k / matmul.k) / rows
    return load_a + load_b, traffic.c * (m / matmul.m) * (n / matmul.n) / deep


SUM_BITS = {"fp32": 32, "bf16": 32} | {name: form.accumulator_bits for name, form in FORMATS.items()}
LUT_RAM_DEPTH = 64
BRAM18_SHAPES = ((36, 512), (18, 1024), (9, 2048))  # bits x words of one 18 Kb block
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
    one that takes the least share of either memory. ``kept_bytes`` are those of the longest chain. ``room`` is the
    budget of the array, less what it needs beside these two.
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
        return Resources(uram=ceil(bits / BLOCK_BITS) * ceil(depth / URAM_WORDS))
    if depth <= LUT_RAM_DEPTH:
        return Resources(lut=8 * ceil(bits / 7)) if depth else Resources()
    blocks = min(ceil(bits / width) * ceil(depth / words) for width, words in BRAM18_SHAPES)
    return Resources(bram36=blocks / 2)

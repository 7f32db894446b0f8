"""Attention as one dataflow kernel: QKᵀ, scale and mask, softmax, PV. The scores never leave the chip.

The softmax is online, so a row needs no second pass over its scores (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018). Queries are processed in tiles and keys in blocks (Dao et al., "FlashAttention",
2022). For a tile of R query rows and a block of B keys there are three stages, which work on successive blocks at once:

    scores        B · ⌈d / U⌉             R · U multiply-accumulate lanes
    exponentials  ⌈R · (B + 1) / E⌉       one per score, and one per row to correct its running sum
    values        (B + 1) · ⌈dᵥ / U⌉      R · U lanes; one step more rescales the running result
    tile          Σ over blocks of ii · the longest stage, + ii · ⌈dᵥ / U⌉ for the division by the sum

K and V of a head stay on the chip where they fit. If they fit twice, the next head loads while this one computes. If
they fit once, they load during the first tile of their head. Otherwise every tile reads them again. The model takes the
quickest way.

    read again   tiles · max(tile, K, V and rows of a tile)
    kept once    max(tile, K, V and rows of a tile) + (tiles − 1) · max(tile, rows of a tile)
    kept twice   max(tiles · tile, K, V and rows of a head)

Several heads are computed at once by units of their own, each with a share of the ports. The likely time is no better
than the geometric mean of published kernels, whose interval is that from the worst to the best of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from common.fpga.device.resources import Resources
from common.fpga.kernels.dataflow.operators import DataflowCosts, buffer
from common.fpga.kernels.estimate import KernelEstimate
from common.fpga.kernels.ports import MemoryPorts, OnPorts
from common.graphs.number_formats import PRECISION_BITS
from common.intervals import ThreePoint
from common.workload.layers import Matmul, Pointwise, Rowwise
from common.workload.tasks import Task

SOFTMAX_FLOPS = 5  # per score, as docs/MODEL.md counts it: maximum, difference, exponential, sum, division
LUT_RAM_BITS = 32  # of one LUT as memory with a port to read and one to write (UG574)


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention heads of one shape, computed one after the other."""

    count: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int

    @property
    def macs(self) -> int:
        return self.count * self.queries * self.keys * (self.head_dim + self.value_dim)

    @property
    def scores(self) -> int:
        return self.count * self.queries * self.keys


@dataclass(frozen=True, slots=True)
class Residence:
    """Where K and V of a head are while its queries are processed."""

    where: str  # ``kept twice``, ``kept once`` or ``read again``
    cycles: float
    kv_reads: int  # number of times that K and V are read
    waits_for_memory: bool  # whether traffic decides the cycles


@dataclass(frozen=True, slots=True)
class AttentionEngine(OnPorts):
    """The kernel in one number format; softmax and sums are always fp32."""

    kind: ClassVar[str] = "attention"
    spans_regions: ClassVar[bool] = False  # the stages exchange a tile in every cycle
    precision: str  # number format of Q, K, V and the result
    query_rows: int  # R, rows of a tile
    row_lanes: int  # U, lanes per row in each product
    exp_lanes: int  # E, exponentials per cycle
    key_block: int  # B, keys of a block
    buffer_bytes: int  # on-chip memory for K and V
    head_dim_limit: int  # largest head dimension that the tile's registers hold
    ii_cycles: float  # initiation interval of the loops
    first_word_ns: float  # from the start to the first word from memory
    ports: MemoryPorts
    costs: DataflowCosts
    efficiency: ThreePoint  # share of the lanes' peak that such kernels attain
    macs_per_dsp: float | None = None  # the board's rate, where it differs from that of the costs
    uses_uram: bool = True  # whether the buffer is UltraRAM, which some devices lack
    heads_parallel: int = 1  # H, heads that are computed at once, each with R · U lanes in each product
    reached_ports: int = 0  # ports of an array beside it, whose tensors it reads where they lie

    @property
    def name(self) -> str:
        """Name such as ``attention-32x32-int8``, or ``attention-2x32x32-int8`` with two heads at once."""
        heads = f"{self.heads_parallel}x" if self.heads_parallel > 1 else ""
        return f"attention-{heads}{self.query_rows}x{self.row_lanes}-{self.precision}"

    @property
    def lanes(self) -> int:
        """Multiply-accumulates per cycle, of both products and all heads at once."""
        return 2 * self.query_rows * self.row_lanes * self.heads_parallel

    @property
    def element_bytes(self) -> float:
        return PRECISION_BITS[self.precision] / 8

    @property
    def resources(self) -> Resources:
        """Resources of lanes, softmax, tile registers in LUTs, the buffer of K and V, ports and channels."""
        bits = PRECISION_BITS[self.precision]
        softmax = self.costs.of(
            exponential=self.exp_lanes,
            add=self.exp_lanes + self.query_rows,
            multiply=self.exp_lanes + self.query_rows,
            convert=self.exp_lanes,
            compare=self.query_rows,
            divide=1,
        )
        # Two tiles of Q and one of the result; two blocks of scores and two of exponentials.
        tile_bits = self.query_rows * (2 * bits + 32) * self.head_dim_limit
        block_bits = self.query_rows * self.key_block * 2 * (32 + bits)
        tiles = Resources(lut=(tile_bits + block_bits) / LUT_RAM_BITS)
        kv = buffer(self.buffer_bytes, 2 * self.row_lanes * bits, uses_uram=self.uses_uram)
        ports = self.costs.ports(max(self.ports.count, self.reached_ports), self.ports.port_bits)
        channels = Resources(memory_channels=self.ports.channel_count)
        lanes = self.costs.mac(self.precision, self.macs_per_dsp).times(2 * self.query_rows * self.row_lanes)
        units = (lanes + softmax + tiles + kv).times(self.heads_parallel)
        return (self.costs.control + units + ports + channels).whole()

    def estimate(self, task: Task) -> KernelEstimate | None:
        """Estimate a softmax between two products, of heads that the tile's registers hold; None for another task."""
        if task.precision != self.precision or task.on_chip_bytes or (heads := heads_of(task)) is None:
            return None
        if max(heads.head_dim, heads.value_dim) > self.head_dim_limit:
            return None
        return self.estimate_attention(heads, bytes_beside=max(0, task.border_bytes - round(self._border_bytes(heads))))

    def estimate_attention(self, heads: Heads, *, bytes_beside: int = 0) -> KernelEstimate:
        """Estimate all heads, one after the other; ``bytes_beside`` are other operands, such as a mask, read once."""
        best = self.residence(heads)
        start = self.first_word_ns * self.clock_mhz / 1e3
        beside = self.ports.stream_cycles(bytes_beside)
        busy = best.cycles + beside if best.waits_for_memory else max(best.cycles, beside)
        moved = self._border_bytes(heads) + (best.kv_reads - 1) * heads.count * self._kv_bytes(heads) + bytes_beside
        # The loops alone would attain more than most published kernels do.
        ideal = heads.macs / self.lanes
        busy = max(busy, ideal / self.efficiency.likely)
        return self.ports.estimate(
            start + busy,
            ideal_compute_cycles=ideal,
            port_bytes=moved,
            fixed_cycles=start,
            efficiency=self.efficiency,
            bound="memory" if best.waits_for_memory or beside > best.cycles else "compute",
            flops=2 * heads.macs + SOFTMAX_FLOPS * heads.scores,
            moved_bytes=moved,
            one_way_bytes=moved - heads.count * heads.queries * heads.value_dim * self.element_bytes,
        )

    def residence(self, heads: Heads) -> Residence:
        """Choose where K and V are kept: the shortest time, then the least traffic, then the least memory."""
        tiles, tile, kv = ceil(heads.queries / self.query_rows), self.tile_cycles(heads), self._kv_bytes(heads)
        rows = min(self.query_rows, heads.queries)
        first, later = (max(tile, self._traffic_cycles(load, heads, rows)) for load in (kv, 0))
        of_head = {"read again": tiles * first}
        if kv <= self.buffer_bytes:
            of_head["kept once"] = first + (tiles - 1) * later
        if 2 * kv <= self.buffer_bytes:
            of_head["kept twice"] = max(tiles * tile, self._traffic_cycles(kv, heads, heads.queries))
        compute, rounds = tiles * tile, ceil(heads.count / self.heads_parallel)
        beyond = first - tile + self._fill_cycles(heads)  # the first tile cannot load during an earlier head
        options = (
            Residence(where, rounds * cycles + beyond, tiles if where == "read again" else 1, cycles > compute)
            for where, cycles in of_head.items()
        )
        return min(options, key=lambda option: (option.cycles, option.kv_reads))

    def stages(self, keys: int, heads: Heads) -> tuple[int, int, int]:
        """Return the cycles of scores, exponentials and values for one tile and block, at one step per cycle."""
        scores = keys * ceil(heads.head_dim / self.row_lanes)
        exponentials = ceil(self.query_rows * (keys + 1) / self.exp_lanes)
        return scores, exponentials, (keys + 1) * ceil(heads.value_dim / self.row_lanes)

    def tile_cycles(self, heads: Heads) -> float:
        blocks, last_keys = divmod(heads.keys, self.key_block)
        steps = blocks * max(self.stages(self.key_block, heads))
        steps += max(self.stages(last_keys, heads)) if last_keys else 0
        return self.ii_cycles * (steps + ceil(heads.value_dim / self.row_lanes))

    def _fill_cycles(self, heads: Heads) -> float:
        """Return the extra cycles of the first block, which passes the stages one after the other."""
        stages = self.stages(min(self.key_block, heads.keys), heads)
        return self.ii_cycles * (sum(stages) - max(stages))

    def _traffic_cycles(self, kv_bytes: float, heads: Heads, rows: int) -> float:
        """Return the memory cycles for K and V and for ``rows`` rows of Q and of the result, of all heads at once."""
        queries, results = (rows * width * self.element_bytes for width in (heads.head_dim, heads.value_dim))
        at_once = min(self.heads_parallel, heads.count)
        return self.ports.duplex_cycles(at_once * (kv_bytes + queries), at_once * results)

    def _kv_bytes(self, heads: Heads) -> float:
        return heads.keys * (heads.head_dim + heads.value_dim) * self.element_bytes

    def _border_bytes(self, heads: Heads) -> float:
        rows = heads.queries + heads.keys
        return heads.count * rows * (heads.head_dim + heads.value_dim) * self.element_bytes


def heads_of(task: Task) -> Heads | None:
    """Return the heads of a fused group, or None where it is not a softmax between two products."""
    products = [layer for layer in task.layers if isinstance(layer, Matmul)]
    rows = [layer for layer in task.layers if isinstance(layer, Rowwise)]
    others = [layer for layer in task.layers if not isinstance(layer, Matmul | Rowwise | Pointwise)]
    if len(products) != 2 or others or [layer.op_type for layer in rows] != ["Softmax"]:
        return None
    scores, values = products
    if (scores.batch, scores.m, scores.n) != (values.batch, values.m, values.k) or rows[0].width != scores.n:
        return None
    return Heads(scores.batch, scores.m, scores.n, scores.k, values.n)

"""An output-stationary systolic array for matrix products and convolutions: R rows, C columns, s products per element.

There are two schedules. Simulation of the Verilog in common/fpga/rtl confirms both cycle by cycle. Plans use the
overlapped one.

*Simple*: a fold (R x C sums) fills, computes and drains before the next one begins: folds * (2R + C + ceil(K / s) - 2)
cycles (Samajdar et al., SCALE-Sim, arXiv 1811.02883, and ISPASS 2020, eq. 1).

*Overlapped*: operands of the next fold follow at once and sums leave through registers of their own, as in AutoSA
(Wang, Guo, Cong, FPGA 2021): max(ceil(K / s), ceil(R / d)) cycles per fold, and fill and drain once. A column gives d
sums per cycle: as many as fit the width of the operands that enter it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf
from operator import mul
from typing import ClassVar, Literal

from common.fpga.device.resources import Resources
from common.fpga.kernels.estimate import KernelEstimate, TimeScatter, scattered, widened
from common.fpga.kernels.ports import MemoryPorts, OnPorts
from common.fpga.kernels.systolic.array_models import ArrayTiming, ResourceModels, Serves, array_resources
from common.fpga.kernels.systolic.loading import Lanes
from common.fpga.kernels.systolic.phases import Oriented, Phases
from common.fpga.kernels.systolic.tiling import (
    BANK_WORDS,
    SUM_BITS,
    Buffer,
    Operands,
    OuterLoop,
    Tile,
    as_matmul,
    buffers,
    double_buffered_cycles,
    input_elements,
    loaded,
    operands,
    read_bytes,
    sums_per_cycle,
    tile_traffic,
    turned_elements,
    used_share,
    with_room_for,
)
from common.graphs.number_formats import PRECISION_BITS
from common.intervals import ThreePoint, combine
from common.workload.layers import Convolution, Matmul, Pointwise
from common.workload.tasks import Task

Schedule = Literal["simple", "overlapped"]
NO_EPILOGUE = Resources()
ELEMENT_BYTES: Mapping[str, float] = {name: PRECISION_BITS[name] / 8 for name in SUM_BITS}


def fold_cycles(rows: int, cols: int, steps: int, folds: int, schedule: Schedule, sums_per_cycle: int = 1) -> int:
    """Return the cycles from the first operand in to the last sum out.

    Args:
        steps: ceil(K / s), the cycles in which a fold takes operands.
        folds: ceil(M / R) * ceil(N / C).
        schedule: ``simple``: folds * (2R + C + steps - 2); ``overlapped``: R + ceil(R / d) + C + steps - 2 for one
            fold, and max(steps, ceil(R / d)) for each further fold.
        sums_per_cycle: d, sums that leave a column per cycle in the overlapped schedule.
    """
    if schedule == "simple":
        return folds * (2 * rows + cols + steps - 2)
    drain = ceil(rows / sums_per_cycle)
    return rows + drain + cols + steps - 2 + (folds - 1) * max(steps, drain)


@dataclass(frozen=True, slots=True)
class MappedProduct:
    """How an array computes one contraction."""

    matmul: Matmul  # as the array sees it: m along its rows, n along its columns
    is_transposed: bool  # whether the operands of the layer changed sides
    outer_loop: OuterLoop  # whose tiles are in the outer loop
    moved_bytes: float  # over the ports; 0 in a chain, whose traffic is that of its border
    busy_cycles: float  # of computation with operands always present
    cycles: float  # of the whole call; 0 in a chain
    kept_bytes: float = 0.0  # to and from memories on the chip that keep weights or activations between calls

    @property
    def cost(self) -> tuple[float, float, float, float]:
        return self.moved_bytes, self.busy_cycles, self.cycles, self.kept_bytes


@dataclass(frozen=True, slots=True)
class SystolicArray(OnPorts):
    """An engine of one array with its buffers and ports."""

    kind: ClassVar[str] = "systolic"
    rows: int  # R, rows of the result
    cols: int  # C, columns of the result
    simd: int  # s, products that a processing element adds per cycle
    precision: str  # fp32, bf16, int16, int8 or int4
    tile: Tile  # content of each half of the double buffers
    # Memories on the chip; those of the operands also keep the tensors between the layers of a chain
    buffers: tuple[Buffer, ...]
    ports: MemoryPorts  # ports to the card's memory; their clock is the array's
    # Likely resources of the design around the array, which count against a budget; see :func:`build_array`
    resources: Resources
    bare: Resources
    timing: ArrayTiming  # what a call takes beyond the cycles of the schedule
    scatter: TimeScatter  # how measured times scatter around that
    # Lowest, likely and highest factor of the bare resources in published arrays, by resource
    array_bands: Mapping[str, ThreePoint] = field(default_factory=dict, hash=False)
    # The same in the designs around them
    design_bands: Mapping[str, ThreePoint] = field(default_factory=dict, hash=False)
    schedule: Schedule = "overlapped"
    spans_regions: bool = False  # whether it may span several super logic regions
    dsp_cycles: int = 1  # cycles of a DSP in one cycle of the array; above 1 its DSPs are pumped
    variant: str = ""  # distinguishes it from other arrays of its size on the same board; empty for the usual one
    # Whether it is the design of the hand-off, whose loads and stores are known, and not another's
    is_generated: bool = True

    @property
    def name(self) -> str:
        """Name such as ``systolic-32x32x8-int8``, and ``systolic-32x32x8-int8-pumped`` where its DSPs are."""
        pumped, variant = "-pumped" if self.dsp_cycles > 1 else "", f"-{self.variant}" if self.variant else ""
        return f"{self.kind}-{self.rows}x{self.cols}x{self.simd}-{self.precision}{pumped}{variant}"

    @property
    def peak_macs_per_cycle(self) -> int:
        return self.rows * self.cols * self.simd

    def estimate(self, task: Task) -> KernelEstimate | None:
        """Estimate one call of products and convolutions; element-wise operators apply to the sums as they leave.

        None where the task has another number format or another kind of operator, or is a chain whose intermediate
        tensors and weights do not fit the buffers.
        """
        contractions = [layer for layer in task.layers if isinstance(layer, Matmul | Convolution)]
        if not contractions or task.precision != self.precision:
            return None
        if not all(isinstance(layer, Matmul | Convolution | Pointwise) for layer in task.layers):
            return None
        is_chain = len(contractions) > 1
        if task.on_chip_bytes > self.buffer_bytes or (is_chain and not task.on_chip_bytes):
            return None
        moved, busy, cycles, kept = self._chain(task) if is_chain else self._single(contractions[0], task).cost
        ideal = task.macs / self.peak_macs_per_cycle
        cycles = max(cycles, ideal / self.timing.array_share) + self.timing.call_cycles
        cycles += self.turning_cycles(contractions)
        # Maps outside of the array are turned there: those inside of a chain stay on the chip.
        turned = turned_elements(contractions[0])[0] + turned_elements(contractions[-1])[1]
        written = task.written_bytes - task.kept.written
        one_way = max(moved - written, written) / self.ports.bytes_per_cycle
        band = widened(self.scatter.band, self.ports.clock_factors)
        time_us = scattered(cycles / self.clock_mhz, band, max(ideal, one_way) / self.clock_cases_mhz.optimistic)
        return KernelEstimate(
            cycles=combine(lambda us: us * self.clock_mhz, time_us),
            time_us=time_us,
            bound="compute" if 2 * busy >= cycles else "memory",
            flops=2 * task.macs,
            moved_bytes=round(moved + 2 * turned * ELEMENT_BYTES[self.precision]),
            kept_bytes=round(kept),
        )

    @property
    def resource_cases(self) -> Mapping[str, ThreePoint]:
        """Amounts of the design around the array, for the resources that have an interval from published designs."""
        return _amounts(self.bare, self.design_bands)

    @property
    def array_cases(self) -> Mapping[str, ThreePoint]:
        """Amounts of the array alone."""
        return _amounts(self.bare, self.array_bands)

    @property
    def buffer_bytes(self) -> float:
        """Size of the operand buffers, both halves."""
        return sum(held.content_bytes for held in self.buffers if held.name in ("a", "b"))

    @property
    def _fill_cycles(self) -> int:
        return fold_cycles(self.rows, self.cols, 0, 1, self.schedule, self.sums_per_cycle)

    @property
    def once_cycles(self) -> int:
        """Cycles of fill and drain of a whole call; in the simple schedule each fold has its own."""
        return self._fill_cycles if self.schedule == "overlapped" else 0

    @property
    def sums_per_cycle(self) -> int:
        return sums_per_cycle(self.simd, self.precision)

    def step_cycles(self, m: int, n: int, k: int, whole_k: float) -> float:
        """Return the cycles of m x n sums over k of their ``whole_k`` products.

        A fold lasts at least as long as its column of sums takes to leave; a step counts its share of that.
        """
        folds, steps = ceil(m / self.rows) * ceil(n / self.cols), ceil(k / self.simd)
        if self.schedule == "simple":
            return folds * (steps + self._fill_cycles * k / whole_k)
        return folds * max(steps, ceil(self.rows / self.sums_per_cycle) * k / whole_k)

    def compute_cycles(self, matmul: Matmul) -> float:
        """Return the cycles of the batch with operands always present, without fill and drain of the call."""
        whole, rest = divmod(matmul.k, self.tile.depth)
        sizes = [*([(self.tile.depth, whole)] if whole else []), *([(rest, 1)] if rest else [])]
        return matmul.batch * sum(self.step_cycles(matmul.m, matmul.n, k, matmul.k) * count for k, count in sizes)

    def array_cycles(self, matmul: Matmul) -> int:
        """Return the cycles of the batch from the first operand in to the last sum out, operands always present."""
        folds = matmul.batch * ceil(matmul.m / self.rows) * ceil(matmul.n / self.cols)
        steps = ceil(matmul.k / self.simd)
        return fold_cycles(self.rows, self.cols, steps, folds, self.schedule, self.sums_per_cycle)

    def products(self, task: Task) -> tuple[MappedProduct, ...]:
        """Return how the array computes each contraction of a task; a chain's products keep their orientation."""
        layers = [layer for layer in task.layers if isinstance(layer, Matmul | Convolution)]
        if len(layers) == 1:
            return (self._single(layers[0], task),)
        matmuls = [as_matmul(layer) for layer in layers]
        return tuple(MappedProduct(matmul, False, "rows", 0.0, self.compute_cycles(matmul), 0.0) for matmul in matmuls)

    def _single(self, layer: Matmul | Convolution, task: Task) -> MappedProduct:
        matmul, element_bytes = as_matmul(layer), ELEMENT_BYTES[self.precision]
        parts = operands(layer, element_bytes, self.tile)
        # Other tensors that the group reads, such as a residual, move once, along with the result. Of the border, the
        # first operand has its own size, of which bands read some rows twice and strides none.
        others = task.border_bytes / matmul.batch - (input_elements(layer) * element_bytes + parts.b + parts.c)
        parts = replace(parts, c=parts.c + max(0.0, others))
        kept = self._kept(parts, matmul, task)
        moved, turned = parts.less(kept), Matmul(matmul.n, matmul.k, matmul.m, matmul.batch, matmul.has_weight)
        once, beside = self._bytes_once(layer, matmul, moved, task)
        kept_beside = task.kept.beside / matmul.batch if matmul.has_weight else 0.0
        plain = Oriented(layer, matmul, False, once, beside)
        across = Oriented(layer, turned, True, once.swapped, beside)
        both = (
            self._oriented(plain, moved, kept, kept_beside),
            self._oriented(across, moved.swapped, kept.swapped, kept_beside),
        )
        return min(both, key=lambda product: product.cycles)

    def _bytes_once(
        self, layer: Matmul | Convolution, matmul: Matmul, moved: Operands, task: Task
    ) -> tuple[Operands, float]:
        """Return the bytes of a product's operands and result without a halo, and of the tensors beside the result."""
        size = ELEMENT_BYTES[self.precision]
        read = read_bytes(layer, size)
        of_map = (layer.m * layer.k * size if isinstance(layer, Matmul) else read) * used_share(layer)
        written = max(0.0, matmul.m * matmul.n * size - task.kept.written / matmul.batch)
        whole = read if isinstance(layer, Matmul) else read * matmul.batch
        beside = max(0.0, task.read_bytes - task.kept.beside - whole) / matmul.batch
        return Operands(moved.a and of_map, moved.b, written), beside

    def turning_cycles(self, layers: Iterable[Matmul | Convolution]) -> float:
        """Return the cycles of a converter at the ports that turns the maps of depthwise convolutions."""
        sizes = (count * ELEMENT_BYTES[self.precision] for layer in layers for count in turned_elements(layer))
        return sum(self.ports.duplex_cycles(size, size) for size in sizes)

    def _kept(self, parts: Operands, matmul: Matmul, task: Task) -> Operands:
        """Return the part of the operands that is on the chip: weights, and activations between calls.

        A product of two activations keeps neither.
        """
        if not matmul.has_weight:
            return Operands(0.0, 0.0, 0.0)
        beside = (task.kept.beside + task.kept.written) / matmul.batch
        of_weights = parts.b if task.kept.weights else 0.0
        return Operands(parts.a if task.kept.operand else 0.0, of_weights, min(parts.c, beside))

    def _oriented(self, product: Oriented, moved: Operands, kept: Operands, kept_beside: float) -> MappedProduct:
        """Return how the array computes a product in one orientation.

        What is kept moves at a word of every port a cycle: maps are read and written, and weights have a memory of
        their own. ``kept_beside`` are the bytes of ``kept.c`` that are read.
        """
        matmul = product.matmul
        outer_loop, traffic = tile_traffic(matmul, self.tile, moved)
        on_chip = loaded(matmul, self.tile, kept, outer_loop)
        if self.is_generated:
            cycles = Phases(product, outer_loop, self.tile, self.lanes, self._tile_cycles, self.ports).cycles()
        else:  # of another's loads and stores only the bytes are known
            step_cycles = partial(self.step_cycles, whole_k=matmul.k)
            cycles = double_buffered_cycles(matmul, self.tile, traffic, step_cycles, self.ports.duplex_cycles)
        busy, kept_bytes = self.compute_cycles(matmul), matmul.batch * on_chip.total
        of_map, of_weights = (on_chip.b, on_chip.a) if product.is_transposed else (on_chip.a, on_chip.b)
        longest = max(of_map + kept_beside, of_weights, on_chip.c - kept_beside)
        of_chip = matmul.batch * longest / self.ports.bytes_per_cycle
        cycles = max(cycles, of_chip) + self.once_cycles
        moved_bytes = matmul.batch * traffic.total
        return MappedProduct(matmul, product.is_transposed, outer_loop, moved_bytes, busy, cycles, kept_bytes)

    @property
    def lanes(self) -> Lanes:
        """What enters and leaves per cycle."""
        bits = PRECISION_BITS[self.precision]
        beat = int(self.ports.count * self.ports.port_bits) // bits
        word = self.ports.elements_per_word(bits)
        return Lanes(self.rows, self.cols, self.simd, self.sums_per_cycle, beat, word)

    def _tile_cycles(self, m: int, n: int, k: int, is_last: bool) -> float:
        """Return the cycles of the folds of a tile; only the last along k has sums that leave."""
        if self.schedule == "simple":
            return self.step_cycles(m, n, k, k if is_last else inf)
        folds, drain = ceil(m / self.rows) * ceil(n / self.cols), ceil(self.rows / self.sums_per_cycle)
        return folds * max(ceil(k / self.simd), drain if is_last else 0)

    def _chain(self, task: Task) -> tuple[float, float, float, float]:
        """Return the cost of a chain, whose intermediate tensors stay on the chip."""
        products = self.products(task)
        busy = sum(product.busy_cycles for product in products)
        moving = self.ports.duplex_cycles(task.weight_bytes + task.read_bytes, task.written_bytes)
        return float(task.border_bytes), busy, max(busy, moving) + len(products) * self.once_cycles, 0.0


def _amounts(likely: Resources, bands: Mapping[str, ThreePoint]) -> dict[str, ThreePoint]:
    return {name: combine(partial(mul, getattr(likely, name)), band) for name, band in bands.items()}


def build_array(
    size: tuple[int, int, int],  # rows, columns, products per element
    precision: str,
    ports: MemoryPorts,
    macs_per_dsp: float,  # the board's rate in this format
    models: ResourceModels,
    tile: Tile | None = None,  # by default a square that takes longer to compute than to load
    spans_regions: bool = False,
    kept_bytes: float = 0.0,  # of the longest chain, which the operand buffers should hold
    room: Resources | None = None,  # where memories are chosen; by default block RAM, as deep as the tile needs
    epilogue: Resources = NO_EPILOGUE,  # behind the products; by default sums leave as they are
    serves: Serves = "network",  # or one product, that the array is tuned for
) -> SystolicArray:
    """Return an array of R x C x s with its resources; ``spans_regions`` if it may span several super logic regions."""
    stalling = replace(ports, stall_share=models.timing.stall_share)
    most_sums = BANK_WORDS if room else inf  # deeper ones take a second block in every processing element
    per_cycle = stalling.bytes_per_cycle / stalling.word_cycles
    content = tile or Tile.balanced(size, ELEMENT_BYTES[precision], per_cycle, most_sums)
    held = buffers(size, precision, content)

    def likely(memories: Iterable[Buffer]) -> Resources:
        return array_resources(size, precision, memories, stalling, macs_per_dsp, models) + epilogue

    if room:
        of_array = room.scaled(models.design_factors.inverse())
        held = with_room_for(held, kept_bytes, of_array + likely(held[2:]).times(-1))
    bare = likely(held)
    return SystolicArray(
        *size,
        precision,
        content,
        held,
        stalling,
        bare.scaled(models.design_factors),
        bare,
        models.timing,
        models.scatters[serves],
        models.array_bands,
        models.design_bands,
        spans_regions=spans_regions,
    )

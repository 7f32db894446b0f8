"""The engines that a plan may put on a board: a few sizes of each kernel model, chosen for the tasks.

The sizes are: the arrays that compute the model's products in the least time on all regions together, on one region,
and on a half and a quarter of one; the largest attention kernels that fit one region; one kernel that streams weights;
and a few for rows, pools and elements. The plan decides which of them are placed on the board.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil, prod
from typing import TypeVar

from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.device.resources import Resources
from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.dataflow.operators import INTEGERS, is_simple, widest
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine, held_elements, is_streamed, task_lane
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.array import SystolicArray, build_array
from common.fpga.kernels.systolic.array_models import Serves, dsp_count
from common.fpga.kernels.systolic.epilogue import FusedProduct, epilogue, fused_products
from common.fpga.kernels.systolic.tiling import Tile
from common.fpga.kernels.team import Team, shared
from common.graphs.number_formats import PRECISION_BITS
from common.graphs.operators import GELUS
from common.workload.layers import Matmul, Pooling, Rowwise
from common.workload.tasks import Task

Size = tuple[int, int, int]
Closing = TypeVar("Closing", SystolicArray, AttentionEngine, StreamingGemv, RowwiseEngine)

ARRAY_SHARES = (1.0, 0.5, 0.25)  # of the region with the most DSPs
ARRAY_SIDES = (4, 8, 12, 16, 24, 32, 48, 64)
ARRAY_SIMD = (1, 2, 4, 8, 16)
CLOSE_TO_LARGEST = 0.8
# Of the board, for a row-wise kernel: its streams are short beside an array's products, so it leaves room for those.
ROWWISE_SHARES = (0.125, 0.03125)
LONGEST_BUFFERED_ROW = 2**16  # elements that a unit holds; longer rows are read twice
ATTENTION_SIDES = (64, 32, 16, 8, 4)
ATTENTION_SIZES = 2  # largest first
SMALLEST_HEAD, SMALLEST_ROW = 64, 512  # least sizes of on-chip buffers, whatever the model needs
# Shares of the card's channels. Streams need bandwidth; arrays reuse what they read.
PORT_SHARES = {"array": 0.5, "streaming": 0.5, "attention": 0.25, "rowwise": 0.125}
CHANNELS_OF_MOST = 32  # channels of the card for which the following are meant; a card with twice as many allows twice
MOST_PORTS = {"array": 8, "streaming": 16, "attention": 8, "rowwise": 4}


def engines_for(
    board: Board,
    precision: str,
    models: Models,
    tasks: Sequence[Task],
    overlay: OverlayEngine | None = None,
    *,
    has_arrays: bool = True,
) -> tuple[Engine, ...]:
    """Return the engines that fit the board and can compute at least one of the tasks.

    An overlay that is built for another board is left out, and so are arrays without ``has_arrays``.
    """
    room = max(board.budgets, key=lambda budget: budget.dsp)
    systolic = arrays(board, precision, models, tasks, room) if has_arrays else []
    engines: list[Engine] = [*systolic]
    if any(shared(task, len(board.regions)) for task in tasks if task.kind == "conv"):
        engines += _teams(board, models, [array for array in systolic if not array.spans_regions])
    reached = max((int(array.ports.count) for array in systolic), default=0)
    engines += _attention(board, precision, models, tasks, room, reached)
    engines.append(streaming(board, precision, models))
    rowwise_kernels = rowwise_engines(board, precision, models, tasks)
    engines += [replace(each, reached_ports=reached) for each in rowwise_kernels]
    engines += [overlay] if overlay is not None and overlay.board == board.name else []
    return tuple(engine for engine in engines if any(engine.estimate(task) is not None for task in tasks))


def port_count(board: Board, use: str) -> int:
    most = MOST_PORTS[use] * max(1, board.memory_port_count // CHANNELS_OF_MOST)
    return min(most, max(1, round(board.memory_port_count * PORT_SHARES[use])))


def dsp_rate(board: Board, precision: str) -> float | None:
    """Return the MACs per DSP where it is not a DSP48E2, for which the costs of dataflow kernels hold."""
    return None if board.dsp_type == "DSP48E2" else board.macs_per_dsp[precision]


# --- systolic arrays --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServedTasks:
    """What the arrays of a model serve."""

    counts: Mapping[Task, int]  # tasks with products, and how often each is called
    products: frozenset[FusedProduct]  # the products with the operators behind them
    kept_bytes: float  # of the longest chain

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> ServedTasks:
        all_tasks = list(tasks)
        counts = Counter(task.nameless for task in all_tasks if task.macs and task.kind != "chain")
        return cls(counts, fused_products(counts), max((task.on_chip_bytes for task in all_tasks), default=0))

    @property
    def serves(self) -> Serves:
        return "product" if len(self.counts) == 1 else "network"


@dataclass(frozen=True)
class ArrayCatalogue:
    """Builds arrays for a model on a board, with the resources and the clock that a plan uses."""

    board: Board
    precision: str
    models: Models
    served: ServedTasks  # what the arrays compute
    _epilogues: dict[Size, Resources] = field(default_factory=dict, init=False)

    def fitting(
        self, size: Size, ports: MemoryPorts, budget: Resources, *, spans_regions: bool, tile: Tile | None = None
    ) -> SystolicArray | None:
        """Return an array at the clock at which it closes; None where it does not fit the budget."""
        board, precision, models = self.board, self.precision, self.models
        rate = board.macs_per_dsp[precision]
        if dsp_count(*size, precision, rate) > budget.dsp:
            return None
        if size not in self._epilogues:
            costs = models.dataflow.on(board.dsp_type)
            self._epilogues[size] = epilogue(size, precision, self.served.products, costs)
        array = build_array(
            *(size, precision, ports, rate, models.systolic, tile),
            spans_regions=spans_regions,
            kept_bytes=self.served.kept_bytes,
            room=budget,
            epilogue=self._epilogues[size],
            serves=self.served.serves,
        )
        return closing(array, board, models) if array.resources.fits(budget) else None


def arrays(board: Board, precision: str, models: Models, tasks: Iterable[Task], room: Resources) -> list[SystolicArray]:
    """Return the arrays with the least time for all products of the tasks: on all regions, and on shares of one."""
    served = ServedTasks.of(tasks)
    if not served.counts:
        return []
    catalogue = ArrayCatalogue(board, precision, models, served)
    ports = array_ports(board)
    quickest: dict[str, SystolicArray] = {}
    for budget, spans in array_rooms(board, room):

        def built(size: Size, budget: Resources = budget, spans: bool = spans) -> SystolicArray | None:
            return catalogue.fitting(size, ports, budget, spans_regions=spans)

        sizes = product(ARRAY_SIDES, ARRAY_SIDES, ARRAY_SIMD)
        # Larger arrays need less time, so only arrays close to the largest can be the quickest.
        if close := close_to_largest(sizes, CLOSE_TO_LARGEST, built):
            best = min(close, key=lambda array: (total_us(array, served.counts), array.resources.dsp, array.name))
            quickest.setdefault(best.name, best)
    return list(quickest.values())


def array_rooms(board: Board, room: Resources) -> list[tuple[Resources, bool]]:
    """Return the budgets in each of which one array is offered: of all regions, which it spans, and shares of one."""
    shares = [(_part(room, share), False) for share in ARRAY_SHARES]
    return [(board.total_budget, True), *shares] if len(board.regions) > 1 else shares


def close_to_largest(
    sizes: Iterable[Size], share: float, built: Callable[[Size], SystolicArray | None]
) -> list[SystolicArray]:
    """Return the arrays that have at least a share of the multipliers of the largest one that fits.

    ``built`` returns the array of a size, or None where it does not fit.
    """
    fitting: list[SystolicArray] = []
    for size in sorted(sizes, key=prod, reverse=True):
        if fitting and prod(size) < share * fitting[0].peak_macs_per_cycle:
            break
        if (array := built(size)) is not None:
            fitting.append(array)
    return fitting


def closing(engine: Closing, board: Board, models: Models) -> Closing:
    """Return the engine at the clock at which such designs close, unless the clock is given.

    Only an array crosses regions within a cycle. Ports and lanes of the others can be in one region each.
    """
    if board.is_clock_given:
        return engine
    crosses = isinstance(engine, SystolicArray) and engine.spans_regions
    luts = board.total.lut if crosses else max(region.total.lut for region in board.regions)
    share = models.systolic.clock.share(engine.resources.lut / luts, len(board.regions) if crosses else 1)
    return replace(engine, ports=engine.ports.closing(share))


def array_ports(board: Board, channels: int | None = None) -> MemoryPorts:
    return MemoryPorts.of(board.memory, channels or port_count(board, "array"), board.clock_mhz, 0.0)


def _part(room: Resources, share: float) -> Resources:
    return replace(room.times(share), memory_channels=room.memory_channels)


def total_us(array: SystolicArray, tasks: Mapping[Task, int]) -> float:
    """Return the likely time of all calls of the tasks that the array computes."""
    estimates = ((array.estimate(task), count) for task, count in tasks.items())
    return sum(estimate.time_us.likely * count for estimate, count in estimates if estimate is not None)


# --- dataflow kernels -------------------------------------------------------------------------------------------------


def streaming(board: Board, precision: str, models: Models, channels: int | None = None) -> StreamingGemv:
    """Return the streaming kernel, for products with few rows, which read their weights once."""
    timing = models.streaming.timing
    count = channels or port_count(board, "streaming")
    ports = MemoryPorts.of(board.memory, count, board.clock_mhz, timing.stall_share)
    engine = StreamingGemv(
        precision,
        ports,
        timing,
        models.dataflow.on(board.dsp_type),
        models.streaming.efficiency,
        macs_per_dsp=dsp_rate(board, precision),
        shares_channel=board.memory.channel_count == 1,
    )
    return closing(engine, board, models)


def _attention(
    board: Board, precision: str, models: Models, tasks: Iterable[Task], room: Resources, reached_ports: int
) -> list[AttentionEngine | Team]:
    served = [
        task for task in tasks if task.kind == "attention" and any(isinstance(layer, Matmul) for layer in task.layers)
    ]
    if not served:
        return []
    longest, wanted = attention_extents(served)
    sides = (attention(board, precision, models, side, longest, wanted) for side in ATTENTION_SIDES)
    built = (replace(engine, reached_ports=reached_ports) for engine in sides)
    fitting = [closing(engine, board, models) for engine in built if engine.resources.fits(room)][:ATTENTION_SIZES]
    return [*fitting, *_teams(board, models, fitting)]


def attention_extents(tasks: Iterable[Task]) -> tuple[int, int]:
    """Return the longest head, and the elements of keys and values that a kernel for these tasks holds, twice."""
    products = [layer for task in tasks for layer in task.layers if isinstance(layer, Matmul)]
    longest = max(SMALLEST_HEAD, *(min(layer.k, layer.n) for layer in products))
    return longest, 4 * max(layer.k * layer.n for layer in products)


def _teams(board: Board, models: Models, engines: Sequence[AttentionEngine | SystolicArray]) -> list[Team]:
    count, start_cycles = len(board.regions), models.systolic.timing.call_cycles
    everywhere = (engine for engine in engines if all(engine.resources.fits(budget) for budget in board.budgets))
    teams = [Team(engine, count, start_cycles) for engine in everywhere] if count > 1 else []
    return [team for team in teams if team.resources.fits(board.total_budget)][:1]


def attention(
    board: Board, precision: str, models: Models, side: int, head_dim: int, buffer_elements: int
) -> AttentionEngine:
    """Return an attention kernel of ``side`` rows with ``side`` lanes each, and a buffer for keys and values."""
    timing = models.streaming.timing
    ports = MemoryPorts.of(board.memory, port_count(board, "attention"), board.clock_mhz, timing.stall_share)
    return AttentionEngine(
        precision=precision,
        query_rows=side,
        row_lanes=side,
        exp_lanes=side,
        key_block=side,
        buffer_bytes=ceil(buffer_elements * PRECISION_BITS[precision] / 8),
        head_dim_limit=head_dim,
        ii_cycles=models.dataflow.ii_cycles.likely,
        first_word_ns=timing.first_word_ns,
        ports=ports,
        costs=models.dataflow.on(board.dsp_type),
        efficiency=models.dataflow.attention_efficiency,
        macs_per_dsp=dsp_rate(board, precision),
        uses_uram=board.total_budget.uram > 0,
    )


def rowwise_engines(board: Board, precision: str, models: Models, tasks: Iterable[Task]) -> list[RowwiseEngine]:
    """Return kernels as wide as a share of the board allows: for all tasks, and in fp32 for those with simple lanes."""
    streamed = [task for task in tasks if is_streamed(task)]
    simple = [task for task in streamed if is_simple(task_lane(task))]
    sets: list[tuple[list[Task], tuple[float, ...]]] = [(streamed, ROWWISE_SHARES)]
    if len(simple) < len(streamed) and precision not in INTEGERS:
        sets.append((simple, ROWWISE_SHARES[:1]))
    built = [rowwise(board, precision, models, served, share) for served, shares in sets if served for share in shares]
    return list({engine.name: engine for engine in built}.values())


def rowwise(
    board: Board, precision: str, models: Models, tasks: Iterable[Task], share: float, units: int | None = None
) -> RowwiseEngine:
    """Return the row-wise kernel with the most lanes that fit a share of the board, up to the width of its ports.

    Its buffers hold the longest row of the tasks. Where not even one lane fits the share, it is the smallest kernel.
    By default it has as many units as fit, each with a port.
    """
    built, budget = rowwise_sizes(board, precision, models, tasks, units), _part(board.total_budget, share)
    widest_fitting = next((engine for engine in reversed(built) if engine.resources.fits(budget)), built[0])
    return closing(widest_fitting, board, models)


def rowwise_sizes(
    board: Board, precision: str, models: Models, tasks: Iterable[Task], units: int | None = None
) -> list[RowwiseEngine]:
    """Return row-wise kernels from the fewest lanes to the most; of as many lanes, the one with fewer units is first.

    Each is at the board's clock. By default their units are one to as many as the board allows, each with a port.
    """
    served, counts = list(tasks), [units] if units else halves(port_count(board, "rowwise"))
    sizes = product(counts, halves(board.memory.port_bits // PRECISION_BITS[precision]))
    ordered = sorted(sizes, key=lambda size: (size[0] * size[1], size[0]))
    return [_rowwise(board, precision, models, served, *size) for size in ordered]


def halves(most: int) -> list[int]:
    """Return ``most``, half of it, and so on down to one."""
    return [most >> times for times in range(most.bit_length())]


def _rowwise(
    board: Board, precision: str, models: Models, tasks: Sequence[Task], units: int, lanes: int
) -> RowwiseEngine:
    timing = models.streaming.timing
    layers = [layer for task in tasks for layer in task.layers]
    rows = [layer.width for layer in layers if isinstance(layer, Rowwise) and layer.op_type not in GELUS]
    windows = [ceil(held_elements(layer) / (2 * units)) for layer in layers if isinstance(layer, Pooling)]
    return RowwiseEngine(
        precision=precision,
        lane=widest(map(task_lane, tasks)),
        lanes=lanes,
        row_limit=min(LONGEST_BUFFERED_ROW, max([SMALLEST_ROW, *rows, *windows])),
        # An integer sum is ready in the next cycle, whereas the loop of a floating-point sum waits for its adder.
        ii_cycles=1.0 if precision in INTEGERS else models.dataflow.ii_cycles.likely,
        row_drain_cycles=timing.row_drain_cycles,
        first_word_ns=timing.first_word_ns,
        ports=MemoryPorts.of(board.memory, units, board.clock_mhz, timing.stall_share),
        costs=models.dataflow.on(board.dsp_type),
        efficiency=models.dataflow.rowwise_efficiency,
    )

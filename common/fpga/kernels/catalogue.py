"""The engines that a plan may put on a board: of each kernel model a few sizes, shaped for the work at hand.

Which sizes: the array that computes the products of the model soonest, over all regions together and within one region,
a half and a quarter of one; the largest attention kernels that fit one region; one kernel that streams weights, and one
for rows. The plan decides which of them stand on the board.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import ceil

from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.device.resources import Resources
from common.fpga.kernels.attention import AttentionEngine
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.overlay import OverlayEngine
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.rowwise import RowwiseEngine
from common.fpga.kernels.streaming import StreamingGemv
from common.fpga.kernels.systolic import SystolicArray, build_array
from common.number_formats import PRECISION_BITS
from common.workload.layers import Matmul, Rowwise
from common.workload.tasks import Task

ARRAY_SHARES = (1.0, 0.5, 0.25)  # of the roomiest region
ARRAY_SIDES = (4, 8, 12, 16, 24, 32, 48, 64)
ARRAY_SIMD = (1, 2, 4, 8, 16)
CLOSE_TO_LARGEST = 0.8
MOST_ROW_LANES = 16  # a lane has an exponential and a divider: more cost DSPs than rows are worth
ATTENTION_SIDES = (64, 32, 16, 8, 4)
ATTENTION_SIZES = 3  # largest first
SMALLEST_HEAD, SMALLEST_ROW = 64, 512  # sizes of on-chip buffers, where the model asks for less
# Of the card's channels: many of HBM, few of DDR. Streams need bandwidth, arrays reuse what they read.
PORT_SHARES = {"array": 0.5, "streaming": 0.5, "attention": 0.25, "rowwise": 0.125}
MOST_PORTS = {"array": 8, "streaming": 16, "attention": 8, "rowwise": 4}


def engines_for(
    board: Board, precision: str, models: Models, tasks: Sequence[Task], overlay: OverlayEngine | None = None
) -> tuple[Engine, ...]:
    """What could stand on the board and be of use to at least one of the tasks.

    Args:
        board: clock, budgets, memory.
        precision: number format of the kernels.
        models: coefficients of the kernel models.
        tasks: what the model asks of kernels.
        overlay: one more, that was asked for; it counts on its own board alone.
    """
    room = max(board.budgets, key=lambda budget: budget.dsp)
    found: list[Engine] = [*arrays(board, precision, models, tasks, room)]
    found += _attention(board, precision, models, tasks, room)
    found.append(streaming(board, precision, models))
    found.append(rowwise(board, precision, models, tasks))
    found += [overlay] if overlay is not None and overlay.config.board == board.name else []
    return tuple(engine for engine in found if any(engine.estimate(task) is not None for task in tasks))


def port_count(board: Board, use: str) -> int:
    """Ports of an engine: a share of the card's channels. Those of a shared memory are counted as ports to it."""
    return min(MOST_PORTS[use], max(1, round(board.memory_port_count * PORT_SHARES[use])))


def dsp_rate(board: Board, precision: str) -> float | None:
    """MACs of one DSP, where it is not the DSP48E2 that the costs of dataflow kernels are of."""
    return None if board.dsp_type == "DSP48E2" else board.macs_per_dsp[precision]


# --- systolic arrays --------------------------------------------------------------------------------------------------


def arrays(board: Board, precision: str, models: Models, tasks: Iterable[Task], room: Resources) -> list[SystolicArray]:
    """The array that needs the least time for all products of the tasks: on all regions, and on shares of one."""
    heavy = Counter(task.nameless for task in tasks if task.macs and task.kind != "chain")
    if not heavy:
        return []
    rate, ports = board.macs_per_dsp[precision], array_ports(board)
    rooms = [(_part(room, share), False) for share in ARRAY_SHARES]
    if len(board.regions) > 1:
        rooms.insert(0, (board.total_budget, True))
    found: dict[str, SystolicArray] = {}
    for there, spans in rooms:
        built = (
            build_array(size, precision, ports, rate, models.systolic, spans_regions=spans)
            for size in product(ARRAY_SIDES, ARRAY_SIDES, ARRAY_SIMD)
        )
        fitting = [array for array in built if array.resources.fits(there)]
        # Time falls with size: only arrays that fill most of the room can be the soonest.
        largest = max((array.peak_macs_per_cycle for array in fitting), default=0)
        close = [array for array in fitting if array.peak_macs_per_cycle >= CLOSE_TO_LARGEST * largest]
        if close:
            best = min(close, key=lambda array: (_total_us(array, heavy), array.resources.dsp, array.name))
            found.setdefault(best.name, best)
    return list(found.values())


def array_ports(board: Board, channels: int | None = None) -> MemoryPorts:
    """The ports of an array."""
    return MemoryPorts.of(board.memory, channels or port_count(board, "array"), board.clock_mhz, 0.0)


def _part(room: Resources, share: float) -> Resources:
    """A share of the logic, with all the channels."""
    part = room.times(share)
    return Resources(part.lut, part.ff, part.bram36, part.uram, part.dsp, room.memory_channels)


def _total_us(array: SystolicArray, tasks: Mapping[Task, int]) -> float:
    """Likely time of all of them, each as often as it is there."""
    estimates = ((array.estimate(task), count) for task, count in tasks.items())
    return sum(estimate.time_us.likely * count for estimate, count in estimates if estimate is not None)


# --- dataflow kernels -------------------------------------------------------------------------------------------------


def streaming(board: Board, precision: str, models: Models, channels: int | None = None) -> StreamingGemv:
    """The kernel for products with few rows, which read their weights once."""
    timing = models.streaming.timing
    count = channels or port_count(board, "streaming")
    ports = MemoryPorts.of(board.memory, count, board.clock_mhz, timing.stall_share)
    return StreamingGemv(
        precision,
        ports,
        timing,
        models.dataflow,
        models.streaming.efficiency,
        macs_per_dsp=dsp_rate(board, precision),
        shares_channel=board.memory.channel_count == 1,
    )


def _attention(
    board: Board, precision: str, models: Models, tasks: Iterable[Task], room: Resources
) -> list[AttentionEngine]:
    products = [
        layer for task in tasks if task.kind == "attention" for layer in task.layers if isinstance(layer, Matmul)
    ]
    if not products:
        return []
    longest = max(SMALLEST_HEAD, *(min(layer.k, layer.n) for layer in products))
    wanted = max(layer.k * layer.n for layer in products) * 4  # keys and values, twice
    built = (attention(board, precision, models, side, longest, wanted) for side in ATTENTION_SIDES)
    fitting = [engine for engine in built if engine.resources.fits(room)]
    return fitting[:ATTENTION_SIZES]


def attention(
    board: Board, precision: str, models: Models, side: int, head_dim: int, buffer_elements: int
) -> AttentionEngine:
    """A kernel of ``side`` rows and as many lanes a row, with room for keys and values of one head, twice."""
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
        costs=models.dataflow,
        efficiency=models.dataflow.efficiency,
        macs_per_dsp=dsp_rate(board, precision),
        uses_uram=board.total_budget.uram > 0,
    )


def rowwise(board: Board, precision: str, models: Models, tasks: Iterable[Task]) -> RowwiseEngine:
    """A kernel for softmax, normalizations and element-wise work, as wide as its ports, for the longest row."""
    timing = models.streaming.timing
    widths = [layer.width for task in tasks for layer in task.layers if isinstance(layer, Rowwise)]
    ports = MemoryPorts.of(board.memory, port_count(board, "rowwise"), board.clock_mhz, timing.stall_share)
    return RowwiseEngine(
        precision=precision,
        lanes=min(MOST_ROW_LANES, ports.elements_per_word(PRECISION_BITS[precision])),
        row_limit=max([SMALLEST_ROW, *widths]),
        ii_cycles=models.dataflow.ii_cycles.likely,
        row_drain_cycles=timing.row_drain_cycles,
        first_word_ns=timing.first_word_ns,
        ports=ports,
        costs=models.dataflow,
        efficiency=models.dataflow.efficiency,
    )

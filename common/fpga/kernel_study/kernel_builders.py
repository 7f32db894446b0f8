"""From what is asked of one kernel to an engine for it, one of those that a plan may put on the board."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from common.errors import CommandLineError
from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.device.resources import RESOURCE_NAMES, Resources
from common.fpga.kernels import catalogue
from common.fpga.kernels.attention import AttentionEngine, Heads
from common.fpga.kernels.catalogue import streaming
from common.fpga.kernels.estimate import Engine, KernelEstimate
from common.fpga.kernels.ports import MemoryPorts
from common.number_formats import PRECISION_BITS
from common.workload.layers import Rowwise
from common.workload.tasks import Task

LARGEST = 10**7  # of one extent
MOST_CHANNELS = 16  # of the kernels of Vitis BLAS; a plan, in which kernels share them, gives fewer
MOST_BUFFER_ELEMENTS = 4 * 2**20  # of keys and values; heads beyond it are read again
MOST_ROW = 2**16  # elements of a row that a unit holds; longer ones are read twice
ROWWISE = {"layernorm": "LayerNormalization", "softmax": "Softmax", "gelu": "Gelu"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for. ``sizes`` holds extents, pairs and what else the kind takes, by flag."""

    kind: str
    precision: str
    channels: int | None
    sizes: Mapping[str, Any]

    def size(self, name: str, default: int | None = None) -> int:
        """One extent.

        Raises:
            CommandLineError: it is not given and has no default, or is too large.
        """
        value = self.sizes.get(name, default)
        flag = f"--{name.replace('_', '-')}"
        if value is None:
            raise CommandLineError(flag, "is missing", f"see python -m common.fpga estimate {self.kind} --help")
        if value > LARGEST:
            raise CommandLineError(flag, f"{value} is above {LARGEST:,}", "no kernel of this kind is so large")
        return int(value)

    def channels_up_to(self, there: int) -> int:
        """As many as asked for, else what a kernel with the board to itself takes."""
        return self.channels or max(1, min(MOST_CHANNELS, there))

    def bytes_of(self, elements: int) -> int:
        """Bytes of so many elements at the number format."""
        return -(-elements * PRECISION_BITS[self.precision] // 8)


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel for what was asked, its estimate, what its operands take of the memory, and what was assumed for it."""

    engine: Engine
    estimate: KernelEstimate
    operand_bytes: int
    assumptions: tuple[str, ...]


Builder = Callable[[Asked, Board, Models], Built]


def shortage(engine: Engine, board: Board) -> dict[str, tuple[float, float]]:
    """What is needed and what there is, of each kind of which there is too little up to where timing closes.

    Of the whole board, or of the region that lacks least if the engine must not span them.
    """
    budgets = (board.total_budget,) if engine.spans_regions else board.budgets
    return min((_shortage(engine.resources, budget) for budget in budgets), key=len)


def _shortage(needed: Resources, there: Resources) -> dict[str, tuple[float, float]]:
    pairs = {name: (getattr(needed, name), getattr(there, name)) for name in RESOURCE_NAMES}
    return {name: pair for name, pair in pairs.items() if pair[0] > pair[1] * (1 + 1e-9)}


def quickest(found: Iterable[Built], board: Board) -> Built:
    """Of kernels that fit the quickest, and of those the one with fewest DSPs; if none fits, the smallest."""
    every = list(found)
    fitting = [built for built in every if not shortage(built.engine, board)]
    if not fitting:
        return min(every, key=lambda built: built.engine.resources.dsp)
    return min(fitting, key=lambda built: (built.estimate.time_us.likely, built.engine.resources.dsp))


def gemv(asked: Asked, board: Board, models: Models) -> Built:
    """The streaming kernel; one channel is left to the vector."""
    engine = streaming(board, asked.precision, models, asked.channels_up_to(board.memory_port_count - 1))
    rows, columns, vectors = asked.size("rows"), asked.size("cols"), asked.size("vectors", 1)
    fitted = models.streaming
    conditions = f"{fitted.ports.count} channels at {fitted.ports.clock_mhz:g} MHz"
    return Built(
        engine,
        engine.estimate_gemv(rows, columns, vectors),
        asked.bytes_of(rows * columns + vectors * (rows + columns)),
        (
            f"the model is fitted on a U50 with {conditions}; what was published names no element type, taken to be "
            f"{fitted.precision}",
            f"{engine.lanes_per_port} multiply-accumulates per port and cycle; the vector has a port of its own",
        ),
    )


def attention(asked: Asked, board: Board, models: Models) -> Built:
    """The quickest of the kernels that a plan may have, with buffers for just these heads."""
    queries, head_dim = asked.size("tokens"), asked.size("head_dim", 64)
    keys, value_dim = asked.size("keys", queries), asked.size("value_dim", head_dim)
    heads = Heads(asked.size("heads", 1), queries, keys, head_dim, value_dim)
    longest = max(head_dim, value_dim)
    elements = min(2 * keys * (head_dim + value_dim), MOST_BUFFER_ELEMENTS)  # keys and values, twice
    engines = (
        catalogue.attention(board, asked.precision, models, side, longest, elements)
        for side in catalogue.ATTENTION_SIDES
    )
    return quickest((_attention(asked, board, heads, engine) for engine in engines), board)


def _attention(asked: Asked, board: Board, heads: Heads, built: AttentionEngine) -> Built:
    engine = replace(built, ports=_ports(asked, board, built.ports))
    return Built(
        engine,
        engine.estimate_attention(heads),
        asked.bytes_of(heads.count * (heads.queries + heads.keys) * (heads.head_dim + heads.value_dim)),
        (
            f"the scores stay on the chip; K and V of a head are {engine.residence(heads).where}",
            f"a step of the loops takes {engine.ii_cycles:g} cycles, as kernels written by hand reach it",
            "softmax is computed in fp32; no mask",
        ),
    )


def rowwise(asked: Asked, board: Board, models: Models) -> Built:
    """The row-wise kernel of the plan."""
    rows, width = asked.size("rows"), asked.size("width")
    moved = asked.bytes_of(rows * width)
    layer = Rowwise(ROWWISE[asked.kind], rows, width)
    task = Task(asked.kind, "rowwise", (layer,), asked.precision, 0, moved, moved)
    built = catalogue.rowwise(board, asked.precision, models, [task])
    engine = replace(built, row_limit=min(built.row_limit, MOST_ROW), ports=_ports(asked, board, built.ports))
    if (found := engine.estimate(task)) is None:
        raise CommandLineError(asked.kind, "cannot be computed by the row-wise kernel")
    return Built(engine, found, 2 * moved, ("arithmetic is fp32, what crosses the ports is in the number format",))


def _ports(asked: Asked, board: Board, usual: MemoryPorts) -> MemoryPorts:
    """As many as asked for."""
    if asked.channels is None:
        return usual
    return MemoryPorts.of(board.memory, asked.channels, board.clock_mhz, usual.stall_share)

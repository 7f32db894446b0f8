"""Builders of single kernels: each turns a request into an engine of the catalogue, with its estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, isqrt, prod
from typing import Any

from common.fpga import engine_catalogue as catalogue
from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.device.resources import RESOURCE_NAMES
from common.fpga.kernel_study.quantities import KERNELS
from common.fpga.kernels.dataflow.attention import AttentionEngine, Heads
from common.fpga.kernels.estimate import Engine, KernelEstimate
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.array import ELEMENT_BYTES, SystolicArray, build_array
from common.fpga.kernels.systolic.epilogue import epilogue, fused_products
from common.graphs.number_formats import PRECISION_BITS
from common.messages.errors import UnusableValueError
from common.workload.layers import Convolution, Matmul, Rowwise
from common.workload.tasks import Task

LARGEST_EXTENT = 10**7
LARGEST_SIDE = 1024  # of an array
LEAST_SHARE = 0.5  # of the multipliers of the largest array that fits
MOST_CHANNELS = 16  # as the kernels of Vitis BLAS have; in a plan kernels share the channels and each gets fewer
MOST_BUFFER_ELEMENTS = 4 * 2**20  # keys and values of one head; a larger head is read again for every tile
MOST_LANES = 2**16  # of one product of an attention kernel
ROWWISE_SHARE = 0.5  # of the board, for a row-wise kernel that is alone on it
ROWWISE = {"layernorm": "LayerNormalization", "softmax": "Softmax", "gelu": "Gelu"}


@dataclass(frozen=True, slots=True)
class KernelRequest:
    kind: str  # a key of ``KERNELS``
    precision: str
    channels: int | None  # memory channels of the operands; None for as many as the kernel usually has
    sizes: Mapping[str, Any]  # the other values by the name of the quantity; quantities without a value are absent

    def size(self, name: str, default: int | None = None) -> int:
        """Return one extent.

        Raises:
            UnusableValueError: it is neither given nor has a default, or it is too large.
        """
        value = self.sizes.get(name, default)
        if value is None:
            quantities = ", ".join(quantity.name for quantity in KERNELS[self.kind].quantities)
            raise UnusableValueError(name, "is missing", f"{self.kind} takes {quantities}")
        if value > LARGEST_EXTENT:
            raise UnusableValueError(name, f"{value} is above {LARGEST_EXTENT:,}", "no kernel of this kind is so large")
        return int(value)

    def channels_up_to(self, available: int) -> int:
        """Return the requested channels, else as many as a kernel that is alone on the board takes."""
        return self.channels or max(1, min(MOST_CHANNELS, available))

    def bytes_of(self, elements: int) -> int:
        return -(-elements * PRECISION_BITS[self.precision] // 8)


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """A requested kernel as an engine, with its estimate, the size of its operands and the assumptions behind it."""

    engine: Engine
    estimate: KernelEstimate
    operand_bytes: int
    assumptions: tuple[str, ...]


Builder = Callable[[KernelRequest, Board, Models], BuiltKernel]


def shortage(engine: Engine, board: Board) -> dict[str, tuple[float, float]]:
    """Return the needed and the available amount of each resource that the budget lacks.

    The budget is that of the whole board. An engine that cannot span regions has the budget of the region that lacks
    least.
    """
    found = []
    for budget in (board.total_budget,) if engine.spans_regions else board.budgets:
        pairs = {name: (getattr(engine.resources, name), getattr(budget, name)) for name in RESOURCE_NAMES}
        found.append({name: pair for name, pair in pairs.items() if pair[0] > pair[1] * (1 + 1e-9)})
    return min(found, key=len)


def quickest(kernels: Iterable[BuiltKernel], request: KernelRequest, board: Board) -> BuiltKernel:
    """Return the kernel with the shortest time of those that fit; of equal times, the one with fewer DSPs.

    Raises:
        UnusableValueError: none fits the board.
    """
    candidates = list(kernels)
    fitting = [built for built in candidates if not shortage(built.engine, board)]
    if not fitting:
        raise _too_small(min(candidates, key=lambda built: built.engine.resources.lut).engine, request, board)
    return min(fitting, key=lambda built: (built.estimate.time_us.likely, built.engine.resources.dsp))


def _too_small(smallest: Engine, request: KernelRequest, board: Board) -> UnusableValueError:
    name, (needed, available) = next(iter(shortage(smallest, board).items()))
    lacking = f"the smallest, {smallest.name}, needs {needed:.10g} {name} of {available:.10g}"
    problem = f"{board.name} holds no {request.kind} kernel of {request.precision}: {lacking}"
    return UnusableValueError("board, dtype", problem, "give a larger board or a narrower number format")


def gemv(request: KernelRequest, board: Board, models: Models) -> BuiltKernel:
    """Build the streaming kernel with the requested channels, or the most that fit; the vector gets one more."""
    most = request.channels_up_to(board.memory_port_count - 1)
    counts = [most] if request.channels else catalogue.halves(most)
    engines = [catalogue.streaming(board, request.precision, models, count) for count in counts]
    engine = next((engine for engine in engines if request.channels or not shortage(engine, board)), None)
    if engine is None:
        raise _too_small(engines[-1], request, board)
    rows, columns, vectors = request.size("rows"), request.size("cols"), request.size("vectors", 1)
    fitted = models.streaming
    conditions = f"{fitted.ports.count} channels at {fitted.ports.clock_mhz:g} MHz"
    return BuiltKernel(
        engine,
        engine.estimate_gemv(rows, columns, vectors),
        request.bytes_of(rows * columns + vectors * (rows + columns)),
        (
            f"the model is fitted to a U50 with {conditions}; the publication names no element type, "
            f"{fitted.precision} is assumed",
            f"{engine.lanes_per_port} multiply-accumulates per port and cycle; the vector has a port of its own",
        ),
    )


def attention(request: KernelRequest, board: Board, models: Models) -> BuiltKernel:
    """Build the quickest kernel that a plan may have, or one of the requested lanes, for exactly these heads."""
    queries, head_dim = request.size("tokens"), request.size("head_dim", 64)
    keys, value_dim = request.size("keys", queries), request.size("value_dim", head_dim)
    heads = Heads(request.size("heads", 1), queries, keys, head_dim, value_dim)
    longest = max(head_dim, value_dim)
    kept_twice = min(2 * keys * (head_dim + value_dim), MOST_BUFFER_ELEMENTS)
    engines = (
        replace(
            catalogue.attention(board, request.precision, models, rows, longest, elements),
            row_lanes=lanes // rows,
            heads_parallel=request.size("heads_parallel", 1),
        )
        for (rows, lanes), elements in product(_attention_sizes(request), (kept_twice, ceil(kept_twice / 2), 0))
    )
    if request.channels is not None:
        stall_share = models.streaming.timing.stall_share
        ports = MemoryPorts.of(board.memory, request.channels, board.clock_mhz, stall_share)
        engines = (replace(engine, ports=ports) for engine in engines)
    placed = (catalogue.closing(engine, board, models) for engine in engines)
    return quickest((_attention(request, heads, engine) for engine in placed), request, board)


def _attention_sizes(request: KernelRequest) -> Iterator[tuple[int, int]]:
    """Yield rows of a tile and lanes of a product: those of a plan, or the requested lanes as near to a square."""
    lanes = request.size("lanes", 0)
    if not lanes:
        yield from ((side, side * side) for side in catalogue.ATTENTION_SIDES)
        return
    if lanes > MOST_LANES:
        raise UnusableValueError("lanes", f"{lanes} is above {MOST_LANES:,}", "no device has as many multipliers")
    yield max(rows for rows in range(1, isqrt(lanes) + 1) if lanes % rows == 0), lanes


def _attention(request: KernelRequest, heads: Heads, engine: AttentionEngine) -> BuiltKernel:
    return BuiltKernel(
        engine,
        engine.estimate_attention(heads),
        request.bytes_of(heads.count * (heads.queries + heads.keys) * (heads.head_dim + heads.value_dim)),
        (
            f"the scores stay on the chip; K and V of a head are {engine.residence(heads).where}",
            f"a loop step takes {engine.ii_cycles:g} cycles; the likely time is at best that of published kernels, "
            f"{engine.efficiency.likely:.2g} of the peak of their multipliers",
            "softmax is computed in fp32; no mask",
        ),
    )


def rowwise(request: KernelRequest, board: Board, models: Models) -> BuiltKernel:
    rows, width = request.size("rows"), request.size("width")
    moved = request.bytes_of(rows * width)
    layer = Rowwise(ROWWISE[request.kind], rows, width)
    task = Task(request.kind, "rowwise", (layer,), request.precision, 0, moved, moved)
    engine = catalogue.rowwise(board, request.precision, models, [task], ROWWISE_SHARE, request.channels)
    if not request.channels and shortage(engine, board):
        raise _too_small(engine, request, board)
    if (estimate := engine.estimate(task)) is None:
        raise UnusableValueError("rows, width", f"the row-wise kernel cannot compute this {request.kind}")
    arithmetic = "32-bit integers and tables" if engine.is_integer else "fp32"
    return BuiltKernel(
        engine, estimate, 2 * moved, (f"arithmetic is {arithmetic}; operands cross the ports in the number format",)
    )


# --- systolic arrays --------------------------------------------------------------------------------------------------


def gemm(request: KernelRequest, board: Board, models: Models) -> BuiltKernel:
    """Build an array for ``batch`` products of one size; the second operand of a single product is a weight."""
    m, k, n = (request.size(name) for name in ("m", "k", "n"))
    batch = request.size("batch", 1)
    layer = Matmul(m, k, n, batch, has_weight=batch == 1)
    weights, read, written = (request.bytes_of(elements) for elements in (batch * k * n, batch * m * k, batch * m * n))
    task = Task("gemm", "gemm", (layer,), request.precision, weights, read, written)
    return _on_an_array(request, board, models, task)


def conv(request: KernelRequest, board: Board, models: Models) -> BuiltKernel:
    """Build an array for a convolution, which it computes as a product of pixels and windows."""
    layer = convolution(request)
    weights = layer.out_channels * (layer.in_channels // layer.groups) * layer.kernel_height * layer.kernel_width
    pixels = (layer.in_height * layer.in_width, layer.out_height * layer.out_width)
    read, written = layer.batch * layer.in_channels * pixels[0], layer.batch * layer.out_channels * pixels[1]
    sizes = request.bytes_of(weights), request.bytes_of(read), request.bytes_of(written)
    return _on_an_array(request, board, models, Task("conv", "conv", (layer,), request.precision, *sizes))


def convolution(request: KernelRequest) -> Convolution:
    """Return the convolution with the extents of its output, which follow from window, stride and padding.

    Raises:
        UnusableValueError: the groups do not divide the channels, or the window is larger than the padded input.
    """
    height = request.size("height")
    width, groups = request.size("width", height), request.size("groups", 1)
    window, stride = request.sizes["kernel"], request.sizes["stride"]
    dilation, padding = request.sizes["dilation"], request.sizes.get("padding")
    reach = tuple(spread * (size - 1) + 1 for size, spread in zip(window, dilation, strict=True))
    pads = (reach[0] // 2, reach[1] // 2) if padding is None else (request.size("padding"),) * 2
    channels = (request.size("in_channels"), request.size("out_channels"))
    if channels[0] % groups or channels[1] % groups:
        raise UnusableValueError("groups", f"{groups} does not divide {channels[0]} and {channels[1]} channels")
    extents = zip((height, width), reach, stride, pads, strict=True)
    out_height, out_width = ((extent + 2 * pad - size) // step + 1 for extent, size, step, pad in extents)
    if min(out_height, out_width) < 1:
        raise UnusableValueError("kernel", f"{window[0]}x{window[1]} is larger than the padded input")
    return Convolution(
        batch=request.size("batch", 1),
        in_channels=channels[0],
        in_height=height,
        in_width=width,
        out_channels=channels[1],
        out_height=out_height,
        out_width=out_width,
        kernel_height=window[0],
        kernel_width=window[1],
        stride_height=stride[0],
        stride_width=stride[1],
        groups=groups,
        dilation_height=dilation[0],
        dilation_width=dilation[1],
    )


def _on_an_array(request: KernelRequest, board: Board, models: Models, task: Task) -> BuiltKernel:
    if request.precision not in ELEMENT_BYTES:
        known = ", ".join(ELEMENT_BYTES)
        raise UnusableValueError(
            "dtype", f"no systolic array of {request.precision} is modelled", f"give one of {known}"
        )
    given, simd = request.sizes.get("array"), request.sizes.get("simd")
    if max(*(given or (1, 1)), simd or 1) > LARGEST_SIDE:
        raise UnusableValueError("array, simd", f"a side is above {LARGEST_SIDE}", "no device holds such an array")
    if given:
        array = _array((*given, simd or 1), request, board, models, task)
        # A large array spans regions, as those of AutoSA do.
        array = replace(array, spans_regions=True) if shortage(array, board) else array
        return _built(array, request, board, models, task)
    sides, depths = catalogue.ARRAY_SIDES, catalogue.ARRAY_SIMD if simd is None else (simd,)
    sizes = list(product(sides, sides, depths))

    def fitting(size: catalogue.Size) -> SystolicArray | None:
        array = _array(size, request, board, models, task)
        return None if shortage(array, board) else array

    # Where none fits, the smallest one says what it lacks.
    large = catalogue.close_to_largest(sizes, LEAST_SHARE, fitting) or [
        _array(min(sizes, key=prod), request, board, models, task)
    ]
    return quickest((_built(array, request, board, models, task) for array in large), request, board)


def _array(size: catalogue.Size, request: KernelRequest, board: Board, models: Models, task: Task) -> SystolicArray:
    ports = catalogue.array_ports(board, request.channels_up_to(board.memory_port_count))
    behind = epilogue(size, request.precision, fused_products([task]), models.dataflow.on(board.dsp_type))
    rate = board.macs_per_dsp[request.precision]
    return build_array(size, request.precision, ports, rate, models.systolic, epilogue=behind, serves="product")


def _built(array: SystolicArray, request: KernelRequest, board: Board, models: Models, task: Task) -> BuiltKernel:
    engine = catalogue.closing(array, board, models)
    if (estimate := engine.estimate(task)) is None:
        raise UnusableValueError("array", f"a systolic array cannot compute this {request.kind}")
    tile = engine.tile
    assumptions = (
        f"{engine.rows} x {engine.cols} processing elements of {engine.simd} products each, output-stationary, "
        f"{engine.schedule} schedule",
        f"tiles on the chip: {tile.rows} x {tile.cols} sums; operands are {tile.depth} deep and double-buffered",
    )
    return BuiltKernel(engine, estimate, task.border_bytes, assumptions)

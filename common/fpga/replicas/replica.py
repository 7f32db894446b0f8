"""A replica: a complete accelerator of one array and the engines beside it, sized to a share of one region."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from math import inf, prod

from common.fpga.coefficients import Models
from common.fpga.device.board import Board, DeviceRegion
from common.fpga.device.resources import Resources, total
from common.fpga.engine_catalogue import (
    ARRAY_SIDES,
    ARRAY_SIMD,
    ATTENTION_SIDES,
    CLOSE_TO_LARGEST,
    Size,
    attention,
    attention_extents,
    close_to_largest,
    closing,
    port_count,
    rowwise_sizes,
    total_us,
)
from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine, is_streamed
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.ports import MemoryPorts
from common.fpga.kernels.systolic.array import ELEMENT_BYTES, SystolicArray, build_array
from common.fpga.kernels.systolic.array_models import dsp_count
from common.fpga.kernels.systolic.epilogue import epilogue, fused_products
from common.fpga.kernels.systolic.tiling import Tile
from common.fpga.replicas.frame import Frame
from common.workload.tasks import Task, batched

PER_REGION = (1, 2, 3, 4, 5, 6, 8)
SIZES_OF_ROOM = 2  # arrays that are tried in each room, of each kind: those with the least time for the products
BESIDE_TIME = 1 / 3  # of the array's time at most, so that a quicker array than the likely one does not wait for it
QUICKER = (1.0, BESIDE_TIME)  # of the time of the first array of a room, for engines that other arrays leave room for
TRIED_FRAMES = 8  # frames of a call by which engines of one room are compared


@dataclass(frozen=True, slots=True)
class Replica:
    """Engines that compute whole frames together, each working on another frame."""

    main: SystolicArray | OverlayEngine
    # Engines for what it does not compute: attention, and rows, pools and elements
    beside: tuple[AttentionEngine | RowwiseEngine, ...]
    room: Resources
    in_region: int  # most replicas in one region, by which the memory's rate is divided
    # Memories that keep activations between calls, and those that keep weights
    maps: Resources = Resources()  # noqa: RUF009 - frozen
    weights: Resources = Resources()  # noqa: RUF009 - frozen

    @property
    def engines(self) -> tuple[Engine, ...]:
        return (self.main, *self.beside)

    @property
    def name(self) -> str:
        return self.main.name

    @property
    def fabric(self) -> Resources:
        """Resources of all engines, without memory channels, which belong to no region."""
        engines = total(engine.resources for engine in self.engines)
        return replace(engines + self.maps + self.weights, memory_channels=0.0)

    def left(self, board: Board, counts: Mapping[str, int]) -> Resources:
        """Return what each replica may still take: the least over the regions, which hold ``counts`` of them."""
        rooms = [
            board.budget(region).times(1 / count) for region in board.regions if (count := counts.get(region.name, 0))
        ]
        return reduce(Resources.least, rooms, rooms[0] if rooms else self.room) + self.fabric.times(-1)

    def counts(self, board: Board) -> dict[str, int]:
        """Return how many replicas each region of the board holds, by its name."""
        return {
            region.name: next(count for count in range(self.in_region, -1, -1) if self._fits(board, region, count))
            for region in board.regions
        }

    def _fits(self, board: Board, region: DeviceRegion, count: int) -> bool:
        """Return whether a region holds ``count`` replicas; a vendor's engine alone needs no room for timing."""
        is_closed = isinstance(self.main, OverlayEngine) and count == 1
        return self.fabric.times(count).fits(region.usable if is_closed else board.budget(region))


def replicas_for(
    board: Board, precision: str, models: Models, frame: Frame, overlay: OverlayEngine | None
) -> Iterator[Replica]:
    """Yield the replicas that may fill the board: arrays in shares of a region, and the vendor's engine that is given.

    Each array is sized to one region's budget, so its clock is that of designs in one region. The board's memory is
    divided into equal shares: a replica has its own channels, or an equal part of one.
    """
    builder = _Builder(board, precision, models, [task.nameless for task in frame.tasks])
    for in_region in PER_REGION:
        built: dict[tuple[str, ...], Replica] = {}  # nearly equal rooms have the same engines
        for room in builder.rooms(in_region):
            for array in builder.arrays_beside(room, in_region):
                for replica in builder.complete(array, room, in_region):
                    built.setdefault(tuple(engine.name for engine in replica.engines), replica)
        yield from built.values()
    if overlay is not None and overlay.board == board.name:
        yield from builder.vendors(overlay)


def one_array(
    board: Board, precision: str, models: Models, frame: Frame, arrays: Iterable[Engine]
) -> Iterator[Replica]:
    """Yield each of the catalogue's arrays as the only one on the board, with all of the memory at its ports."""
    builder = _Builder(board, precision, models, [task.nameless for task in frame.tasks])
    for array in arrays:
        if isinstance(array, SystolicArray):
            yield from builder.complete(array, replace(board.total_budget, memory_channels=0.0), 1)


def _fabric(engine: Engine) -> Resources:
    return replace(engine.resources, memory_channels=0.0)


def _without(room: Resources, engines: Iterable[Engine]) -> Resources:
    return room + total(map(_fabric, engines)).least(room).times(-1)


def shared_ports(board: Board, in_region: int) -> MemoryPorts:
    """Return the ports of one of equal replicas: channels of its own, or an equal part of the channels' rate."""
    memory, count = board.memory, in_region * len(board.regions)
    own = max(1, memory.channel_count // count)
    ports = min(port_count(board, "array"), own if memory.channel_count > 1 else board.memory_port_count)
    share = min(1.0, memory.channel_count / (count * min(ports, memory.channel_count)))
    return replace(
        MemoryPorts.of(memory, ports, board.clock_mhz, 0.0),
        channel_bytes_per_s=memory.channel_bytes_per_s * share,
        limit_bytes_per_s=memory.limit_bytes_per_s / count,
    )


def _busy_us(engine: Engine, tasks: Iterable[Task]) -> float:
    """Return the likely time of the tasks over the frames by which engines are compared."""
    counts = Counter(tasks).items()
    estimates = ((engine.estimate(batched(task, TRIED_FRAMES)), count) for task, count in counts)
    return sum(estimate.time_us.likely * count for estimate, count in estimates if estimate is not None)


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds replicas for the tasks of a frame."""

    board: Board
    precision: str
    models: Models
    tasks: list[Task]

    def rooms(self, in_region: int) -> list[Resources]:
        """Return the share of a replica in the smallest region and in the largest one, which differ on some boards."""
        budgets = [replace(budget, memory_channels=0.0) for budget in self.board.budgets]
        ends = min(budgets, key=lambda budget: budget.lut), max(budgets, key=lambda budget: budget.lut)
        return list(dict.fromkeys(budget.times(1 / in_region) for budget in ends))

    def arrays_beside(self, room: Resources, in_region: int) -> Iterator[SystolicArray]:
        """Yield the arrays of a room beside the smallest other engines, and beside quicker ones, which leave less."""
        rest = [task for task in self.tasks if task.kind == "attention" or not task.macs]
        smallest = [built[0] for _, built in self._others(rest, room) if built]
        first = list(self._arrays(_without(room, smallest), in_region))
        yield from first
        for share in QUICKER if first else ():
            quick = self._beside(first[0], room, share)
            if quick and not total(map(_fabric, quick)).fits(_without(room, [first[0]])):
                yield from self._arrays(_without(room, quick), in_region)

    def _arrays(self, room: Resources, in_region: int) -> Iterator[SystolicArray]:
        """Yield the arrays of a room with the least time, with and without pumped DSPs where the format allows it."""
        counts = Counter(batched(task, TRIED_FRAMES) for task in self.tasks if task.macs and task.kind != "attention")
        if not counts:
            return
        board, precision, models = self.board, self.precision, self.models
        products, costs = fused_products(counts), models.dataflow.on(board.dsp_type)
        ports = shared_ports(board, in_region)
        pumping = models.replicas.pumped.get(precision)
        ways = (1, pumping.dsp_cycles) if pumping and board.dsp_pumping == 1 else (1,)
        sizes = sorted(product(ARRAY_SIDES, ARRAY_SIDES, ARRAY_SIMD), key=prod, reverse=True)
        for dsp_cycles, has_small_tile in product(ways, (False, True)):
            rate = board.macs_per_dsp[precision] * dsp_cycles

            def built(
                size: Size, rate: float = rate, dsp_cycles: int = dsp_cycles, has_small_tile: bool = has_small_tile
            ) -> SystolicArray | None:
                if dsp_count(*size, precision, rate) > room.dsp:
                    return None
                # As if loads took no time: 64 sums an element, which are LUT RAM, for more traffic and a larger array.
                tile = Tile.balanced(size, ELEMENT_BYTES[precision], inf) if has_small_tile else None
                behind = epilogue(size, precision, products, costs)
                array = build_array(size, precision, ports, rate, models.systolic, tile, room=room, epilogue=behind)
                return replace(array, dsp_cycles=dsp_cycles) if _fabric(array).fits(room) else None

            close = [self._closed(array, in_region) for array in close_to_largest(sizes, CLOSE_TO_LARGEST, built)]
            timed = sorted(close, key=lambda array: (total_us(array, counts), array.resources.dsp, array.name))
            yield from timed[:SIZES_OF_ROOM]

    def _closed(self, array: SystolicArray, in_region: int) -> SystolicArray:
        """Return an array with the clock of designs that take as much of a region as all of its replicas."""
        pumping = self.models.replicas.pumped.get(self.precision)
        if self.board.is_clock_given:
            return array
        if array.dsp_cycles > 1 and pumping is not None:
            return replace(array, ports=array.ports.closing(pumping.clock_share))
        filled = replace(array, resources=array.resources.times(in_region))
        return replace(array, ports=closing(filled, self.board, self.models).ports)

    def vendors(self, overlay: OverlayEngine) -> Iterator[Replica]:
        """Yield a vendor's engine as often as it fits; each has an equal share of the memory's rate."""
        regions, ports = self.board.regions, overlay.ports
        for in_region in PER_REGION:
            share = replace(ports, memory_bytes_per_s=ports.memory_bytes_per_s / (in_region * len(regions)))
            engine = replace(overlay, ports=share)
            fits_alone = in_region == 1 and any(_fabric(engine).fits(region.usable) for region in regions)
            for room in self.rooms(in_region):
                if fits_alone or _fabric(engine).fits(room):
                    yield from self.complete(engine, room, in_region)

    def complete(self, main: SystolicArray | OverlayEngine, room: Resources, in_region: int) -> Iterator[Replica]:
        """Yield the array with the smallest engines beside it that take a third of its time at most, where all fit."""
        beside = self._beside(main, _without(room, [main]), BESIDE_TIME)
        if beside is not None:
            yield Replica(main, tuple(beside), replace(room, memory_channels=0.0), in_region)

    def _beside(
        self, main: SystolicArray | OverlayEngine, left: Resources, share: float
    ) -> list[AttentionEngine | RowwiseEngine] | None:
        """Return the smallest engines for what an array leaves that take a share of its time at most.

        Where all that fit take longer, it is the quickest of them; None if none fit.
        """
        whole_us, others = _busy_us(main, self.tasks), [task for task in self.tasks if main.estimate(task) is None]
        beside: list[AttentionEngine | RowwiseEngine] = []
        for served, built in self._others(others, left):
            rest = _without(left, beside)
            timed = [(_busy_us(each, served), each) for each in built if _fabric(each).fits(rest)]
            quick = (each for us, each in timed if us <= share * whole_us)
            quickest = min(timed, key=lambda pair: pair[0], default=(0.0, None))[1]
            if (chosen := next(quick, quickest)) is None:
                return None
            beside.append(chosen)
        return beside

    def _others(
        self, tasks: list[Task], room: Resources
    ) -> Iterator[tuple[list[Task], list[AttentionEngine | RowwiseEngine]]]:
        """Yield attention, then rows, pools and elements: the tasks, and the engines that fit, from small to large."""
        board, precision, models = self.board, self.precision, self.models
        attended = [task for task in tasks if task.kind == "attention"]
        streamed = [task for task in tasks if task.kind != "attention"]
        if attended:
            extents = attention_extents(attended)
            sides = (attention(board, precision, models, side, *extents) for side in reversed(ATTENTION_SIDES))
            yield attended, [closing(engine, board, models) for engine in sides if _fabric(engine).fits(room)]
        if streamed:
            served = [task for task in streamed if is_streamed(task)]
            sizes = rowwise_sizes(board, precision, models, served) if served else []
            yield streamed, [closing(engine, board, models) for engine in sizes if _fabric(engine).fits(room)]

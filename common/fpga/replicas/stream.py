"""Streams of frames over replicas: how frames, layers or heads are divided, and the time that each resource gives them.

A frame takes of each resource its busy time, and all frames in flight share host, link, launches, memory and power. The
pipeline takes a frame every ``max`` of these times (fixed slots modulo that interval; Rau, MICRO 1994), so its slowest
resource bounds its rate.

    frames   a frame is computed by one of N replicas                    T(b) / (b N)
    layers   S arrays compute a frame's calls one after the other,
             in N / S equal chains                                       max over stages of T_s(b) / (b (N / S))
    heads    all N compute each call together, a share of its heads
             or images each                                              T_team(b) / b

for calls over b frames. A stage's calls are contiguous. ``T`` has the launches: an array waits while it is launched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.device.resources import BRAM36_BYTES, Resources, amounts
from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.estimate import Engine, KernelEstimate
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.kernels.team import Team
from common.fpga.planning.problem_builder import LaunchPer, launch_rule
from common.fpga.replicas.frame import Frame, FrameCall
from common.fpga.replicas.replica import Replica
from common.fpga.replicas.residence import (
    FrameTensor,
    ResidentCandidate,
    chosen,
    keeps_weights,
    kept_bytes,
    memory_of,
    pages_in,
    pages_in_use,
    pages_of,
    with_kept,
)
from common.fpga.speedup.energy import kernel_dynamic_uj
from common.fpga.speedup.totals import BUFFER_ACCESSES, CardWork
from common.intervals import NOTHING, ThreePoint, combine, summed
from common.workload.tasks import NOTHING_KEPT, KeptBytes, Task, batched

Division = Literal["frames", "layers", "heads", "one array"]
UNITS = {"systolic": "arrays", "overlay": "arrays", "attention": "attention", "rowwise": "rows and pools"}
LEAST_DYNAMIC_W = 1.0  # of a card whose limit its static power nearly reaches


@dataclass(frozen=True, slots=True)
class FrameStage:
    """Calls that one replica computes of each of its frames."""

    replica: Replica  # it, with the memories that keep weights and activations
    first: int  # index of its first call in the frame
    calls: tuple[FrameCall, ...]
    kept: tuple[FrameTensor, ...] = ()  # activations that stay on the chip

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that stay on the chip."""
        return sum(call.task.kept.weights for call in self.calls)

    @property
    def map_bytes(self) -> int:
        """Bytes of the memories that keep activations."""
        return BRAM36_BYTES * pages_in(self.replica.maps)


@dataclass(frozen=True, slots=True)
class StageWork:
    """Calls over ``frames`` frames on the engines of a replica: time by resource, launches, operations and bytes."""

    frames: int
    busy_us: Mapping[str, ThreePoint]
    launch_count: int
    flops: int
    moved_bytes: int  # to and from the card's memory
    kept_bytes: int  # to and from memories on the chip that keep weights or activations between calls

    @property
    def slowest_us(self) -> ThreePoint:
        return combine(max, NOTHING, *self.busy_us.values())

    @property
    def latency_us(self) -> ThreePoint:
        """Time of all calls one after the other."""
        return summed(self.busy_us.values())


@dataclass
class CallTimes:
    """Times of calls on a board, each computed once."""

    board: Board
    models: Models
    precision: str
    launch_per: LaunchPer
    _known: dict[tuple[int, int, Task, int], KernelEstimate | None] = field(default_factory=dict)
    _engines: dict[int, Engine] = field(default_factory=dict)  # alive, so that no other engine gets the number of one
    _averaged: dict[int, SystolicArray] = field(default_factory=dict)

    def estimate(self, engine: Engine, task: Task, frames: int, members: int = 1) -> KernelEstimate | None:
        """Return the time of a task over frames on one engine, or on ``members`` that share the call."""
        self._engines[id(engine)] = engine
        key = id(engine), members, task.nameless, frames
        if key not in self._known:
            together: Engine = engine
            if members > 1 and isinstance(engine, SystolicArray | AttentionEngine):
                together = Team(engine, members, self.models.systolic.timing.call_cycles)
            self._known[key] = together.estimate(batched(key[2], frames))
        return self._known[key]

    def work(self, replica: Replica, calls: Iterable[FrameCall], frames: int, members: int = 1) -> StageWork:
        """Return the work of calls over frames on one replica, or on ``members`` that share each call."""
        busy: dict[str, list[ThreePoint]] = {}
        launches = flops = moved = kept = 0
        for call in calls:
            engine, estimate = self.computed(replica, call.task, frames, members)
            is_launched = launch_rule(engine, self.launch_per) == "call" or call.reads_host
            parts = [estimate.time_us, *([self.board.launch_us] if is_launched else [])]
            busy.setdefault(UNITS[engine.kind], []).extend(parts)
            launches += is_launched * members
            flops += estimate.flops
            moved += estimate.moved_bytes
            kept += estimate.kept_bytes
        return StageWork(frames, {unit: summed(parts) for unit, parts in busy.items()}, launches, flops, moved, kept)

    def moved_bytes(self, replica: Replica, task: Task, frames: int) -> int:
        """Return the bytes that a call over frames moves to and from the card's memory.

        The orientation of a product is that of the averaged model, which is many times as quick as counting phases.
        """
        main = replica.main
        if isinstance(main, SystolicArray):
            self._engines[id(main)] = main
            if id(main) not in self._averaged:
                self._averaged[id(main)] = replace(main, is_generated=False)
            replica = replace(replica, main=self._averaged[id(main)])
        return self.computed(replica, task, frames, 1)[1].moved_bytes

    def computed(self, replica: Replica, task: Task, frames: int, members: int) -> tuple[Engine, KernelEstimate]:
        for engine in replica.engines:
            for sharing in dict.fromkeys((members, 1)):  # a call without heads or images for all is one member's
                if (estimate := self.estimate(engine, task, frames, sharing)) is not None:
                    return engine, estimate
        raise ValueError(f"{replica.name} does not compute {task.name}")


@dataclass(frozen=True, slots=True)
class ReplicaStream:
    """Frames that flow through the replicas of a board."""

    division: Division
    counts: Mapping[str, int]  # replicas by region; empty where one array spans several
    stages: tuple[FrameStage, ...]  # what each replica of a chain computes; one stage unless layers are divided
    chains: int  # equal chains of stages
    frames: int  # that each call computes together
    works: tuple[StageWork, ...]
    busy_us: Mapping[str, ThreePoint]  # time of each resource for one frame
    # Conversions of one frame between number formats, to those of the card and to the host's
    convert_us: tuple[ThreePoint, ThreePoint]
    # Of the frames of one call, from the first transfer to the last result, in an empty pipeline
    latency_us: ThreePoint
    memory_bytes: int  # of weights and of the frames in flight in the card's memory

    @property
    def replica_count(self) -> int:
        return sum(self.counts.values()) or 1

    @property
    def largest_fabric(self) -> Resources:
        """Resources of one replica, of each the most that one of them has."""
        fabrics = (amounts(stage.replica.fabric) for stage in self.stages)
        return Resources(*map(max, zip(*fabrics, strict=True)))

    @property
    def interval_us(self) -> ThreePoint:
        """Least time between two frames: that of the slowest resource."""
        return combine(max, *self.busy_us.values())

    @property
    def rate_per_s(self) -> ThreePoint:
        return combine(per_s, self.interval_us)

    @property
    def card_rate_per_s(self) -> ThreePoint:
        """Rate on a host that takes no time."""
        return combine(per_s, combine(max, *(us for name, us in self.busy_us.items() if name != "host")))

    @property
    def bottleneck(self) -> str:
        """Name of the resource that bounds the likely rate."""
        return max(self.busy_us, key=lambda name: self.busy_us[name].likely)

    @property
    def in_flight(self) -> int:
        """Least number of frames under way at the likely rate (Little 1961), in whole calls."""
        return self.frames * math.ceil(self.latency_us.likely / (self.frames * self.interval_us.likely) - 1e-9)


def keeping(timing: CallTimes, frame: Frame, stage: FrameStage, frames: int, left: Resources) -> FrameStage:
    """Return a stage with activations and weights on the chip over calls of so many frames, as far as they fit.

    Args:
        frame: whose activations may stay, if this stage alone has them.
        left: what the replica may still take.
    """
    replica, main = stage.replica, stage.replica.main
    if not isinstance(main, SystolicArray):
        return stage
    tasks = {position: call.task for position, call in enumerate(stage.calls, stage.first)}
    kept = chosen(list(_residents(timing, frame, stage, tasks, frames)), pages_in(left))
    contents: list[FrameTensor | int] = []
    memories = []
    for kind in (FrameTensor, int):
        # Blocks are rounded up, and as many as the ports need: fewer pages may be left than were counted.
        own = chosen([each for each in kept if isinstance(each.content, kind)], pages_in(left))
        memory = memory_of(pages_in_use(own), left, main.ports.bytes_per_cycle)
        if memory is not None:
            left += memory.times(-1)
            contents += [each.content for each in own]
        memories.append(memory or Resources())
    placed = zip(stage.calls, with_kept(tasks, contents), strict=True)
    calls = tuple(replace(call, task=task) for call, task in placed)
    tensors = tuple(content for content in contents if isinstance(content, FrameTensor))
    return FrameStage(replace(replica, maps=memories[0], weights=memories[1]), stage.first, calls, tensors)


def _residents(
    timing: CallTimes, frame: Frame, stage: FrameStage, tasks: Mapping[int, Task], frames: int
) -> Iterator[ResidentCandidate]:
    """Yield what may stay on the chip, with the bytes that it would save by itself."""
    parts = len({timing.computed(stage.replica, task, 1, 1)[0].kind for task in tasks.values()})  # engines with calls
    last = stage.first + len(stage.calls) - 1

    def moved(call: int, kept: KeptBytes) -> int:
        return timing.moved_bytes(stage.replica, replace(tasks[call], kept=kept), frames)

    def saved(content: FrameTensor | int) -> float:
        of_calls = kept_bytes([content], tasks).items()
        return sum(moved(call, NOTHING_KEPT) - moved(call, kept) for call, kept in of_calls)

    for tensor in frame.tensors:
        if tensor.writer in tasks and tensor.last in tasks:
            yield ResidentCandidate(tensor, tensor.writer, tensor.last, parts * tensor.pages(frames), saved(tensor))
    for call, task in tasks.items():
        if task.weight_bytes and keeps_weights(task):
            yield ResidentCandidate(call, stage.first, last, pages_of(task.weight_bytes), saved(call))


def per_s(every_us: float) -> float:
    return 1e6 / every_us


def stream(
    timing: CallTimes,
    frame: Frame,
    division: Division,
    counts: Mapping[str, int],
    stages: Sequence[FrameStage],
    frames: int,
) -> ReplicaStream:
    """Return the stream of frames over ``frames`` at a time, with the time that each resource gives to a frame."""
    count = sum(counts.values()) or 1
    chains = count // len(stages) if division in ("frames", "layers") else 1
    members = count if division == "heads" else 1
    works = [timing.work(stage.replica, stage.calls, frames, members) for stage in stages]
    units = dict.fromkeys(unit for work in works for unit in work.busy_us)
    busy = {
        unit: combine(
            lambda *values: max(values) / (frames * chains), *(work.busy_us.get(unit, NOTHING) for work in works)
        )
        for unit in units
    }
    launches = sum(work.launch_count for work in works) / frames
    moved, memory = sum(work.moved_bytes for work in works) / frames, timing.board.memory
    shared = {
        "host": frame.host_us,
        "link to the card": frame.to_card_us,
        "link to the host": frame.to_host_us,
        "launches": combine(lambda us: launches * us, timing.board.launch_us),
        "memory": combine(lambda share: 1e6 * moved / (memory.bytes_per_s * share), memory.efficiency),
        "power": _power_us(timing, works, frames),
    }
    busy |= {name: us for name, us in shared.items() if us.pessimistic > 0}
    convert = frame.convert_in_us, frame.convert_out_us
    around = combine(lambda *parts: frames * sum(parts), frame.to_card_us, frame.to_host_us, *convert, frame.host_us)
    latency = summed([around, *(work.latency_us for work in works)])
    found = ReplicaStream(division, counts, tuple(stages), chains, frames, tuple(works), busy, convert, latency, 0)
    copies = chains if timing.board.memory.channel_count > 1 else 1  # a copy in the channels of each chain
    return replace(found, memory_bytes=copies * frame.weight_bytes + found.in_flight * frame.live_bytes)


def _power_us(timing: CallTimes, works: Sequence[StageWork], frames: int) -> ThreePoint:
    """Return the least time of a frame at the card's limit of power: a card above it slows its clock."""
    board = timing.board
    totals = zip(*((work.flops, work.moved_bytes, work.kept_bytes) for work in works), strict=True)
    flops, moved, kept = (round(sum(amounts) / frames) for amounts in totals)
    buffered = BUFFER_ACCESSES * (moved + kept) + kept  # what is kept passes the operand buffers as well
    work = CardWork({timing.precision: flops}, moved, on_chip_bytes=buffered)
    dynamic = kernel_dynamic_uj(work, board, timing.models.energy)
    return combine(lambda uj, static_w: uj / max(board.limit_w - static_w, LEAST_DYNAMIC_W), dynamic, board.static_w)

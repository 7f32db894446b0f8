"""Activations that stay on the chip between the calls of a replica, as in the vendors' engines.

A replica keeps tensors in the UltraRAM and block RAM that its region leaves beside engines and weights. A tensor may
stay if calls of one replica write it and read it, and nothing else does. It then takes memory from the call that writes
it to the last one that reads it. Each engine of a replica works on other frames, so each has its own part of the
memory.

Memory is divided into pages of 4,608 bytes: a block RAM is one page, an UltraRAM eight, and pages need not be side by
side. Which tensors stay is decided greedily, by the traffic that a page saves in each call: packing tensors with
lifetimes is NP-hard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from common.fpga.device.resources import BLOCK_BITS, BRAM36_BYTES, URAM_BYTES, Resources
from common.fpga.kernels.dataflow.rowwise import is_streamed
from common.fusion.border import border
from common.fusion.groups import Group
from common.graphs.source_graph import SourceGraph
from common.workload.flows import card_bytes, tensor_flows
from common.workload.formats import group_formats
from common.workload.layers import Convolution, Matmul
from common.workload.tasks import KeptBytes, Task

PAGES_OF_URAM = URAM_BYTES // BRAM36_BYTES


@dataclass(frozen=True, slots=True)
class Reading:
    """A call that reads a tensor: its position in the frame, the bytes, and whether its product or window does."""

    call: int
    bytes: int
    is_operand: bool


@dataclass(frozen=True, slots=True)
class FrameTensor:
    """An activation that only calls of a frame write and read; calls are given by their position in the frame."""

    name: str
    writer: int
    bytes: int
    readings: tuple[Reading, ...]

    @property
    def last(self) -> int:
        """Position of the last call that reads it."""
        return max(reading.call for reading in self.readings)

    @property
    def moved_bytes(self) -> int:
        """Bytes that the card's memory need not move if it stays on the chip, each reading counted once."""
        return self.bytes + sum(reading.bytes for reading in self.readings)

    def pages(self, frames: int) -> int:
        return ceil(frames * self.bytes / BRAM36_BYTES)


def frame_tensors(
    graph: SourceGraph, groups: Sequence[Group], tasks: Mapping[int, Task], precision: str
) -> tuple[FrameTensor, ...]:
    """Return the activations that may stay on the chip.

    Args:
        tasks: those of a frame by the index of their group, in the order of the frame's calls.
        precision: number format of the kernels.
    """
    position = {group: call for call, group in enumerate(tasks)}
    able = {group for group, task in tasks.items() if keeps_activations(task)}
    read_bytes = {group: _read_bytes(graph, groups[group], precision) for group in able}
    operands = {group: _operands(graph, groups[group]) for group in able}
    tensors = []
    for flow in tensor_flows(graph, groups, group_formats(groups, precision)):
        ends = {flow.producer, *flow.consumers}
        if flow.is_output or not flow.card_bytes or not flow.consumers or not ends <= able or flow.producer is None:
            continue
        readings = [
            Reading(position[group], read_bytes[group].get(flow.tensor, 0), flow.tensor in operands[group])
            for group in flow.consumers
        ]
        if all(reading.bytes for reading in readings):
            tensors.append(FrameTensor(flow.tensor, position[flow.producer], flow.card_bytes, tuple(readings)))
    return tuple(tensors)


def keeps_activations(task: Task) -> bool:
    """Return whether the model of the task's engine knows kept activations: one product with a weight, or streams."""
    contractions = [layer for layer in task.layers if isinstance(layer, Matmul | Convolution)]
    if len(contractions) == 1:
        return isinstance(contractions[0], Convolution) or contractions[0].has_weight
    return not contractions and is_streamed(task)


def _read_bytes(graph: SourceGraph, group: Group, precision: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for tensor in border(graph, group.nodes):
        size = card_bytes(tensor.size_bytes, tensor.dtype, precision)
        if tensor.role == "read" and size:
            stored = graph.storage.get(tensor.tensor, tensor.tensor)
            sizes[stored] = sizes.get(stored, 0) + size
    return sizes


def _operands(graph: SourceGraph, group: Group) -> frozenset[str]:
    """Return the stored tensors that reach the group's contraction; of a group without one, all that it reads."""
    members, found = set(group.nodes), set[str]()
    waiting = list(group.heads or group.nodes)
    while waiting:
        for tensor in graph.variables(graph.nodes[waiting.pop()]):
            producer = graph.producer.get(tensor, "")
            if producer not in members:
                found.add(graph.storage.get(tensor, tensor))
            elif group.heads:
                waiting.append(producer)
    return frozenset(found)


def pages_in(room: Resources) -> int:
    return PAGES_OF_URAM * max(0, int(room.uram)) + max(0, int(room.bram36))


def memory_of(pages: int, room: Resources, bytes_per_cycle: float) -> Resources | None:
    """Return blocks with so many pages that read as much in a cycle as ports do; None where the room has too few.

    UltraRAM comes first.
    """
    least = ceil(8 * bytes_per_cycle / BLOCK_BITS)
    uram = min(max(0, int(room.uram)), max(ceil(pages / PAGES_OF_URAM), least))
    bram = max(0, pages - PAGES_OF_URAM * uram, least - uram)
    return Resources(uram=uram, bram36=bram) if bram <= room.bram36 or not bram else None


def chosen(tensors: Sequence[FrameTensor], frames: int, pages: int) -> tuple[tuple[FrameTensor, ...], int]:
    """Return the tensors that stay on the chip over calls of so many frames, and the most pages in use at once."""

    def saving(tensor: FrameTensor) -> float:
        return frames * tensor.moved_bytes / (tensor.pages(frames) * (tensor.last - tensor.writer + 1))

    used = [0] * (1 + max((tensor.last for tensor in tensors), default=0))
    kept = []
    for tensor in sorted(tensors, key=saving, reverse=True):
        alive = range(tensor.writer, tensor.last + 1)
        if max(used[call] for call in alive) + tensor.pages(frames) <= pages:
            kept.append(tensor)
            for call in alive:
                used[call] += tensor.pages(frames)
    return tuple(kept), max(used)


def with_kept(tasks: Sequence[Task], first: int, kept: Sequence[FrameTensor]) -> list[Task]:
    """Return the tasks of calls from position ``first`` on, with the bytes of one frame that stay on the chip."""
    amounts = [KeptBytes()] * len(tasks)

    def add(call: int, operand: int = 0, beside: int = 0, written: int = 0) -> None:
        before = amounts[call - first]
        amounts[call - first] = KeptBytes(before.operand + operand, before.beside + beside, before.written + written)

    for tensor in kept:
        add(tensor.writer, written=tensor.bytes)
        for reading in tensor.readings:
            name = "operand" if reading.is_operand else "beside"
            add(reading.call, **{name: reading.bytes})
    return [replace(task, kept=amount) for task, amount in zip(tasks, amounts, strict=True)]

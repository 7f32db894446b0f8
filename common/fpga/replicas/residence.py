"""Activations and weights that stay on the chip between the calls of a replica, as in the vendors' engines.

A replica keeps them in the UltraRAM and block RAM that its region leaves beside the engines. An activation may stay if
calls of one replica write it and read it, and nothing else does. It then takes memory from the call that writes it to
the last one that reads it. Each engine of a replica works on other frames, so each has its own part of that memory. The
weights of a call take memory once, and always.

Memory is divided into pages of 4,608 bytes: a block RAM is one page, an UltraRAM eight, and pages need not be side by
side. What stays is decided greedily, by the traffic that a page saves in each call: packing with lifetimes is NP-hard.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
from common.workload.tasks import NOTHING_KEPT, KeptBytes, Task

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

    def pages(self, frames: int) -> int:
        return pages_of(frames * self.bytes)


def frame_tensors(
    graph: SourceGraph, groups: Sequence[Group], tasks: Mapping[int, Task], precision: str
) -> tuple[FrameTensor, ...]:
    """Return the activations that may stay on the chip; ``tasks`` are by their group, in the order of the calls."""
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
    return keeps_weights(task) or (not task.macs and is_streamed(task))


def keeps_weights(task: Task) -> bool:
    """Return whether the model of the task's engine knows kept weights: of one product."""
    contractions = [layer for layer in task.layers if isinstance(layer, Matmul | Convolution)]
    return len(contractions) == 1 and (isinstance(contractions[0], Convolution) or contractions[0].has_weight)


def _read_bytes(graph: SourceGraph, group: Group, precision: str) -> dict[str, int]:
    sizes = Counter[str]()
    for tensor in border(graph, group.nodes):
        if tensor.role == "read":
            stored = graph.storage.get(tensor.tensor, tensor.tensor)
            sizes[stored] += card_bytes(tensor.size_bytes, tensor.dtype, precision) or 0
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


def pages_of(size: int) -> int:
    return ceil(size / BRAM36_BYTES)


def pages_in_use(kept: Iterable[ResidentCandidate]) -> int:
    """Return the most pages in use at once."""
    used = Counter[int]()
    for each in kept:
        used.update(dict.fromkeys(range(each.first, each.last + 1), each.pages))
    return max(used.values(), default=0)


def pages_in(room: Resources) -> int:
    return PAGES_OF_URAM * max(0, int(room.uram)) + max(0, int(room.bram36))


def memory_of(pages: int, room: Resources, bytes_per_cycle: float) -> Resources | None:
    """Return blocks with so many pages that read as much in a cycle as ports do; None where the room has too few.

    UltraRAM comes first.
    """
    if not pages:
        return Resources()
    least = ceil(8 * bytes_per_cycle / BLOCK_BITS)
    uram = min(max(0, int(room.uram)), max(ceil(pages / PAGES_OF_URAM), least))
    bram = max(0, pages - PAGES_OF_URAM * uram, least - uram)
    return Resources(uram=uram, bram36=bram) if bram <= room.bram36 or not bram else None


@dataclass(frozen=True, slots=True)
class ResidentCandidate:
    """What may stay on the chip from one call of a frame to another: the pages it takes, and the bytes it saves."""

    content: FrameTensor | int  # an activation, or the position of the call whose weights stay for all frames
    first: int  # position of the first call with its pages in use
    last: int  # that of the last one
    pages: int
    saved_bytes: float  # over the ports, of the calls over all their frames

    @property
    def saved_bytes_per_page(self) -> float:
        """Saved bytes for each page and call that it is in use for."""
        return self.saved_bytes / (self.pages * (self.last - self.first + 1))


def chosen(candidates: Sequence[ResidentCandidate], pages: int) -> list[ResidentCandidate]:
    """Return what stays on the chip in so many pages, greedily by the traffic that a page saves in each call."""
    used = [0] * (1 + max((each.last for each in candidates), default=0))
    kept = []
    for each in sorted(candidates, key=lambda each: -each.saved_bytes_per_page):
        alive = range(each.first, each.last + 1)
        if each.saved_bytes > 0 and max(used[call] for call in alive) + each.pages <= pages:
            kept.append(each)
            for call in alive:
                used[call] += each.pages
    return kept


def kept_bytes(contents: Iterable[FrameTensor | int], tasks: Mapping[int, Task]) -> dict[int, KeptBytes]:
    """Return what stays on the chip of each call that has a part of it, in bytes of one frame.

    ``contents`` are activations, and positions of calls whose weights stay; ``tasks`` are by their position.
    """
    amounts = defaultdict[int, Counter[str]](Counter)
    for content in contents:
        if isinstance(content, int):
            amounts[content]["weights"] += tasks[content].weight_bytes
        else:
            amounts[content.writer]["written"] += content.bytes
            for reading in content.readings:
                amounts[reading.call]["operand" if reading.is_operand else "beside"] += reading.bytes
    return {call: KeptBytes(**of_call) for call, of_call in amounts.items()}


def with_kept(tasks: Mapping[int, Task], contents: Iterable[FrameTensor | int]) -> list[Task]:
    """Return the tasks of calls with what stays on the chip; arguments are those of :func:`kept_bytes`."""
    amounts = kept_bytes(contents, tasks)
    return [replace(task, kept=amounts.get(call, NOTHING_KEPT)) for call, task in tasks.items()]

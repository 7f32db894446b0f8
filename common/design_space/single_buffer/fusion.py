"""The best cover of a model by fused groups, found exactly: dynamic programming over closed sets of layers.

Each group has a front of (energy, cycles). Of the sums along a path, only supported points can have the least product
(fronts.py), so each closed set keeps few of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from common.design_space.accelerator.hardware import NothingFitsError
from common.design_space.accelerator.single_buffer import SingleBuffer
from common.design_space.groups.convex_groups import convex_groups, members_of
from common.design_space.groups.tiled_group import tiled_group
from common.design_space.memoized import memoized
from common.design_space.search.fronts import Front, SupportedPoint, lower_left_hull
from common.design_space.search.observer import UNOBSERVED, SearchInterruptedError, SearchObserver
from common.design_space.single_buffer.bound import other_bytes
from common.design_space.single_buffer.group_tiles import GroupTiling, group_tilings
from common.design_space.single_buffer.nest_tiles import NestTiling, best_tiling
from common.messages.names import shown
from common.workload.map_layers import LayerGraph


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group of a schedule: its layers, how it is tiled, its traffic and its multiply-accumulates.

    ``tilings`` are those of the contractions of a layer that is computed alone, or the one of a fused group.
    """

    members: tuple[int, ...]
    resident: frozenset[str]
    tilings: tuple[NestTiling | GroupTiling, ...]
    moved_bytes: float
    macs: int


Schedule = tuple[GroupPlan, ...]
State = tuple[int, frozenset[str]]  # the closed set of layers that have run, and the resident tensors


def fused_front(
    graph: LayerGraph, buffer: SingleBuffer, *, most_layers: int = 6, observer: SearchObserver = UNOBSERVED
) -> Front[Schedule]:
    """Return the front of the best schedules of a model in groups of at most so many layers; 1 is without fusion.

    Raises:
        SearchInterruptedError: it was ended.
        NothingFitsError: the buffer does not hold the smallest tile of some layer.
    """
    fronts, groups = GroupFronts(graph, buffer, keeps=most_layers > 1), convex_groups(graph, most_layers)
    start: State = (0, frozenset())
    paths: list[dict[State, list[SupportedPoint[Schedule]]]] = [{} for _ in range(len(graph.layers) + 1)]
    paths[0][start] = [SupportedPoint(0.0, 0.0, ())]
    for here in paths[:-1]:
        for state, points in here.items():
            hull = lower_left_hull(points)
            for group in groups.steps(state[0]):
                if observer.is_interrupted:
                    raise SearchInterruptedError
                for then, front in fronts.after(state, group):
                    sums = (_joined(path, step) for path in hull for step in front)
                    paths[then[0].bit_count()].setdefault(then, []).extend(sums)
    if not (best_paths := lower_left_hull(point for points in paths[-1].values() for point in points)):
        raise NothingFitsError("buffer_kib", fronts.problem(), "give a larger buffer")
    return best_paths


def _joined(path: SupportedPoint[Schedule], step: SupportedPoint[GroupPlan]) -> SupportedPoint[Schedule]:
    return SupportedPoint(path.energy_pj + step.energy_pj, path.cycles + step.cycles, (*path.choice, step.choice))


class GroupFronts:
    """The fronts of groups, each computed once. A group may find its operands on the chip, and leave its results."""

    def __init__(self, graph: LayerGraph, buffer: SingleBuffer, *, keeps: bool) -> None:
        self.graph, self.buffer, self.keeps = graph, buffer, keeps
        maps = [(next(iter(layer.writes)), layer.form.result) for layer in graph.layers if layer.form is not None]
        self.bits = {tensor: extents.elements * extents.bits for tensor, extents in maps}

    def problem(self) -> str:
        """Return which layer does not fit by itself, for an error."""
        for index, layer in enumerate(self.graph.layers):
            if not self.front((index,), frozenset(), 8 * self.buffer.capacity_bytes):
                return f"{self.buffer.capacity_bytes} bytes do not hold the smallest tile of {shown(layer.name)}"
        return f"no schedule fits into {self.buffer.capacity_bytes} bytes"

    def after(self, state: State, group: int) -> Iterator[tuple[State, Front[GroupPlan]]]:
        """Yield every state that a group, given as a bit set, leads to, with its front; none where it does not fit."""
        results = self.can_be_resident(group, state[0] | group)
        for count in range(len(results) + 1):
            for left in combinations(results, count):
                then, front = self.step(state, group, frozenset(left))
                if front:
                    yield then, front

    def step(self, state: State, group: int, left: frozenset[str]) -> tuple[State, Front[GroupPlan]]:
        """Return the state that a group leads to if it leaves some results on the chip, and its front, maybe empty."""
        done, resident = state
        members = members_of(group)
        read = frozenset(tensor for index in members for tensor in self.graph.layers[index].reads)
        still = frozenset(tensor for tensor in resident if self._is_needed(tensor, done | group))
        elsewhere = sum(self.bits[tensor] for tensor in resident - read)
        room = 8 * self.buffer.capacity_bytes - elsewhere
        return (done | group, still | left), self.front(members, (resident & read) | left, room)

    def _is_needed(self, tensor: str, done: int) -> bool:
        return any(not done >> reader & 1 for reader in self.graph.consumers.get(tensor, ()))

    def can_be_resident(self, group: int, done: int) -> list[str]:
        """Return the results of a group that may stay on the chip as a whole for later groups."""
        results = [tensor for index in members_of(group) for tensor in self.graph.layers[index].writes]
        return [tensor for tensor in results
                if self.keeps and tensor in self.bits and tensor not in self.graph.returned
                and self.bits[tensor] <= 8 * self.buffer.capacity_bytes and self._is_needed(tensor, done)]  # fmt: skip

    @memoized
    def front(self, members: tuple[int, ...], resident: frozenset[str], room_bits: int) -> Front[GroupPlan]:
        """Return the front of one group; empty where several layers cannot be one group, or do not fit together.

        Args:
            resident: tensors of the group that are on the chip as a whole, before it or after it.
            room_bits: of the buffer, without the resident tensors of other groups.
        """
        plans, layer = list[GroupPlan](), self.graph.layers[members[0]]
        if len(members) == 1 and not resident:  # its contractions run one after the other
            best_tilings = [best_tiling(nest, room_bits) for nest in layer.nests]
            if len(fitting := tuple(filter(None, best_tilings))) == len(best_tilings):
                moved = layer.passes * (sum(sum(tiling.moved_bits) for tiling in fitting) / 8) + other_bytes(layer)
                plans.append(GroupPlan(members, resident, fitting, moved, layer.macs))
        group = tiled_group(self.graph, members, resident)
        if group is not None and room_bits > group.resident_bits:
            tilings = group_tilings(group, room_bits)
            plans += [GroupPlan(members, resident, (tiling,), tiling.moved_bits / 8, tiling.macs) for tiling in tilings]
        figures = [(plan.macs, plan.moved_bytes) for plan in plans]
        return lower_left_hull(
            SupportedPoint(self.buffer.energy_pj(*moved), self.buffer.cycles(*moved), plan)
            for plan, moved in zip(plans, figures, strict=True)
        )

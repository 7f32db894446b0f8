"""Fused groups of a model as choices: the neighbour that each layer joins, the tiling of each group, resident results.

Any choices decode into a cover by convex groups. Groups grow one after the other, each from its *root*. A layer joins
the growing group if it chose a layer of it, all operands of the layer are there, and the group is not too large. A
layer that comes too late for its chosen group is a root itself. Where a group does not fit, first its resident results
leave the chip, then the layers that joined last leave the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from common.design_space.accelerator.single_buffer import SingleBuffer
from common.design_space.groups.convex_groups import ConvexGroups, convex_groups, members_of
from common.design_space.search.fronts import Front, SupportedPoint
from common.design_space.search.problem import Choices, Costs
from common.design_space.single_buffer.fusion import GroupFronts, GroupPlan, Schedule, State
from common.workload.map_layers import LayerGraph

TILINGS = 8  # values of the choice of a tiling: the supported points of a group's front share them out
Joins = Sequence[int]  # for each layer, the layer whose group it joins, or -1


class GroupStep(NamedTuple):
    """A group of a schedule: the layer that it was grown from, its front, and the supported point that was chosen."""

    root: int
    front: Front[GroupPlan]
    point: SupportedPoint[GroupPlan]


@dataclass(frozen=True)
class FusionChoices:
    """The fused groups of a model on an accelerator with one buffer.

    The first choices are the tilings, one for each layer; that of a root counts. The next are, for each layer, 0 or the
    neighbour that it joins. The last choose the resident results.
    """

    graph: LayerGraph
    buffer: SingleBuffer
    most_layers: int = 6

    @cached_property
    def groups(self) -> ConvexGroups:
        return convex_groups(self.graph, self.most_layers)

    @cached_property
    def fronts(self) -> GroupFronts:
        """The cost of each group; it is computed on first use."""
        return GroupFronts(self.graph, self.buffer, keeps=self.most_layers > 1)

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """The layers whose group each layer may join."""
        known, layers = self.groups, range(len(self.graph.layers))
        if self.most_layers == 1:
            return ((),) * len(layers)
        neighbours = [known.neighbours[layer] & known.fusible * (known.fusible >> layer & 1) for layer in layers]
        return tuple(members_of(others) for others in neighbours)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """Tensors that may be resident."""
        return tuple(self.fronts.can_be_resident((1 << len(self.graph.layers)) - 1, 0))

    @cached_property
    def choice_sizes(self) -> tuple[int, ...]:
        joins = (1 + len(others) for others in self.neighbours)
        return (*(TILINGS for _ in self.graph.layers), *joins, *(2 for _ in self.results))

    @property
    def first_choice_count(self) -> int:
        """The layers are tiled one by one before they are fused."""
        return len(self.graph.layers)

    def evaluate(self, choices: Choices) -> tuple[Costs, Costs]:
        """Return cycles and energy in pJ of each schedule of a batch; infinite where a layer fits nowhere."""
        paths = [self.steps(schedule) for schedule in choices]
        sums = [(sum(step.point.cycles for step in path), sum(step.point.energy_pj for step in path)) if path
                else (np.inf, np.inf) for path in paths]  # fmt: skip
        cycles, energy = np.array(sums, dtype=np.float64).reshape(-1, 2).T
        return cycles, energy

    def schedule(self, choices: Choices) -> Schedule:
        return tuple(step.point.choice for step in self.steps(choices))

    def steps(self, choices: Choices) -> list[GroupStep]:
        """Return the groups with their roots and fronts; none where a layer fits nowhere."""
        count = len(self.graph.layers)
        tilings, picks, is_resident = np.split(choices, [count, 2 * count])
        joins = [others[pick - 1] if pick else -1 for others, pick in zip(self.neighbours, picks.tolist(), strict=True)]
        wanted = frozenset(name for name, stays in zip(self.results, is_resident.tolist(), strict=True) if stays)
        while True:
            path, in_the_way = self._walked(tilings.tolist(), joins, wanted)
            if not in_the_way:
                return path
            wanted -= in_the_way

    def _walked(
        self, tilings: Sequence[int], joins: Joins, wanted: frozenset[str]
    ) -> tuple[list[GroupStep], frozenset[str]]:
        """Return the groups; or none, and the resident tensors that leave a layer no room."""
        state: State = (0, frozenset())
        path: list[GroupStep] = []
        while state[0] != (1 << len(self.graph.layers)) - 1:
            members = self._next(state[0], joins)
            fitting = self._fitting(state, members, wanted)
            if fitting is None:
                return [], state[1]
            state, front = fitting
            path.append(GroupStep(members[0], front, front[tilings[members[0]] * len(front) // TILINGS]))
        return path, frozenset()

    def _fitting(
        self, state: State, members: list[int], wanted: frozenset[str]
    ) -> tuple[State, Front[GroupPlan]] | None:
        """Return the state that a group leads to and its front; it loses its last layers until it fits."""
        for count in range(len(members), 0, -1):
            group = sum(1 << layer for layer in members[:count])
            left = wanted.intersection(self.fronts.can_be_resident(group, state[0] | group))
            for resident in dict.fromkeys((left, frozenset[str]())):
                then, front = self.fronts.step(state, group, resident)
                if front:
                    return then, front
        return None

    def _next(self, done: int, joins: Joins) -> list[int]:
        """Return the next group, its root first: one that all who join it can join now, if there is such a group."""
        starts = [*self.groups.starts(done)]
        for root in starts:
            if joins[root] < 0 or done >> joins[root] & 1:
                members = self._grown(done, root, joins)
                if len(members) == self.most_layers or not self._is_awaited(members, joins):
                    return members
        return self._grown(done, starts[0], joins)

    def _grown(self, done: int, root: int, joins: Joins) -> list[int]:
        """Return the layers of a root's group, in the order in which they join it."""
        members, group = [root], 1 << root
        while self.groups.fusible & group == group and len(members) < self.most_layers:
            joining = (layer for layer in self.groups.additions(done, group) if joins[layer] in members)
            if (layer := next(joining, None)) is None:
                break
            members.append(layer)
            group |= 1 << layer
        return members

    def _is_awaited(self, members: list[int], joins: Joins) -> bool:
        """Return whether a layer that cannot join a group yet chose it."""
        return any(other in members and layer not in members for layer, other in enumerate(joins))

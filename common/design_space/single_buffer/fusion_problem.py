"""Fused groups of a model as choices: the neighbour that each layer joins, the tiling of each group, resident results.

Any choices decode into a cover by convex groups. Groups grow one after the other, each from its *root*. A layer joins
the growing group if it chose a layer of it, all operands of the layer are there, and the group is not too large. A
layer that comes too late for its chosen group is a root itself. Where a group does not fit, first its resident results
leave the chip, then the layers that joined last leave the group.

Gradient search takes the choices as probabilities. A layer joins the group of its only neighbour with the probability
of a sigmoid, of several with that of a softmax. The likelihood of a group is that of three events together: each of its
layers but the first joins another of them, the first joins none, and no neighbour joins. The cost of a layer is that of
its groups, weighted with their likelihood, each divided equally among its layers. All groups are known with their
fronts, so the cost has a gradient in the probabilities. Resident results are not relaxed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from common.design_space.accelerator.single_buffer import SingleBuffer
from common.design_space.groups.convex_groups import ConvexGroups, closed_sets, convex_groups, members_of
from common.design_space.mapping.arrays import torch_module
from common.design_space.search.fronts import Front, SupportedPoint
from common.design_space.search.problem import Choices, Costs
from common.design_space.single_buffer.fusion import GroupFronts, GroupPlan, Schedule, State
from common.workload.map_layers import LayerGraph

if TYPE_CHECKING:
    from torch import Generator as TorchGenerator
    from torch import Tensor

TILINGS = 8  # values of the choice of a tiling: the supported points of a group's front share them out
LEAST = 1e-9  # probability
Joins = Sequence[int]  # for each layer, the layer whose group it joins, or -1


class GroupStep(NamedTuple):
    """A group of a schedule: the layer that it was grown from, its front, and the supported point that was chosen."""

    root: int
    front: Front[GroupPlan]
    point: SupportedPoint[GroupPlan]


class KnownGroups(NamedTuple):
    """All groups that fit, as arrays."""

    costs: np.ndarray  # cycles and energy by group and tiling
    roots: np.ndarray  # the first layer of each group
    members: np.ndarray  # rows of layer and group
    conditions: np.ndarray  # the group of each condition on a layer, and whether the layer stays out of the group
    causes: np.ndarray  # rows of condition, layer and its choice: the choices that put the layer into the group


@dataclass(frozen=True)
class FusionProblem:
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
                is_awaited = any(other in members and layer not in members for layer, other in enumerate(joins))
                if len(members) == self.most_layers or not is_awaited:
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

    @cached_property
    def known(self) -> KnownGroups:
        """All groups that fit, without resident results."""
        nowhere, steps = frozenset[str](), self.groups.steps
        reachable = {group for done in closed_sets(steps) for group in steps(done)}
        fronts = {group: self.fronts.step((0, nowhere), group, nowhere)[1] for group in reachable}
        fitting = {members_of(group): front for group, front in fronts.items() if front}
        costs = [[(front[tiling * len(front) // TILINGS].cycles, front[tiling * len(front) // TILINGS].energy_pj)
                  for tiling in range(TILINGS)] for front in fitting.values()]  # fmt: skip
        members = [(layer, at) for at, group in enumerate(fitting) for layer in group]
        conditions, causes = list[tuple[int, bool]](), list[tuple[int, int, int]]()
        for at, group in enumerate(fitting):
            for layer, is_outside, picks in self._conditions(group):
                causes += [(len(conditions), layer, pick) for pick in picks]
                conditions.append((at, is_outside))
        roots = [group[0] for group in fitting]
        return KnownGroups(*(np.array(rows) for rows in (costs, roots, members, conditions, causes)))

    def _conditions(self, group: tuple[int, ...]) -> Iterator[tuple[int, bool, list[int]]]:
        """Yield each layer that decides on a group, whether it must stay out, and the choices that put it in."""
        neighbours = self.neighbours
        outside = {other for layer in group for other in neighbours[layer]}.difference(group)
        yield group[0], False, [0]
        for layer in (*group[1:], *outside):
            picks = [pick for pick, other in enumerate(neighbours[layer], 1) if other in group]
            yield layer, layer in outside, picks

    def moves(self, choices: Choices) -> Choices:
        """Return the schedules with one other choice, if it can make a difference."""
        count = len(self.graph.layers)
        tiled = {step.root for step in self.steps(choices) if len(step.front) > 1}
        sizes = enumerate(self.choice_sizes)
        others = [(place, value) for place, size in sizes if place >= count or place in tiled
                  for value in range(size) if value != choices[place]]  # fmt: skip
        moved = np.tile(choices, (len(others), 1))
        for row, (place, value) in zip(moved, others, strict=True):
            row[place] = value
        return moved

    def descent(self, restarts: int, generator: TorchGenerator) -> FusionDescent:
        """Return parameters that PyTorch's generator draws, and resident results with them."""
        torch, count = torch_module(), len(self.graph.layers)
        most = max(self.choice_sizes[count : 2 * count])
        joins, tilings = (
            torch.randn((restarts, count, size), generator=generator, dtype=torch.float64).requires_grad_()
            for size in (most, TILINGS)
        )
        resident = torch.randint(0, 2, (restarts, len(self.results)), generator=generator)
        return FusionDescent(self, joins, tilings, resident.numpy(), generator)


@dataclass(frozen=True)
class FusionDescent:
    """The parameters of some restarts."""

    problem: FusionProblem
    joins: Tensor  # logits by restart, layer and what it may join
    tilings: Tensor  # logits by restart, layer and tiling
    resident: np.ndarray  # whether each result is resident, by restart
    generator: TorchGenerator  # PyTorch's, for the Gumbel noise

    @property
    def parameters(self) -> list[Tensor]:
        return [self.joins, self.tilings]

    def step(self, temperature: float) -> tuple[Choices, list[int], Tensor]:
        """Return a schedule drawn for each restart, the restarts, and a loss with a gradient."""
        torch = torch_module()
        picks, counts = torch.arange(self.joins.shape[-1]), [len(others) for others in self.problem.neighbours]
        masked = torch.where(picks <= torch.tensor(counts)[:, None], self.joins, -torch.inf)
        joins, tilings = masked / temperature, self.tilings / temperature
        cycles, energy = self.costs(torch.softmax(joins, dim=-1), torch.softmax(tilings, dim=-1))
        drawn = [self._drawn(logits) for logits in (tilings, joins)]
        choices = np.concatenate([*drawn, self.resident], axis=1).astype(np.int64)
        return choices, [*range(len(choices))], (torch.log(cycles) + torch.log(energy)).sum()

    def _drawn(self, logits: Tensor) -> np.ndarray:
        """Return the largest logits, with Gumbel noise: a draw from their softmax."""
        torch = torch_module()
        noise = -torch.log(torch.empty_like(logits).exponential_(generator=self.generator))
        drawn: np.ndarray = (logits.detach() + noise).argmax(dim=-1).numpy()
        return drawn

    def costs(self, joins: Tensor, tilings: Tensor) -> tuple[Tensor, Tensor]:
        """Return cycles and energy of each restart, from probabilities by restart, layer and choice."""
        torch, known = torch_module(), self.problem.known
        causes, (groups, is_outside) = torch.tensor(known.causes), torch.tensor(known.conditions).T
        inside = joins.new_zeros((len(joins), len(groups)))
        inside = inside.index_add(1, causes[:, 0], joins[:, causes[:, 1], causes[:, 2]])
        held = torch.where(is_outside.bool(), 1 - inside, inside).clamp(min=LEAST)
        likelihood = joins.new_zeros((len(joins), len(known.roots))).index_add(1, groups, torch.log(held))
        weights = self._weights(likelihood)
        costs = torch.einsum("rgt,gtk->rgk", tilings[:, known.roots], torch.tensor(known.costs))
        cycles, energy = (weights[..., None] * costs).sum(1).T
        return cycles, energy

    def _weights(self, likelihood: Tensor) -> Tensor:
        """Return how much each group counts: for each of its layers, its share among the groups of that layer."""
        torch, known = torch_module(), self.problem.known
        layers, groups = torch.tensor(known.members).T
        logs = likelihood[:, groups]
        size = (len(logs), len(self.problem.graph.layers))
        peak = logs.new_full(size, -torch.inf).scatter_reduce(1, layers.expand_as(logs), logs.detach(), "amax")
        parts = torch.exp(logs - peak[:, layers])
        shares = parts / logs.new_zeros(size).index_add(1, layers, parts)[:, layers]
        member_counts = torch.bincount(groups)
        return likelihood.new_zeros(likelihood.shape).index_add(1, groups, shares / member_counts[groups])

"""The states of a model on an accelerator with several memories, and all steps from one state to the next.

A state is the closed set of layers that have run, with the resident tensors. A step runs one layer, or a
group of layers in row tiles.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.groups.convex_groups import ConvexGroups, members_of
from common.design_space.hierarchy.execution_options import LayerPlaces, Places, execution_option
from common.design_space.hierarchy.row_tiles import GroupUse, Plan, RowTilePlans

ALONE = -1  # in place of a group
MOST_STATES = 20_000
MOST_STEPS = 200_000
MOST_RESIDENT = (math.inf, 8, 4, 2, 1, 0)  # tensors at once, in the order of the model, until the states are few enough
Resident = frozenset[tuple[str, bool]]  # tensors on the chip, and whether each of them is in DRAM too
State = tuple[int, Resident]  # the closed set of layers that have run, and the resident tensors


@dataclass(frozen=True)
class ScheduleEdges:
    """Steps between states, sorted by the state that they lead to; no step leads to a state before its own."""

    states: int  # number of states; the first is the start, the last the end
    plans: Sequence[Plan]  # what steps run, without the names of their layers and tensors
    source: np.ndarray  # state that each step leaves
    target: np.ndarray
    plan: np.ndarray  # index of what it runs
    use: np.ndarray  # index of the group that it runs in row tiles; below 0 for a layer that runs alone
    uses: Sequence[GroupUse]
    row_tiled: RowTilePlans
    limit: str = ""  # schedules that are left out because the model has too many states; empty where none are

    def plan_of(self, step: int) -> Plan:
        """Return what a step runs, with the names of its layers and tensors."""
        plan, use = self.plans[self.plan[step]], int(self.use[step])
        return plan if use < 0 else self.row_tiled.named(plan, self.uses[use])


def schedule_edges(places: LayerPlaces, hardware: Hardware, groups: ConvexGroups) -> ScheduleEdges:
    """Return all steps.

    A model of too many states or steps keeps the order of its layers. Where they are still too many, few tensors are
    resident at once.
    """
    in_order = replace(groups, keeps_order=True)
    spaces = [(places.limited_to(most), in_order) for most in MOST_RESIDENT]
    spaces = spaces if groups.keeps_order else [(places, groups), *spaces]
    found = (_Steps(choices, hardware, order).edges() for choices, order in spaces)
    return next(edges for edges in found if edges is not None)


class _Steps:
    """Goes through the states by the number of layers that have run."""

    def __init__(self, places: LayerPlaces, hardware: Hardware, groups: ConvexGroups) -> None:
        self.places, self.hardware, self.groups = places, hardware, groups
        self.row_tiled = RowTilePlans(places, hardware)
        self.plans: dict[Hashable, tuple[int, Plan]] = {}
        self.uses: dict[int, tuple[int, GroupUse]] = {}

    def edges(self) -> ScheduleEdges | None:
        """Return all steps; None where there are too many of them, or too many states, and fewer tensors may stay."""
        is_last = not self.places.most_resident
        count = len(self.places.layers)
        by_size: list[dict[State, None]] = [{} for _ in range(count + 1)]
        by_size[0][0, frozenset()] = None
        steps: list[tuple[State, State, int, int]] = []
        for here in by_size[:-1]:
            for state in here:
                for then, plan, use in self._after(state):
                    by_size[then[0].bit_count()].setdefault(then)
                    steps.append((state, then, plan, use))
                    if len(steps) > MOST_STEPS and not is_last:
                        return None
            if sum(map(len, by_size)) > MOST_STATES and not is_last:
                return None
        number = {state: index for index, state in enumerate(state for states in by_size for state in states)}
        table = sorted((number[then], number[state], plan, use) for state, then, plan, use in steps)
        target, source, plan, use = np.array(table, dtype=np.int64).T
        plans, uses = [each for _, each in self.plans.values()], [each for _, each in self.uses.values()]
        return ScheduleEdges(len(number), plans, source, target, plan, use, uses, self.row_tiled, self._limit())

    def _limit(self) -> str:
        most = self.places.most_resident
        if most < math.inf:
            return f"layers run in the order of the model, and at most {most} tensors are resident at once"
        return "layers run in the order of the model" if self.groups.keeps_order else ""

    def _after(self, state: State) -> Iterator[tuple[State, int, int]]:
        """Yield the states that a step leads to, and the indices of its plan and of its group."""
        done, resident = state[0], dict(state[1])
        for group in self.groups.steps(done):
            then = done | group
            for places, plans, use in self._plans(group, resident, then):
                for kept in self.places.afterwards(resident, places, then):
                    reached = then, frozenset(kept.items())
                    for plan in plans:
                        yield reached, plan, use

    def _plans(self, group: int, resident: dict[str, bool], then: int) -> Iterator[tuple[Places, Sequence[int], int]]:
        """Yield the tensors that stay on the chip after a group, and the indices of its plans and of itself."""
        if group.bit_count() > 1:
            for use, plans in self.row_tiled.of_group(group, resident, then):
                numbers = [self.plans.setdefault(id(plan), (len(self.plans), plan))[0] for plan in plans]
                yield use.after, numbers, self.uses.setdefault(id(use), (len(self.uses), use))[0]
            return
        (index,) = members_of(group)
        for places in self.places.of_layer(index, resident, then):
            key = index, places
            if key not in self.plans:
                option = execution_option(index, self.places.layers[index], places, self.hardware, self.places.sizes)
                self.plans[key] = len(self.plans), (option,)
            yield places, [self.plans[key][0]], ALONE

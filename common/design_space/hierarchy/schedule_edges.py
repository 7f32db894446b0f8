"""The states of a model on an accelerator with several memories, and all steps from one state to the next.

A state is the closed set of layers that have run, with the resident tensors. A step runs one layer, or a
group of layers in row tiles.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from common.design_space.accelerator.hardware import Hardware
from common.design_space.groups.convex_groups import ConvexGroups, members_of
from common.design_space.hierarchy.execution_options import LayerPlaces, Places, execution_option
from common.design_space.hierarchy.row_tiles import Plan, RowTilePlans

MOST_STATES = 20_000
MOST_STEPS = 200_000
MOST_RESIDENT = (math.inf, 8, 4, 2, 1)  # tensors at once, in the order of the model, until the states are few enough
Resident = frozenset[tuple[str, bool]]  # tensors on the chip, and whether each of them is in DRAM too
State = tuple[int, Resident]  # the closed set of layers that have run, and the resident tensors


@dataclass(frozen=True)
class ScheduleEdges:
    """Steps between states, sorted by the state that they lead to; no step leads to a state before its own.

    Attributes:
        states: number of states; the first is the start, the last the end.
        source: state that each step leaves.
        plan: index of what it runs.
        limit: schedules that are left out because the model has too many states; empty where none are.
    """

    states: int
    plans: Sequence[Plan]
    source: np.ndarray
    target: np.ndarray
    plan: np.ndarray
    limit: str = ""


def schedule_edges(places: LayerPlaces, hardware: Hardware, groups: ConvexGroups) -> ScheduleEdges:
    """Return all steps.

    A model of too many states or steps keeps the order of its layers. Where they are still too many, few tensors are
    resident at once.
    """
    in_order = replace(groups, keeps_order=True)
    spaces = [(places.limited_to(most), in_order) for most in MOST_RESIDENT]
    for choices, order in spaces if groups.keeps_order else [(places, groups), *spaces]:
        if edges := _Steps(choices, hardware, order).edges(MOST_STATES, MOST_STEPS):
            return edges
    return _Steps(places.limited_to(0), hardware, in_order).edges()


class _Steps:
    """Goes through the states by the number of layers that have run."""

    def __init__(self, places: LayerPlaces, hardware: Hardware, groups: ConvexGroups) -> None:
        self.places, self.hardware, self.groups = places, hardware, groups
        self.row_tiled = RowTilePlans(places, hardware)
        self.plans: dict[Hashable, tuple[int, Plan]] = {}

    @overload
    def edges(self) -> ScheduleEdges: ...

    @overload
    def edges(self, most_states: float, most_steps: float) -> ScheduleEdges | None: ...

    def edges(self, most_states: float = math.inf, most_steps: float = math.inf) -> ScheduleEdges | None:
        """Return all steps; None where there are too many of them, or too many states."""
        count = len(self.places.layers)
        by_size: list[dict[State, None]] = [{} for _ in range(count + 1)]
        by_size[0][0, frozenset()] = None
        steps: list[tuple[State, State, int]] = []
        for here in by_size[:-1]:
            for state in here:
                for then, plan in self._after(state):
                    by_size[then[0].bit_count()].setdefault(then)
                    steps.append((state, then, plan))
                    if len(steps) > most_steps:
                        return None
            if sum(map(len, by_size)) > most_states:
                return None
        number = {state: index for index, state in enumerate(state for states in by_size for state in states)}
        table = sorted((number[then], number[state], plan) for state, then, plan in steps)
        target, source, plan = np.array(table, dtype=np.int64).T
        plans = [each for _, each in self.plans.values()]
        return ScheduleEdges(len(number), plans, source, target, plan, self._limit())

    def _limit(self) -> str:
        most = self.places.most_resident
        if most < math.inf:
            return f"layers run in the order of the model, and at most {most} tensors are resident at once"
        return "layers run in the order of the model" if self.groups.keeps_order else ""

    def _after(self, state: State) -> Iterator[tuple[State, int]]:
        """Yield the states that a step leads to, and the index of its plan."""
        done, resident = state[0], dict(state[1])
        for group in self.groups.steps(done):
            then = done | group
            for places, plan in self._plans(group, resident, then):
                for kept in self.places.afterwards(resident, places, then):
                    yield (then, frozenset(kept.items())), plan

    def _plans(self, group: int, resident: dict[str, bool], then: int) -> Iterator[tuple[Places, int]]:
        """Yield the plans of a group, by their index, and the tensors that stay on the chip after it."""
        members = members_of(group)
        if len(members) > 1:
            for places, plan in self.row_tiled.of_group(group, resident, then):
                yield places, self.plans.setdefault(id(plan), (len(self.plans), plan))[0]
            return
        for places in self.places.of_layer(members[0], resident, then):
            key = members[0], places
            if key not in self.plans:
                layer = self.places.layers[members[0]]
                option = execution_option(members[0], layer, places, self.hardware, self.places.sizes)
                self.plans[key] = len(self.plans), (option,)
            yield places, self.plans[key][0]
